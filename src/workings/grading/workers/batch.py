"""One caller's tasks on their way through a pool: queued, sent, answered or given up."""

from __future__ import annotations

import json
import selectors
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

from workings.errors import GradingError
from workings.grading.workers.launcher import START_SECONDS, Worker

FIRST_TRY_SHARE, SECOND_TRY_SHARE = 0.4, 0.55
"""How one deadline is divided, so that a second try on an idle worker still ends within it."""
MAX_STARTS = 5
"""Workers that may end before they take one and the same task until the caller is told."""
FEW_SENT, MANY_SENT = 2, 8
"""Tasks with one worker: the one it works on, and some that spare it a wait for the caller.

Few while few are queued, since those that are sent cannot go to another worker any more.
"""
LONGEST_REST = 0.005
"""Most seconds for which the caller looks away while no worker is about to run out of tasks."""
LONGEST_SENT_AHEAD = 8192
"""Most bytes of a task that waits in the channel, which must never fill up."""

_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What became of a task.

    Attributes:
        answer: the worker's, or None where it was given up.
        seconds: of work on the task, all tries together, without its time in the queue.
        reason: why it was given up, in one sentence.
    """

    answer: Mapping[str, Any] | None
    seconds: float
    reason: str | None = None


class Lender(Protocol):
    """The pool, as a batch sees it."""

    def lend(self, borrower: Batch, *, block: bool) -> Worker | None:
        """A worker for `borrower` alone; None where `block` is False and none is free."""
        ...

    def is_wanted(self) -> bool:
        """True where others wait for a worker: what is lent is to come back soon."""
        ...

    def give_back(self, worker: Worker) -> None:
        """Take back a worker that has nothing to do."""
        ...

    def discard(self, worker: Worker) -> None:
        """Kill a lent worker."""
        ...

    def release(self, borrower: Batch) -> None:
        """Discard whatever `borrower` still has."""
        ...

    def check(self) -> None:
        """Raise GradingError where it is known that no worker can start."""
        ...

    def has_lost(self, worker: Worker) -> bool:
        """True where `worker` died because what made it is dead: no fault of its task."""
        ...


@dataclass(slots=True, eq=False)
class _Job:
    index: int
    task: Mapping[str, object]
    message: bytes
    num_tries: int = 0
    num_starts: int = 0
    seconds: float = 0.0


@dataclass(slots=True, eq=False)
class _Line:
    """A lent worker and the jobs it was sent; it works on the first, from `taken` on."""

    worker: Worker
    taken: float
    expires: float
    jobs: deque[_Job] = field(default_factory=deque)


class Batch:
    """The state of one call: every job is in exactly one of queue, lines and replies.

    Use it in a `with` block: its end, by an exception too, gives all workers back.
    """

    def __init__(
        self, lender: Lender, *, deadline_seconds: float, thread: threading.Thread
    ) -> None:
        self.thread = thread
        self._lender = lender
        self._deadline_seconds = deadline_seconds
        self._num_jobs = 0
        self._queue: deque[_Job] = deque()
        self._lines: dict[Worker, _Line] = {}
        self._replies: dict[int, Reply] = {}
        self._selector = _Selector()
        self._usual_seconds = 0.0
        self.is_over = False

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.is_over = True  # from here on the pool takes its workers back should this be cut short
        self._lender.release(self)

    def submit(self, task: Mapping[str, object]) -> None:
        """Add a task, and send it if that needs no waiting."""
        job = _Job(self._num_jobs, task, b"")
        job.message = self._encoded(job)
        self._queue.append(job)
        self._num_jobs += 1
        self.serve()

    def serve(self) -> None:
        """Do what can be done without waiting; call it between other pieces of work."""
        if self._lines or self._queue:
            self._collect(block=False)
            self._send_queued(block=False)

    def replies(self) -> list[Reply]:
        """One reply per task, in order, once all are there."""
        while self._queue or self._lines:
            self._send_queued(block=True)
            self._collect(block=True)
        return [self._replies[index] for index in range(self._num_jobs)]

    def _send_queued(self, *, block: bool) -> None:
        """Send what can be sent: to workers of its own first, then behind jobs at work."""
        while self._queue:
            worker = self._lender.lend(self, block=block and not self._lines)
            if worker is None:
                break
            now = time.monotonic()
            self._lines[worker] = line = _Line(worker, now, now + START_SECONDS)
            self._selector.register(worker.channel, selectors.EVENT_READ, line)
            self._send(line, self._queue.popleft())
        if not self._queue or self._lender.is_wanted():
            return
        most = min(FEW_SENT + len(self._queue) // max(len(self._lines), 1), MANY_SENT)
        for line in sorted(self._lines.values(), key=lambda line: len(line.jobs)):
            while self._queue and len(line.jobs) < most and _may_follow(self._queue[0], line):
                if not self._send(line, self._queue.popleft()):
                    break

    def _send(self, line: _Line, job: _Job) -> bool:
        """False where the worker turned out to be dead; its jobs are then queued again."""
        if not line.jobs and line.worker.is_ready:
            self._start_clock(line, job)
        line.jobs.append(job)
        try:
            line.worker.channel.send(job.message)
        except OSError:
            self._fail(line, was_idle=len(line.jobs) == 1)
            return False
        return True

    def _collect(self, *, block: bool) -> None:
        """Act on what the workers say, and on what they do not say in time."""
        if not self._lines:
            return
        timeout = 0.0
        if block:
            self._rest()
            soonest = min(line.expires for line in self._lines.values())
            timeout = max(soonest - time.monotonic(), 0.0)
        for key, _ in self._selector.select(timeout):
            self._receive(key.data)
        now = time.monotonic()
        for line in [line for line in self._lines.values() if line.expires <= now]:
            if line.worker.channel.is_readable():  # an answer that came just in time counts
                self._receive(line)
            if line.worker in self._lines and line.expires <= now:
                self._fail(line)

    def _rest(self) -> None:
        """Sleep for half the time that the workers' tasks will last.

        Then there are several answers to take at once: to wake up for each costs as much as to
        send it.
        """
        fewest = min(len(line.jobs) for line in self._lines.values())
        if fewest > FEW_SENT:
            time.sleep(min(0.5 * (fewest - 1) * self._usual_seconds, LONGEST_REST))

    def _receive(self, line: _Line) -> None:
        try:
            for message in line.worker.channel.receive():
                self._take_in(line, message)
        except (EOFError, OSError, ValueError, AttributeError, LookupError, TypeError):
            self._fail(line)  # it is dead, or what it says is no answer to what it was sent
            return
        if not line.jobs:
            self._forget(line)
            self._lender.give_back(line.worker)

    def _take_in(self, line: _Line, message: bytes) -> None:
        worker = line.worker
        if not worker.is_ready:
            worker.greet(message)
            if worker.fault is not None:
                raise EOFError(worker.fault)
            self._start_clock(line, line.jobs[0])
            return
        job = line.jobs[0]
        answer = json.loads(message)
        seconds = float(answer.pop("seconds"))
        self._usual_seconds += 0.1 * (seconds - self._usual_seconds)
        self._replies[job.index] = Reply(answer=answer, seconds=job.seconds + seconds)
        line.jobs.popleft()
        worker.num_tasks += 1
        if line.jobs:
            self._start_clock(line, line.jobs[0])

    def _fail(self, line: _Line, *, was_idle: bool = False) -> None:
        """The worker is dead or out of time: kill it; its first job may be tried once more.

        That comes after the other jobs. A worker that ended before it took the job is no try, nor
        is one that ended with the fork server.
        """
        worker = line.worker
        now = time.monotonic()
        ran_out = now >= line.expires
        is_no_try = was_idle or not worker.is_ready
        if not is_no_try and not ran_out:
            is_no_try = self._lender.has_lost(worker)
        self._forget(line)
        if not worker.is_ready:
            self._lender.check()
            if worker.fault is None:
                worker.is_usable()  # it may have said why it ends, and sending to it failed first
        self._lender.discard(worker)
        if not line.jobs:
            return  # it had answered all, and then said more
        job = line.jobs.popleft()
        self._queue.extendleft(reversed(line.jobs))
        if is_no_try:
            self._count_start(job, worker, line.expires)
            return
        job.seconds += now - line.taken
        job.num_tries += 1
        if job.num_tries < 2:
            job.message = self._encoded(job)
            self._queue.append(job)
            return
        self._replies[job.index] = Reply(
            answer=None,
            seconds=job.seconds,
            reason=f"no verdict within {self._deadline_seconds:g} s"
            if ran_out
            else "the process that compared them failed, twice",
        )

    def _count_start(self, job: _Job, worker: Worker, expires: float) -> None:
        if not worker.is_ready and time.monotonic() >= expires:
            raise GradingError(
                f"a grader worker was not ready after {START_SECONDS:.0f} s",
                hint="is this machine overloaded? try a smaller grader.num_workers",
            )
        job.num_starts += 1
        if job.num_starts >= MAX_STARTS:
            reason = f": {worker.fault}" if worker.fault else ""
            raise GradingError(
                f"{MAX_STARTS} grader workers in a row ended before they took a task{reason}",
                hint="is the machine out of memory or processes? try a smaller grader.num_workers",
            )
        self._queue.appendleft(job)

    def _forget(self, line: _Line) -> None:
        del self._lines[line.worker]
        self._selector.unregister(line.worker.channel)

    def _start_clock(self, line: _Line, job: _Job) -> None:
        """The worker takes `job` now: it was idle, or has just answered the one before."""
        line.taken = time.monotonic()
        line.expires = line.taken + self._limit(job)

    def _limit(self, job: _Job) -> float:
        share = SECOND_TRY_SHARE if job.num_tries else FIRST_TRY_SHARE
        return share * self._deadline_seconds

    def _encoded(self, job: _Job) -> bytes:
        return json.dumps({**job.task, "seconds": self._limit(job)}).encode()


def _may_follow(job: _Job, line: _Line) -> bool:
    """True where `job` may wait behind the jobs of `line`; a second try gets a worker alone."""
    if job.num_tries or line.jobs[0].num_tries:
        return False
    return len(job.message) <= LONGEST_SENT_AHEAD
