"""An engine in a process of its own, behind the same protocol; its death or silence is an error.

    this process                                     the engine's process
    submit ──────("generate", requests, sampling)──> engine.generate
    collect <──────────────── samples ──────────────
    load_weights ─────────("weights", version)─────> engine.load_weights
                 <─────────────"next"───────────────    asks for one tensor after the other
                 ───────── name and tensor ─────────>

Sampling then runs beside training instead of within it. Whatever takes the engine down (a crash in
a kernel, the memory killer) is an EngineError here that says in which call it was, at once; an
engine that hangs is one after a time limit. Without that a loop would wait for ever.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

from workings.errors import EngineError, EngineMemoryError
from workings.rollout.engine import Engine, Pending, Request, SamplingParams
from workings.rollout.engine_server import START, Answer, Failure, send_tensor, serve
from workings.types import Sample

if TYPE_CHECKING:
    import torch

CLOSE_SECONDS = 5.0


class Submitted:
    """A batch that the engine's process has been sent."""

    def __init__(self, engine: ProcessEngine, number: int) -> None:
        self._engine = engine
        self.number = number
        self.answer: Answer | None = None
        """What `collect` received; it may be asked for again."""

    def ready(self) -> bool:
        """True once `collect` returns at once, be it with an error."""
        return self.answer is not None or self._engine.has_answer(self.number)


class ProcessEngine:
    """Runs the engine that `build()` makes in a spawned process.

    Args:
        build: a picklable function without arguments, called in the new process.
        start_seconds: longest wait for `build`.
        generate_seconds: longest wait for the samples of one batch.
        sync_seconds: longest wait for the engine to take one tensor, or to finish a sync.

    A call raises EngineError where the process has died, does not answer in time, or raised an
    error itself; the message names the call. Where memory ran out there it is an EngineMemoryError.
    After the first two the engine is closed. It is not made for use by several threads.
    """

    def __init__(
        self,
        build: Callable[[], Engine],
        *,
        start_seconds: float = 600.0,
        generate_seconds: float = 3600.0,
        sync_seconds: float = 120.0,
    ) -> None:
        self._generate_seconds = generate_seconds
        self._sync_seconds = sync_seconds
        self._answers: dict[int, Answer] = {}
        self._last_number = START
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=serve, args=(build, there), daemon=True)
        self._process.start()
        there.close()
        try:
            self._weight_version: int = self._done(START, "its start", start_seconds)
        except EngineError:
            self._kill()
            raise

    @property
    def weight_version(self) -> int:
        """Version given to the last `load_weights` that the engine took."""
        return self._weight_version

    @property
    def pid(self) -> int | None:
        """Process id of the engine's process."""
        return self._process.pid

    def submit(self, requests: Sequence[Request], sampling: SamplingParams) -> Pending:
        """Sends the batch; the engine samples while the caller does something else."""
        number = self._ask("generate", self._generate_seconds, list(requests), sampling)
        return Submitted(self, number)

    def collect(self, pending: Pending) -> list[list[Sample]]:
        """One list per request; waits for the engine."""
        if not isinstance(pending, Submitted):
            raise EngineError(f"a {type(pending).__name__} was not submitted to this engine")
        if pending.answer is None:
            pending.answer = self._receive(pending.number, "generate", self._generate_seconds)
        samples: list[list[Sample]] = self._value_of(pending.answer, "generate")
        return samples

    def generate(self, requests: Sequence[Request], sampling: SamplingParams) -> list[list[Sample]]:
        """`collect(submit(...))`."""
        return self.collect(self.submit(requests, sampling))

    def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Sends the tensors one at a time, each when the engine asks for it."""
        call = f"load_weights of version {version}"
        number = self._ask("weights", self._sync_seconds, version)
        supply = iter(tensors)
        while True:
            answer = self._receive(number, call, self._sync_seconds)
            if answer.kind != "next":
                break
            named = next(supply, None)
            with self._killed_after(self._sync_seconds, call):
                if named is None:
                    self._pipe.send(None)
                else:
                    send_tensor(self._pipe, *named)
        self._weight_version = self._value_of(answer, call)

    def sleep(self) -> None:
        """Give memory back until `wake`."""
        self._done(self._ask("sleep", self._sync_seconds), "sleep", self._sync_seconds)

    def wake(self) -> None:
        """Be ready to sample again."""
        self._done(self._ask("wake", self._sync_seconds), "wake", self._sync_seconds)

    def close(self) -> None:
        """Close the engine and end its process; kills it where that takes long."""
        if not self._pipe.closed:
            with contextlib.suppress(OSError):
                self._pipe.send((self._last_number + 1, "close", ()))
            self._process.join(CLOSE_SECONDS)
        self._kill()

    def has_answer(self, number: int) -> bool:
        """True where a question is answered, or never will be."""
        while number not in self._answers:
            if self._pipe.closed:
                return True
            if not self._pipe.poll():
                return not self._process.is_alive()
            if not self._take_one():
                return True
        return True

    def _ask(self, call: str, seconds: float, *arguments: Any) -> int:
        self._last_number += 1
        with self._killed_after(seconds, call):
            self._pipe.send((self._last_number, call, arguments))
        return self._last_number

    @contextlib.contextmanager
    def _killed_after(self, seconds: float, call: str) -> Iterator[None]:
        """A write that is stuck (a stopped process) fails once its reader is killed."""
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        except OSError as error:
            raise self._death(call) from error
        finally:
            timer.cancel()

    def _done(self, number: int, call: str, seconds: float) -> Any:
        return self._value_of(self._receive(number, call, seconds), call)

    def _value_of(self, answer: Answer, call: str) -> Any:
        if answer.kind != "error":
            return answer.value
        failure: Failure = answer.value
        kind = EngineMemoryError if failure.memory else EngineError
        error = kind(
            f"the engine failed in {call}, in its own process: {failure.message}",
            hint=failure.hint,
        )
        error.add_note(failure.trace)
        raise error

    def _receive(self, number: int, call: str, seconds: float) -> Answer:
        deadline = time.monotonic() + seconds
        while number not in self._answers:
            if self._pipe.closed:
                raise self._death(call)
            rest = max(0.0, deadline - time.monotonic())
            ended = connection.wait([self._pipe, self._process.sentinel], rest)
            if not ended:
                pid = self.pid
                self._kill()
                raise EngineError(
                    f"the engine process {pid} did not answer to {call} within {seconds:g} s and "
                    "was killed",
                    hint="a larger limit helps only if it was slow rather than stuck",
                )
            if self._pipe not in ended or not self._take_one():
                raise self._death(call)
        return self._answers.pop(number)

    def _take_one(self) -> bool:
        """Read one answer; False where the process closed its end."""
        try:
            answer: Answer = self._pipe.recv()
        except (EOFError, OSError):
            return False
        self._answers[answer.number] = answer
        return True

    def _death(self, call: str) -> EngineError:
        self._process.join(CLOSE_SECONDS)
        code = self._process.exitcode
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            how = f"was ended by signal {-code} ({signal.Signals(-code).name})"
        else:
            how = f"exited with code {code}"
        self._kill()
        return EngineError(
            f"the engine process {self.pid} {how}; it was needed for {call}",
            hint="its last words are above, if it had any; SIGKILL without a word usually is the "
            "machine running out of memory",
        )

    def _kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()
