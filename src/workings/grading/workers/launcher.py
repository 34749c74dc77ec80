"""Where worker processes come from: a fork server, or fresh interpreters without one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Protocol

from workings.errors import GradingError
from workings.grading.workers import zygote

START_SECONDS = 120.0
"""Most seconds that a fresh interpreter may take to import the libraries on a loaded machine."""


@dataclass(slots=True, eq=False)
class Worker:
    """The parent's end of one worker process."""

    connection: Connection
    pid: int
    num_tasks: int = 0
    process: subprocess.Popen[bytes] | None = None


class Launcher(Protocol):
    """Makes and ends workers; safe to use from any thread."""

    def launch(self) -> Worker:
        """A new worker; raises GradingError where none can be started."""
        ...

    def retire(self, worker: Worker) -> None:
        """Kill `worker`, whatever it is doing, and leave nothing of it behind."""
        ...

    def close(self) -> None:
        """End every worker."""
        ...


class ForkServer:
    """Workers forked from a process that has already imported everything."""

    def __init__(self, *, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> Worker:
        """A worker forked in milliseconds; the first one waits for the server to start."""
        with self._lock:
            for attempt in range(2):
                control = self._control or self._start()
                ours, theirs = Pipe()
                try:
                    pid = self._fork(control, theirs)
                except OSError as error:  # the server is gone: start another, once
                    ours.close()
                    self._stop()
                    if attempt:
                        raise GradingError(f"the grader's fork server ended: {error}") from error
                    continue
                finally:
                    theirs.close()
                if pid < 0:
                    ours.close()
                    raise GradingError(
                        f"the grader cannot fork a worker: {os.strerror(-pid)}",
                        hint="lower grader.num_workers or raise the limit on processes",
                    )
                return Worker(ours, pid)
        raise AssertionError("unreachable")

    def retire(self, worker: Worker) -> None:
        """Kill one worker; the server reaps it."""
        worker.connection.close()
        with self._lock, suppress(OSError):  # a server that is gone took its workers with it
            if self._control is not None:
                self._control.sendall(zygote.FRAME.pack(zygote.KILL, worker.pid))

    def close(self) -> None:
        """End the server, which kills its workers."""
        if self._owner != os.getpid():
            return  # a forked copy of the parent owns none of it
        with self._lock:
            self._stop()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = _python(
                f"from workings.grading.workers.zygote import main; "
                f"main({theirs.fileno()}, {self._memory_bytes})",
                theirs.fileno(),
            )
        self._control = ours
        ours.settimeout(START_SECONDS)
        try:
            frame = zygote.receive_frame(ours)
            reason = "it ended at once"
            if frame is not None and frame[0] == zygote.FAILED:
                reason = ours.recv(frame[1]).decode(errors="replace")
        except TimeoutError:
            frame, reason = None, f"no sign of life for {START_SECONDS:.0f} s"
        if frame is None or frame[0] != zygote.READY:
            self._stop()
            raise GradingError(
                f"the grader's fork server did not start: {reason}",
                hint="run `python -c 'import math_verify'` in this environment to see why",
            )
        return ours

    def _fork(self, control: socket.socket, theirs: Connection) -> int:
        socket.send_fds(control, [zygote.FRAME.pack(zygote.FORK, 0)], [theirs.fileno()])
        frame = zygote.receive_frame(control)
        if frame is None:
            raise ConnectionResetError("it closed its socket")
        return frame[1]

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            _end(self._process)
            self._process = None


class FreshInterpreters:
    """Workers that are interpreters of their own; slow to start, and possible everywhere."""

    def __init__(self, *, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._workers: set[Worker] = set()

    def launch(self) -> Worker:
        """A worker that takes its first task once it has imported everything."""
        with self._lock:  # no second child may inherit this one's end of the pipe
            ours, theirs = Pipe()
            handle = theirs.fileno()
            with theirs:
                process = _python(
                    f"from workings.grading.workers.worker import main; "
                    f"main({handle}, {self._memory_bytes})",
                    handle,
                )
            worker = Worker(ours, process.pid, process=process)
            self._workers.add(worker)
            return worker

    def retire(self, worker: Worker) -> None:
        """Kill one worker."""
        worker.connection.close()
        with self._lock:
            self._workers.discard(worker)
        if worker.process is not None:
            worker.process.kill()
            worker.process.wait()

    def close(self) -> None:
        """Kill all workers."""
        if self._owner != os.getpid():
            return
        for worker in list(self._workers):
            self.retire(worker)


def default_launcher(*, memory_bytes: int) -> Launcher:
    """The fork server where the system can fork, else fresh interpreters."""
    if hasattr(os, "fork"):
        return ForkServer(memory_bytes=memory_bytes)
    return FreshInterpreters(memory_bytes=memory_bytes)


def _python(code: str, handle: int) -> subprocess.Popen[bytes]:
    """An interpreter that sees the same modules, inherits `handle` and never runs the main script.

    Ctrl-C reaches the parent alone, and hashes are fixed so that a verdict does not depend on them.
    """
    path = [entry for entry in sys.path if isinstance(entry, str)]
    if sys.platform == "win32":
        os.set_handle_inheritable(handle, True)
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}; {code}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        close_fds=sys.platform != "win32",
        pass_fds=() if sys.platform == "win32" else (handle,),
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that has been told to end; kill it should it not."""
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
