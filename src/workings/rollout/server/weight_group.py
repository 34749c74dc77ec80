"""The channel for weights: a process group of the trainer (rank 0) and one inference server (1).

NCCL between two cards, gloo otherwise. It is made outside of torch's default group, so neither the
trainer's ranks nor vLLM's are touched. The server holds the store through which both find each
other, on the address that it serves on and no other. Nothing waits for ever: a broadcast that does
not finish in time, or whose other side is gone, is aborted and raises.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from workings.errors import EngineError, said

dist: Any = torch.distributed
"""Its stores and groups are documented, but not in its type stubs."""
TRAINER, SERVER, SIZE = 0, 1, 2
POLL_SECONDS = 0.0005
NCCL_WATCHDOG = timedelta(minutes=10)
ALIVE_EVERY_SECONDS = 1.0


def open_store(host: str) -> tuple[Any, int]:
    """A store that listens on `host` alone, and its port."""
    listener = socket.create_server((host, 0))
    port: int = listener.getsockname()[1]
    store = dist.TCPStore(
        host,
        port,
        world_size=None,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    return store, port


def join_store(host: str, port: int, *, seconds: float) -> Any:
    """The store at `host`, as the trainer reaches it."""
    return dist.TCPStore(
        host,
        port,
        world_size=None,
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=seconds),
    )


class WeightGroup:
    """One side of the channel.

    Args:
        store: from `open_store` or `join_store`.
        rank: `TRAINER` or `SERVER`.
        backend: "nccl" or "gloo".
        address: of this side, as the other one reaches it (gloo).
        attempt: the same number on both sides; another one for every new group on a store.
        seconds: longest wait for the other side to join.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        *,
        backend: str,
        address: str,
        attempt: int,
        seconds: float,
    ) -> None:
        own = dist.PrefixStore(f"weights-{attempt}", store)
        limit = timedelta(seconds=seconds)
        self._backend = backend
        try:
            if backend == "nccl":
                options = dist.ProcessGroupNCCL.Options()
                # Its watchdog ends the whole process; `broadcast` gives up long before.
                options._timeout = 10 * limit + NCCL_WATCHDOG
                self._group: Any = dist.ProcessGroupNCCL(own, rank, SIZE, options)
            else:
                options = dist.ProcessGroupGloo._Options()
                options._timeout = limit
                options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
                self._group = dist.ProcessGroupGloo(own, rank, SIZE, options)
        except (RuntimeError, ValueError) as error:
            raise EngineError(
                f"the channel for weights ({backend}) failed: {said(error)}"
            ) from error

    def broadcast(
        self, data: torch.Tensor, *, seconds: float, alive: Callable[[], bool], what: str
    ) -> None:
        """Send (trainer) or fill (server) `data`; EngineError after `seconds`, or once not `alive`.

        After an error the group cannot be used again.
        """
        options = dist.BroadcastOptions()
        options.rootRank = TRAINER
        try:
            work = self._group.broadcast([data], options)
            self._wait(work, seconds, alive, what)
            work.wait()
            if data.is_cuda:
                torch.cuda.current_stream(data.device).synchronize()
        except RuntimeError as error:
            self.abort()
            raise EngineError(f"{what} failed on the way: {said(error)}") from error

    def abort(self) -> None:
        """End everything that is under way."""
        group, self._group = self._group, None
        if group is not None:
            group.abort()

    def _wait(self, work: Any, seconds: float, alive: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + seconds
        next_look = time.monotonic() + ALIVE_EVERY_SECONDS
        while not work.is_completed():
            now = time.monotonic()
            if now > deadline:
                self.abort()
                raise EngineError(f"{what} took longer than {seconds:g} s")
            if now > next_look:
                next_look = now + ALIVE_EVERY_SECONDS
                if not alive():
                    self.abort()
                    raise EngineError(f"{what} failed: the other side is gone")
            time.sleep(POLL_SECONDS)


def backend_for(trainer: dict[str, Any], server: dict[str, Any]) -> tuple[str, str]:
    """(backend, reason) for two sides that say where they are (`whereabouts`)."""
    if trainer["device"] != "cuda" or server["device"] != "cuda":
        return "gloo", "a side is on a CPU"
    if trainer["card"] == server["card"]:
        return "gloo", "both are on one card, which NCCL does not allow; it goes through the CPU"
    return "nccl", "from card to card"


def whereabouts(device: torch.device) -> dict[str, Any]:
    """The kind of a device, and for a card its identity."""
    if device.type != "cuda":
        return {"device": device.type, "card": None}
    return {"device": "cuda", "card": str(torch.cuda.get_device_properties(device).uuid)}
