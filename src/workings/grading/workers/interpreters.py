"""Workers that are interpreters of their own; slow to start, and possible everywhere."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading

from workings.grading.workers.launcher import Worker, channel_pair, start_python


class FreshInterpreters:
    """Each worker imports everything for itself before its first task."""

    def __init__(self, *, handler: str, memory_bytes: int) -> None:
        self._handler = handler
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._numbers = itertools.count()
        self.workers: set[Worker] = set()
        self._dying: list[subprocess.Popen[bytes]] = []

    def launch(self) -> Worker:
        """A worker that takes its first task once it has imported everything."""
        with self._lock:  # no second child may inherit this one's end of the channel
            ours, theirs = channel_pair()
            handle = theirs.fileno()
            code = (
                f"from workings.grading.workers.worker import main; "
                f"main({handle}, {self._handler!r}, {self._memory_bytes})"
            )
            try:
                process = start_python(code, handle)
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            worker = Worker(ours, next(self._numbers), process=process)
            self.workers.add(worker)
            return worker

    def retire(self, worker: Worker) -> None:
        """Kill one worker; it is waited for later, since freeing its memory may take long."""
        worker.channel.close()
        with self._lock:
            self.workers.discard(worker)
            if worker.process is not None:
                worker.process.kill()
                self._dying.append(worker.process)
            self._dying = [process for process in self._dying if process.poll() is None]

    def check(self) -> None:
        """Nothing to say: each worker says for itself why it does not start."""

    def has_lost(self, worker: Worker) -> bool:
        """False: they live and die each for itself."""
        return False

    def renewed(self) -> FreshInterpreters:
        """Others, for a forked copy of this process."""
        for worker in self.workers:
            worker.channel.close()
            if worker.process is not None:
                worker.process.poll()  # it is no child of the copy: forget it
        for process in self._dying:
            process.poll()
        return FreshInterpreters(handler=self._handler, memory_bytes=self._memory_bytes)

    def close(self) -> None:
        """Kill all workers."""
        if self._owner != os.getpid():
            return
        for worker in list(self.workers):
            self.retire(worker)
        for process in self._dying:
            process.wait()
