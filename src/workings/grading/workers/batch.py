"""One caller's tasks on their way through a pool: queued, running, answered or given up."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait

from workings.errors import GradingError
from workings.grading.workers.launcher import START_SECONDS, Worker
from workings.grading.workers.worker import STARTED

FIRST_TRY_SHARE, SECOND_TRY_SHARE = 0.4, 0.55
"""How one deadline is divided, so that a second try on an idle worker still ends within it."""
MAX_STARTS = 5
"""Workers that may end before they take one and the same task until the caller is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What became of a task.

    Attributes:
        answer: the worker's, or None where time ran out, or the worker died, twice.
        seconds: of work on the task, without its time in the queue.
    """

    answer: Mapping[str, str | None] | None
    seconds: float


@dataclass(slots=True, eq=False)
class _Job:
    index: int
    task: Mapping[str, str]
    num_tries: int = 0
    num_starts: int = 0
    seconds: float = 0.0


@dataclass(slots=True, eq=False)
class _Run:
    """A job on a worker; `started` is None until the worker says that it took the task."""

    job: _Job
    worker: Worker
    started: float | None
    expires: float


class Batch:
    """The state of one call: every job is in exactly one of queue, running and replies."""

    def __init__(
        self,
        tasks: Sequence[Mapping[str, str]],
        *,
        deadline_seconds: float,
        give_back: Callable[[Worker], None],
        discard: Callable[[Worker], None],
    ) -> None:
        self._deadline_seconds = deadline_seconds
        self._give_back = give_back
        self._discard = discard
        self._queue = deque(_Job(index, task) for index, task in enumerate(tasks))
        self._running: dict[object, _Run] = {}
        self._replies: dict[int, Reply] = {}

    @property
    def is_queued(self) -> bool:
        """True while a job waits for a worker."""
        return bool(self._queue)

    @property
    def is_running(self) -> bool:
        """True while a worker holds a job."""
        return bool(self._running)

    def replies(self) -> list[Reply]:
        """One reply per task, in order."""
        return [self._replies[index] for index in range(len(self._replies))]

    def send_next(self, worker: Worker) -> None:
        """Give the first job of the queue to `worker`."""
        job = self._queue.popleft()
        run = _Run(job, worker, None, time.monotonic() + START_SECONDS)
        self._running[worker.connection] = run
        message = {**job.task, "seconds": self._limit(job)}
        try:
            worker.connection.send_bytes(json.dumps(message).encode())
        except OSError:
            self._fail(run)

    def collect(self) -> None:
        """Wait for the next thing to happen to a running job, and act on it."""
        if not self._running:
            return
        soonest = min(run.expires for run in self._running.values())
        ready = wait(
            [run.worker.connection for run in self._running.values()],
            timeout=max(soonest - time.monotonic(), 0.0),
        )
        for connection in ready:
            self._receive(self._running[connection])
        now = time.monotonic()
        for run in [run for run in self._running.values() if run.expires <= now]:
            if not run.worker.connection.poll(0):  # an answer that came just in time counts
                self._fail(run)

    def abandon(self) -> None:
        """Give up what still runs, after an exception: those workers hold an unread answer."""
        for run in self._running.values():
            self._discard(run.worker)
        self._running.clear()

    def _receive(self, run: _Run) -> None:
        try:
            message = run.worker.connection.recv_bytes()
        except (EOFError, OSError):
            self._fail(run)
            return
        now = time.monotonic()
        if message == STARTED:
            run.started = now
            run.expires = now + self._limit(run.job)
            return
        del self._running[run.worker.connection]
        run.worker.num_tasks += 1
        seconds = run.job.seconds + now - (run.started or now)
        self._replies[run.job.index] = Reply(answer=json.loads(message), seconds=seconds)
        self._give_back(run.worker)

    def _fail(self, run: _Run) -> None:
        """The worker is dead or out of time: kill it, and try the job once more after the others.

        A worker that died before it took the job does not count as a try.
        """
        del self._running[run.worker.connection]
        self._discard(run.worker)
        job = run.job
        if run.started is None:
            job.num_starts += 1
            if job.num_starts >= MAX_STARTS:
                raise GradingError(
                    f"{MAX_STARTS} grader workers in a row ended before they took a task",
                    hint="is the machine out of memory? try a smaller grader.num_workers",
                )
            self._queue.appendleft(job)
            return
        job.seconds += time.monotonic() - run.started
        job.num_tries += 1
        if job.num_tries < 2:
            self._queue.append(job)
        else:
            self._replies[job.index] = Reply(answer=None, seconds=job.seconds)

    def _limit(self, job: _Job) -> float:
        share = SECOND_TRY_SHARE if job.num_tries else FIRST_TRY_SHARE
        return share * self._deadline_seconds
