"""Where worker processes come from: a fork server, or fresh interpreters without one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from workings.errors import GradingError
from workings.grading.workers.channel import SEND_SECONDS, Channel

START_SECONDS = 120.0
"""Most seconds that an interpreter may take to import the libraries on a loaded machine."""
_IGNORED_VARIABLES = ("PYTHONWARNINGS", "PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONDEVMODE")


@dataclass(slots=True, eq=False)
class Worker:
    """The parent's end of one worker process; `pid` is None until it says that it is ready."""

    channel: Channel
    number: int
    pid: int | None = None
    fault: str | None = None
    num_tasks: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def is_ready(self) -> bool:
        """True once it has imported everything and waits for tasks."""
        return self.pid is not None

    def greet(self, message: bytes) -> None:
        """Take in the first message: a process id, or why there is no process."""
        content = json.loads(message)
        self.pid, self.fault = content.get("pid"), content.get("fault")

    def is_usable(self) -> bool:
        """False where this worker, which has no task, is dead or says what nobody asked."""
        if not self.channel.is_readable():
            return True
        try:
            messages = self.channel.receive()
            if self.is_ready or len(messages) != 1:
                return False
            self.greet(messages[0])
        except (EOFError, OSError, ValueError, AttributeError):
            return False
        return self.is_ready


class Launcher(Protocol):
    """Makes and ends workers; safe to use from any thread.

    `workers` are those that were launched and not retired.
    """

    workers: set[Worker]

    def launch(self) -> Worker:
        """A new worker, which may still be starting; GradingError where none can be had."""
        ...

    def retire(self, worker: Worker) -> None:
        """Kill `worker`, whatever it is doing, and leave nothing of it behind."""
        ...

    def check(self) -> None:
        """Raise GradingError where it is known that no worker can start here at all."""
        ...

    def has_lost(self, worker: Worker) -> bool:
        """True where `worker` died, or will at once, because what made it is dead."""
        ...

    def renewed(self) -> Launcher:
        """One like it for a forked copy of the process, which this one does not belong to."""
        ...

    def close(self) -> None:
        """End every worker."""
        ...


def channel_pair() -> tuple[Channel, socket.socket]:
    """Our end, and the worker's."""
    ours, theirs = socket.socketpair()
    return Channel(ours, timeout=SEND_SECONDS), theirs


def start_python(code: str, handle: int) -> subprocess.Popen[bytes]:
    """An interpreter that sees the same modules, inherits `handle` and never runs the main script.

    Ctrl-C reaches the parent alone, and hashes are fixed so that a verdict does not depend on them.
    """
    path = [entry for entry in sys.path if isinstance(entry, str)]
    environment = {
        name: value for name, value in os.environ.items() if name not in _IGNORED_VARIABLES
    }
    if sys.platform == "win32":
        os.set_handle_inheritable(handle, True)
    try:
        return subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}; {code}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            close_fds=sys.platform != "win32",
            pass_fds=() if sys.platform == "win32" else (handle,),
            start_new_session=True,
        )
    except OSError as error:
        raise GradingError(
            f"the grader cannot start a process of {sys.executable or 'this Python'!r}: {error}",
            hint="sys.executable must be the path of a Python interpreter",
        ) from error


def end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that has been told to end; kill it should it not."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
        return
    process.kill()
    process.wait()
