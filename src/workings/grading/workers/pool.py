"""Killable workers: a task gets an answer or its time is up, and the caller is never stuck.

There is no thread here. Whoever has tasks takes idle workers, sends each one task, waits on their
pipes with a monotonic deadline, and kills a worker whose time is up; so the pool works from any
thread and inside asyncio, and survives Ctrl-C.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence

from workings.errors import ConfigError, GradingError
from workings.grading.workers.batch import Batch, Reply
from workings.grading.workers.launcher import Launcher, Worker, default_launcher


class WorkerPool:
    """Up to `num_workers` processes, started on first need.

    Args:
        num_workers: most processes at once.
        deadline_seconds: most seconds of work on one task, both tries together; counted from the
            moment a worker takes it.
        memory_bytes: address-space limit of each worker.
        tasks_per_worker: a worker is replaced after so many tasks.
        launcher: where workers come from; the platform's best by default.
    """

    _owner: int
    _condition: threading.Condition
    _idle: list[Worker]
    _num_live: int
    _num_waiting: int
    _launcher: Launcher
    _finalizer: Callable[[], object]

    def __init__(
        self,
        *,
        num_workers: int,
        deadline_seconds: float,
        memory_bytes: int = 2 << 30,
        tasks_per_worker: int = 5_000,
        launcher: Launcher | None = None,
    ) -> None:
        if num_workers < 1:
            raise ConfigError(f"num_workers={num_workers}; expected 1 or more")
        self.num_workers = num_workers
        self._deadline_seconds = deadline_seconds
        self._memory_bytes = memory_bytes
        self._tasks_per_worker = tasks_per_worker
        self._closed = False
        self._begin(launcher or default_launcher(memory_bytes=memory_bytes))

    def run(self, tasks: Sequence[Mapping[str, str]]) -> list[Reply]:
        """One reply per task, in order. Raises GradingError only where no worker can be had."""
        if self._owner != os.getpid():  # a fork of the owner: its workers are not ours to use
            self._begin(default_launcher(memory_bytes=self._memory_bytes))
        batch = Batch(
            tasks,
            deadline_seconds=self._deadline_seconds,
            give_back=self._give_back,
            discard=self._discard,
        )
        try:
            while batch.is_queued or batch.is_running:
                while batch.is_queued:
                    worker = self._take(block=not batch.is_running)
                    if worker is None:
                        break
                    batch.send_next(worker)
                batch.collect()
        finally:
            batch.abandon()
        return batch.replies()

    def close(self) -> None:
        """End every worker; the pool is not usable afterwards."""
        self._closed = True
        if self._owner != os.getpid():
            return
        with self._condition:
            idle, self._idle = self._idle, []
            self._condition.notify_all()
        for worker in idle:
            worker.connection.close()
        self._finalizer()

    def idle_pids(self) -> list[int]:
        """Process ids of the workers that have nothing to do."""
        with self._condition:
            return [worker.pid for worker in self._idle]

    def _begin(self, launcher: Launcher) -> None:
        self._owner = os.getpid()
        self._condition = threading.Condition()
        self._idle = []
        self._num_live = 0
        self._num_waiting = 0
        self._launcher = launcher
        self._finalizer = weakref.finalize(self, launcher.close)

    def _take(self, *, block: bool) -> Worker | None:
        """A worker of the caller's own; None where none is free, or others have waited longer."""
        with self._condition:
            if not block and (self._num_waiting or not self._is_available()):
                return None
            self._num_waiting += 1
            try:
                self._condition.wait_for(lambda: self._closed or self._is_available())
            finally:
                self._num_waiting -= 1
            if self._closed:
                raise GradingError("the grader is closed", hint="close it after its last use")
            if self._idle:
                return self._idle.pop()
            self._num_live += 1
        try:
            return self._launcher.launch()
        except BaseException:
            self._forget_one()
            raise

    def _is_available(self) -> bool:
        return bool(self._idle) or self._num_live < self.num_workers

    def _give_back(self, worker: Worker) -> None:
        if worker.num_tasks >= self._tasks_per_worker or self._closed:
            self._discard(worker)
            return
        with self._condition:
            self._idle.append(worker)
            self._condition.notify()

    def _discard(self, worker: Worker) -> None:
        self._launcher.retire(worker)
        self._forget_one()

    def _forget_one(self) -> None:
        with self._condition:
            self._num_live -= 1
            self._condition.notify()
