"""One set of weights as the server takes it: descriptions by HTTP, bytes through the group.

HTTP thread    offer(description) ──> waits until the engine's thread is about to receive
engine's thread                       receives the bytes, yields their tensors
HTTP thread    close(checksum)    ──> the tensors end, if both sums agree
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from workings.errors import EngineError, EngineMemoryError, WorkingsError, is_out_of_memory
from workings.rollout.server.buckets import Bucket, Checksum, Entry, read_description, tensors_of
from workings.rollout.server.weight_group import SERVER, WeightGroup

POLL_SECONDS = 0.2


class WeightSync:
    """The state of one transfer.

    Args:
        version: of the weights.
        backend: of the group they come through.
        device: where the engine's weights are.
        seconds: longest wait for the trainer between two parts.
        alive: False once the trainer is gone.

    Attributes:
        ready: set when the engine's thread has begun.
        attempt: number of the group that the trainer has to join first, 0 for none.
    """

    def __init__(
        self,
        version: int,
        *,
        backend: str,
        device: torch.device,
        seconds: float,
        alive: Callable[[], bool],
    ) -> None:
        self._version = version
        self._backend = backend
        self._device = device if backend == "nccl" else torch.device("cpu")
        self._seconds = seconds
        self._alive = alive
        self._parts: queue.SimpleQueue[tuple[tuple[Entry, ...], int] | str] = queue.SimpleQueue()
        self._receiving = threading.Semaphore(0)
        self._failed: BaseException | None = None
        self._checked = False
        self.ready = threading.Event()
        self.attempt = 0

    # ------------------------------------------------------------------ engine's thread

    def join(self, store: Any, *, address: str, attempt: int) -> WeightGroup:
        """A new group with the trainer, which joins as soon as it hears that this side is ready."""
        self.attempt = attempt
        self.ready.set()
        return WeightGroup(
            store,
            SERVER,
            backend=self._backend,
            address=address,
            attempt=attempt,
            seconds=self._seconds,
        )

    def tensors(self, group: WeightGroup) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, tensor) as they come; each bucket has memory of its own."""
        self.ready.set()
        checksum = Checksum(self._version)
        while True:
            part = self._next_part()
            if isinstance(part, str):
                break
            entries, num_bytes = part
            data = torch.empty(num_bytes, dtype=torch.uint8, device=self._device)
            self._receiving.release()
            group.broadcast(
                data, seconds=self._seconds, alive=self._alive, what="receiving weights"
            )
            bucket = Bucket(entries=entries, data=data)
            checksum.add(bucket)
            yield from tensors_of(bucket)
        if part != checksum.value():
            raise EngineError(
                f"weights of version {self._version} arrived damaged: their sum is "
                f"{checksum.value()}, the trainer's {part}",
                hint="load them again; if it happens again, look for a fault of the network",
            )
        self._checked = True

    def finish(self) -> None:
        """Raise EngineError for an engine that left weights behind."""
        if not self._checked:
            raise EngineError("the engine did not read the weights to their end")

    def fail(self, error: BaseException) -> None:
        """End every wait of the trainer with this error."""
        self._failed = error
        self.ready.set()
        self._receiving.release()

    # ------------------------------------------------------------------ HTTP threads

    def offer(self, rows: Any, num_bytes: int) -> None:
        """Announce a bucket; returns once its bytes are waited for."""
        self.raise_failure()
        self._parts.put((read_description(rows, num_bytes), num_bytes))
        deadline = time.monotonic() + self._seconds
        while not self._receiving.acquire(timeout=POLL_SECONDS):
            if time.monotonic() > deadline:
                raise EngineError(f"the engine took no weights for {self._seconds:g} s")
        self.raise_failure()

    def close(self, checksum: str) -> None:
        """No more buckets."""
        self.raise_failure()
        self._parts.put(checksum)

    def raise_failure(self) -> None:
        """Raise the error that ended the transfer on the engine's side, if there was one."""
        error = self._failed
        if error is None:
            return
        self._receiving.release()  # for whoever asks next
        kind = EngineMemoryError if is_out_of_memory(error) else EngineError
        if isinstance(error, WorkingsError):
            raise kind(error.message, hint=error.hint)
        raise kind(f"the engine failed: {type(error).__name__}: {error}")

    def _next_part(self) -> tuple[tuple[Entry, ...], int] | str:
        deadline = time.monotonic() + self._seconds
        while self._alive():
            with contextlib.suppress(queue.Empty):
                return self._parts.get(timeout=POLL_SECONDS)
            if time.monotonic() > deadline:
                raise EngineError(f"the trainer sent no weights for {self._seconds:g} s")
        raise EngineError("the trainer is gone; its weights are incomplete")
