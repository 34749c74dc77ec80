"""Killable workers: a task gets an answer or its time is up, and the caller is never stuck.

There is no thread here. Whoever has tasks borrows workers, sends them tasks, waits on their
channels with a monotonic deadline, and kills a worker whose time is up; so the pool works from any
thread and inside asyncio, and survives Ctrl-C. One worker more than were ever lent at once stands
in reserve, to step in for one that was killed.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from workings.errors import ConfigError, GradingError
from workings.grading.forks import renew_after_fork
from workings.grading.workers.batch import Batch, Reply
from workings.grading.workers.fork_server import ForkServer
from workings.grading.workers.interpreters import FreshInterpreters
from workings.grading.workers.launcher import Launcher, Worker

PAIRS = "workings.grading.workers.pair"
"""The handler that compares an answer and a gold."""
MEMORY_BYTES = 2 << 30

_LOOK_SECONDS = 1.0
"""Between two looks for workers that an interrupted batch did not give back."""


class WorkerPool:
    """Up to `num_workers` processes at work, started on first need, and at least one in reserve.

    Args:
        num_workers: most processes at work at once.
        deadline_seconds: most seconds of work on one task, both tries together; counted from the
            moment a worker takes it.
        tasks_per_worker: a worker is replaced after so many tasks.
        launcher: where workers come from; the platform's best by default.
    """

    _lock: threading.RLock
    _waiting: deque[threading.Condition]
    _idle: list[Worker]
    _lent: dict[Worker, weakref.ref[Batch]]
    _reserve: list[Worker]
    _most_lent: int

    def __init__(
        self,
        *,
        num_workers: int,
        deadline_seconds: float,
        tasks_per_worker: int = 5_000,
        launcher: Launcher | None = None,
    ) -> None:
        if num_workers < 1:
            raise ConfigError(f"num_workers={num_workers}; expected 1 or more")
        self.num_workers = num_workers
        self._deadline_seconds = deadline_seconds
        self._tasks_per_worker = tasks_per_worker
        self._closed = False
        self._launcher = launcher or default_launcher()
        self._begin()
        renew_after_fork(self)

    def run(self, tasks: Sequence[Mapping[str, object]]) -> list[Reply]:
        """One reply per task, in order. Raises GradingError only where no worker can be had."""
        with self.batch() as batch:
            for task in tasks:
                batch.submit(task)
            return batch.replies()

    def batch(self) -> Batch:
        """Tasks that are sent while the caller still looks for more; use it in a `with` block.

        A thread has one at a time: what an earlier one still has is taken back.
        """
        thread = threading.current_thread()
        if self._lent:
            with self._lock:
                for borrower in self._borrowers():
                    borrower.is_over |= borrower.thread is thread
        return Batch(self, deadline_seconds=self._deadline_seconds, thread=thread)

    def start(self) -> None:
        """Begin to start the first worker, and do not wait for it."""
        with self._lock:
            self._check_open()
            if not self._reserve and not self._idle and not self._lent:
                self._reserve.append(self._launcher.launch())

    def close(self) -> None:
        """End every worker; the pool is not usable afterwards."""
        with self._lock:
            self._closed = True
            self._idle, self._reserve = [], []
            for turn in self._waiting:
                turn.notify()
        self._finalizer()

    def renew(self) -> None:
        """Forget the workers of the process that this one was forked from."""
        self._finalizer.detach()
        self._launcher = self._launcher.renewed()
        self._begin()

    def idle_pids(self) -> list[int]:
        """Process ids of the workers that wait for work, without those in reserve."""
        with self._lock:
            return [worker.pid for worker in self._idle if worker.pid is not None]

    def lent_pids(self) -> list[int]:
        """Process ids of the workers that are at work."""
        with self._lock:
            return [worker.pid for worker in self._lent if worker.pid is not None]

    def reserve_pids(self) -> list[int]:
        """Process ids of the workers that are ready to step in."""
        with self._lock:
            ready = [worker for worker in self._reserve if worker.is_usable()]
            return [worker.pid for worker in ready if worker.pid is not None]

    def lend(self, borrower: Batch, *, block: bool) -> Worker | None:
        """A worker of the borrower's own; None where none is free, or others have waited longer."""
        with self._lock:
            if self._waiting or not self._is_available():
                if not block:
                    return None
                self._wait_for_turn()
            self._check_open()
            worker = self._next_worker()
            self._lent[worker] = weakref.ref(borrower)
            self._forget_unlent(worker)
            if self._most_lent:  # the very first has the machine for itself while it starts
                self._fill_reserve()
            return worker

    def is_wanted(self) -> bool:
        """True where others wait for a worker: what is lent is to come back soon."""
        return bool(self._waiting)

    def give_back(self, worker: Worker) -> None:
        """Take back a worker that has nothing to do; end it where its work is done."""
        if worker.num_tasks >= self._tasks_per_worker or self._closed:
            self.discard(worker)
            return
        with self._lock:
            self._idle.append(worker)
            self._lent.pop(worker, None)
            self._fill_reserve()
            self._call_next()

    def discard(self, worker: Worker) -> None:
        """Kill a worker; one in reserve takes its place."""
        with self._lock:
            self._launcher.retire(worker)
            self._forget_unlent(worker)
            self._lent.pop(worker, None)
            self._fill_reserve()
            self._call_next()

    def release(self, borrower: Batch) -> None:
        """Discard whatever `borrower` still has: there may be answers on its way."""
        with self._lock:
            held = [worker for worker, owner in self._lent.items() if owner() is borrower]
            if held:
                self._take_back(held)

    def check(self) -> None:
        """Raise GradingError where it is known that no worker can start."""
        self._check_open()
        self._launcher.check()

    def has_lost(self, worker: Worker) -> bool:
        """True where `worker` died because what made it is dead: no fault of its task."""
        return self._launcher.has_lost(worker)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._waiting = deque()
        self._idle = []
        self._lent = {}
        self._reserve = []
        self._most_lent = 0
        self._finalizer = weakref.finalize(self, self._launcher.close)

    def _wait_for_turn(self) -> None:
        """Wait until a worker is available and nobody has waited longer."""
        turn = threading.Condition(self._lock)
        try:
            self._waiting.append(turn)
            while not self._closed and (self._waiting[0] is not turn or not self._is_available()):
                turn.wait(_LOOK_SECONDS)
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)
            self._call_next()

    def _call_next(self) -> None:
        if self._waiting:
            self._waiting[0].notify()

    def _check_open(self) -> None:
        if self._closed:
            raise GradingError("the grader is closed", hint="close it after its last use")

    def _is_available(self) -> bool:
        owners = [(worker, owner()) for worker, owner in self._lent.items()]
        held = [worker for worker, owner in owners if owner is None or owner.is_over]
        if held:  # an interrupt came before they were given back
            self._take_back(held)
        return bool(self._idle) or len(self._lent) < self.num_workers

    def _take_back(self, held: Sequence[Worker]) -> None:
        """Discard these, and what an interrupt has lost on its way into or out of a list."""
        for worker in held:
            self.discard(worker)
        for worker in self._launcher.workers - {*self._idle, *self._reserve, *self._lent}:
            self._launcher.retire(worker)

    def _borrowers(self) -> list[Batch]:
        found = (owner() for owner in self._lent.values())
        return [borrower for borrower in found if borrower is not None]

    def _forget_unlent(self, worker: Worker) -> None:
        for workers in (self._idle, self._reserve):
            if worker in workers:
                workers.remove(worker)

    def _next_worker(self) -> Worker:
        """An idle worker, one in reserve, or a new one; the dead are retired on the way.

        It stays listed where it was until it is lent: an interrupt must not lose it in between.
        """
        for workers, first in ((self._idle, -1), (self._reserve, 0)):
            while workers:
                if workers[first].is_usable():
                    return workers[first]
                self._launcher.retire(workers.pop(first))
        return self._launcher.launch()

    def _fill_reserve(self) -> None:
        self._most_lent = max(self._most_lent, len(self._idle) + len(self._lent))
        wanted = self._most_lent + 1 - len(self._idle) - len(self._lent)
        with suppress(GradingError, OSError):  # whoever needs a worker next will be told
            while len(self._reserve) < wanted and not self._closed:
                self._reserve.append(self._launcher.launch())


def default_launcher() -> Launcher:
    """The fork server where the system can fork, else fresh interpreters."""
    if hasattr(os, "fork"):
        return ForkServer(handler=PAIRS, memory_bytes=MEMORY_BYTES)
    return FreshInterpreters(handler=PAIRS, memory_bytes=MEMORY_BYTES)
