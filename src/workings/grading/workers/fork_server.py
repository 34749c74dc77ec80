"""Workers forked from a process that has already imported everything."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress

from workings.errors import GradingError
from workings.grading.workers import zygote
from workings.grading.workers.launcher import Worker, channel_pair, end, start_python

_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


class ForkServer:
    """The parent's side of the fork server, which starts on first need.

    Orders are sent and not waited for: a worker says on its own channel that it is there.
    """

    def __init__(self, *, handler: str, memory_bytes: int) -> None:
        self._handler = handler
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._numbers = itertools.count()
        self.workers: set[Worker] = set()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._has_been_ready = False
        self._first_number = 0

    def launch(self) -> Worker:
        """A worker that will be there in milliseconds, once the server has started."""
        with self._lock:
            for _ in range(2):
                number = next(self._numbers)
                if self._control is None:
                    self._first_number = number
                control = self._control or self._start()
                ours, theirs = channel_pair()
                worker = Worker(ours, number)
                self.workers.add(worker)
                frame = zygote.FRAME.pack(zygote.FORK, worker.number)
                with theirs, suppress(OSError):
                    socket.send_fds(control, [frame], [theirs.fileno()], _NO_SIGNAL)
                    return worker
                self.workers.discard(worker)
                ours.close()
                self._raise_fault()
                self._stop()  # it was killed: start another, once
        raise GradingError("the grader's fork server ends as soon as it is started")

    def retire(self, worker: Worker) -> None:
        """Have the server kill one worker, and wait for it."""
        worker.channel.close()
        with self._lock, suppress(OSError):  # a server that is gone took its workers with it
            self.workers.discard(worker)
            if self._control is not None:
                self._control.sendall(zygote.FRAME.pack(zygote.KILL, worker.number), _NO_SIGNAL)

    def check(self) -> None:
        """Raise GradingError where the server did not start."""
        with self._lock:
            self._raise_fault()

    def has_lost(self, worker: Worker) -> bool:
        """True where the server that made `worker` is dead: it took the worker along."""
        with self._lock:
            if worker.number < self._first_number or self._control is None:
                return True
            self._read_fault()  # after its first word the server says no more
            try:
                return self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

    def renewed(self) -> ForkServer:
        """Another server, for a forked copy of this process."""
        for worker in self.workers:
            worker.channel.close()
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.poll()  # it is no child of the copy: forget it
        return ForkServer(handler=self._handler, memory_bytes=self._memory_bytes)

    def close(self) -> None:
        """End the server, which kills its workers."""
        if self._owner != os.getpid():
            return  # a forked copy of the parent owns none of it
        with self._lock:
            self._stop()
            for worker in self.workers:
                worker.channel.close()
            self.workers.clear()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        handle = theirs.fileno()
        code = (
            f"from workings.grading.workers.zygote import main; "
            f"main({handle}, {os.getpid()}, {self._handler!r}, {self._memory_bytes})"
        )
        try:
            self._process = start_python(code, handle)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._control = ours
        self._has_been_ready = False
        return ours

    def _read_fault(self) -> str | None:
        """Why the server did not start; None where it did, or is still about to."""
        if self._control is None or self._has_been_ready:
            return None
        self._control.settimeout(0)
        try:
            frame = _first_frame(self._control)
            if frame is None:
                return "it ended at once"
            if frame[0] == zygote.FAILED:
                return self._control.recv(frame[1]).decode(errors="replace")
            self._has_been_ready = True
        except BlockingIOError:
            pass
        finally:
            self._control.settimeout(None)
        return None

    def _raise_fault(self) -> None:
        reason = self._read_fault()
        if reason is not None:
            self._stop()
            raise GradingError(
                f"the grader's workers do not start: {reason}",
                hint=f"run `python -c 'import {self._handler}'` in this environment to see why",
            )

    def _stop(self) -> None:
        if self._process is not None and self._read_fault() is None and not self._has_been_ready:
            self._process.kill()  # it is still importing and would not listen
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            end(self._process)
            self._process = None


def _first_frame(control: socket.socket) -> tuple[bytes, int, Sequence[int]] | None:
    """What the server said first; an order that it never read comes before that, as an error."""
    with suppress(ConnectionResetError):
        return zygote.receive_frame(control)
    return zygote.receive_frame(control)
