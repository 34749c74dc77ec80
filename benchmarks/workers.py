"""Workers in processes of their own, told by one parent what to do, one call at a time.

Two engines that share a card cannot share a process: each has its own CUDA context, its own caches
and often its own opinion of who owns the card. A worker is made in its process by a factory that
is named "module:function", so that the parent imports none of what the worker needs.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Protocol

GRACE_SECONDS = 20.0
"""For a worker to close; then its process is ended."""


class WorkerFailed(RuntimeError):
    """A worker raised, ended, or did not answer in time; the text is its own account."""


class Caller(Protocol):
    """Whatever does what it is told: a worker elsewhere, or one in this process."""

    def call(self, method: str, *arguments: Any, timeout: float | None = None) -> Any: ...

    def close(self) -> None: ...


class Here:
    """A worker in this process."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def call(self, method: str, *arguments: Any, timeout: float | None = None) -> Any:
        """What the method returns."""
        return getattr(self.worker, method)(*arguments)

    def close(self) -> None:
        """Lets the worker give back what it holds."""
        self.worker.close()


class Elsewhere:
    """A worker in a process of its own.

    Args:
        factory: "module:function" that makes the worker, imported there.
        environment: variables to set there before anything is imported.
        preload: modules that the process imports at once, while the parent does something else.
    """

    def __init__(
        self,
        factory: str,
        *,
        environment: Mapping[str, str] | None = None,
        preload: Sequence[str] = (),
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve,
            args=(theirs, factory, dict(environment or {}), tuple(preload)),
        )
        self._process.start()
        theirs.close()
        self.name = factory

    def call(self, method: str, *arguments: Any, timeout: float | None = None) -> Any:
        """What the method returns there; WorkerFailed with its traceback where it raises."""
        self.send(method, *arguments)
        return self.answer(timeout=timeout)

    def send(self, method: str, *arguments: Any) -> None:
        """Starts a call whose `answer` is asked for later."""
        try:
            self._connection.send((method, arguments))
        except OSError as error:
            raise WorkerFailed(f"{self.name} has ended") from error

    def answer(self, *, timeout: float | None = None) -> Any:
        """The answer to the oldest call that has none yet."""
        try:
            if timeout is not None and not self._connection.poll(max(0.0, timeout)):
                raise WorkerFailed(f"{self.name} did not answer within {timeout:.0f} s")
            succeeded, value = self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerFailed(f"{self.name} ended without an answer") from error
        if not succeeded:
            raise WorkerFailed(f"{self.name} failed\n{value}")
        return value

    def close(self) -> None:
        """Ends the process, by asking first."""
        with suppress(OSError):
            self._connection.send(None)
        self._process.join(GRACE_SECONDS)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(GRACE_SECONDS)
        if self._process.is_alive():
            self._process.kill()
        self._connection.close()


def serve(
    connection: Connection,
    factory: str,
    environment: dict[str, str],
    preload: Sequence[str],
) -> None:
    """A worker's process: the factory's worker does what the parent says until it says None."""
    os.environ.update(environment)
    # What the worker prints is no result, and its parent's output has a reader.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    worker: Any = None
    for name in preload:
        with suppress(ImportError):  # The worker itself says what it lacks, when it is made.
            importlib.import_module(name)
    while True:
        try:
            told = connection.recv()
        except EOFError:
            told = None
        if told is None:
            break
        method, arguments = told
        try:
            if worker is None:
                module, function = factory.split(":")
                worker = getattr(importlib.import_module(module), function)()
                if hasattr(worker, "attach"):
                    worker.attach(connection)
            connection.send((True, getattr(worker, method)(*arguments)))
        except BaseException:  # Whatever it was, the parent is waiting to hear of it.
            connection.send((False, traceback.format_exc()))
    if worker is not None:
        worker.close()


class Budget:
    """Seconds that a measurement may take, counted from here."""

    def __init__(self, seconds: float | None) -> None:
        self._start = time.perf_counter()
        self._seconds = seconds

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    @property
    def left(self) -> float | None:
        """Seconds left; None without a limit."""
        return None if self._seconds is None else self._seconds - self.spent

    def allows(self, seconds: float) -> bool:
        """Whether so many seconds are left."""
        left = self.left
        return left is None or seconds <= left
