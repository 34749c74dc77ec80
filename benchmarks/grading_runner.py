"""A grader in a process of its own: limited memory, and an end after some seconds on one pair."""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import os
import resource
import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType

from grading_pairs import Pair
from grading_peers import Judge, loaded

SECONDS_PER_PAIR = 6.0
START_SECONDS, END_SECONDS = 120.0, 5.0
MEMORY_BYTES = 3 << 30
OUR_MODULES = "workings.grading"

Load = Callable[[str], AbstractContextManager[Judge]]
"""What `grading_peers.loaded` is."""

_RESULT = struct.Struct("!Bd")
_REFUSED, _ACCEPTED, _FAILED, _KILLED = range(4)
_READY = b"ready"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a grader made of one pair.

    Attributes:
        accepted: it holds the response for right; False where it failed or was killed.
        seconds: that it took, up to the limit.
        failed: it raised an exception.
        killed: it had no verdict within the limit, or its process died.
    """

    accepted: bool
    seconds: float
    failed: bool = False
    killed: bool = False


class Runner:
    """One grader, started on first need and again after it had to be killed.

    Args:
        name: of the grader, in `grading_peers.PEERS`.
        seconds_per_pair: after which it is killed.
        load: makes its judge, called in its process.
    """

    def __init__(
        self,
        name: str,
        *,
        seconds_per_pair: float = SECONDS_PER_PAIR,
        load: Load = loaded,
    ) -> None:
        self.name = name
        self._seconds_per_pair = seconds_per_pair
        self._load = load
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def run(self, pairs: Sequence[Pair]) -> list[Outcome]:
        """One outcome per pair, in order. The seconds are measured by the grader's process."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(pairs):
            connection = self._started()
            waiting = pairs[len(outcomes) :]
            connection.send([(pair.response, pair.gold) for pair in waiting])
            for outcome in self._received(connection, len(waiting)):
                outcomes.append(outcome)
        return outcomes

    def close(self) -> None:
        """End the grader's process."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.join(timeout=END_SECONDS)
            self._kill()

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _received(self, connection: Connection, count: int) -> Iterator[Outcome]:
        """The outcomes that come; the last one is a killed one where the grader had to be ended."""
        for _ in range(count):
            begun = time.perf_counter()
            try:
                if not connection.poll(self._seconds_per_pair):
                    raise EOFError
                state, seconds = _RESULT.unpack(connection.recv_bytes())
            except (EOFError, OSError):
                self._kill()
                yield Outcome(False, time.perf_counter() - begun, killed=True)
                return
            yield Outcome(state == _ACCEPTED, seconds, failed=state == _FAILED)

    def _started(self) -> Connection:
        if self._connection is not None:
            return self._connection
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self.name, self._load))
        self._process.start()
        theirs.close()
        if not ours.poll(START_SECONDS) or ours.recv_bytes() != _READY:
            self._kill()
            raise RuntimeError(f"the grader {self.name!r} does not start")
        self._connection = ours
        return ours

    def _kill(self) -> None:
        """End the process, and those that it has started: it leads a session of its own."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid or 0, signal.SIGKILL)
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None


# --------------------------------------------------------------------------- the grader's process


def serve(connection: Connection, name: str, load: Load) -> None:
    """Grade lists of pairs until the other end closes; what a grader prints is thrown away."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    with contextlib.suppress(EOFError, OSError), load(name) as judge:
        with contextlib.suppress(Exception):
            judge(r"The answer is $\boxed{\frac{1}{2}}$.", "0.5")  # loads what is loaded late
        memories = text_memories(OUR_MODULES)
        connection.send_bytes(_READY)
        while True:
            for response, gold in connection.recv():
                for forget in memories:
                    forget()
                connection.send_bytes(_RESULT.pack(*_timed(judge, response, gold)))


def text_memories(modules: str) -> list[Callable[[], None]]:
    """How to empty every memory of function results below a package, as functions to call.

    Golds repeat in the mix, and no grade shall profit from another.
    """
    kind = type(functools.lru_cache(len))
    return [
        memory.cache_clear
        for memory in gc.get_objects()
        if type(memory) is kind  # isinstance asks proxies for their class, and torch's then warn
        and str(memory.__module__).startswith(modules)
    ]


def _timed(judge: Judge, response: str, gold: str) -> tuple[int, float]:
    begun = time.perf_counter()
    try:
        state = _ACCEPTED if judge(response, gold) else _REFUSED
    except (Exception, RecursionError, MemoryError):
        state = _FAILED
    return state, time.perf_counter() - begun
