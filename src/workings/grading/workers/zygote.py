"""The fork server: imports the slow libraries once, then forks a worker in milliseconds.

It takes orders over one socket in frames of an operation and a number that the parent gave to the
worker. It alone waits for the workers, and only after it was told to kill them, so a process id can
never mean another process. It ends, and every worker with it, when the socket closes or the parent
dies; the latter is watched apart, since copies of the socket live on in what the parent has forked.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from workings.grading.workers.isolation import die_with_parent
from workings.grading.workers.worker import Handler, describe, load_handler, open_channel, serve

FRAME = struct.Struct("!cq")
READY, FAILED, FORK, KILL = b"R", b"X", b"F", b"K"

_LOOK_MILLISECONDS = 1000
"""Between two looks at whether the parent lives, where the system cannot say it unasked."""
_REAP_MILLISECONDS = 20


def main(control_handle: int, parent: int, handler_name: str, memory_bytes: int) -> None:
    """Serve the control socket until it closes or `parent` is dead."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=control_handle)
    try:
        handler = load_handler(handler_name)
    except Exception as error:
        text = describe(error).encode(errors="replace")
        control.sendall(FRAME.pack(FAILED, len(text)) + text)
        return
    with suppress(OSError):
        control.sendall(FRAME.pack(READY, 0))
    _Server(control, parent, handler, memory_bytes).run()


def receive_frame(control: socket.socket) -> tuple[bytes, int, Sequence[int]] | None:
    """(operation, number, file descriptors), or None when the other end is closed."""
    data, handles, _, _ = socket.recv_fds(control, FRAME.size, 1)
    while data and len(data) < FRAME.size:
        more = control.recv(FRAME.size - len(data))
        if not more:
            return None
        data += more
    if not data:
        return None
    operation, number = FRAME.unpack(data)
    return operation, number, handles


class _Server:
    """The workers by the parent's numbers, and those that were killed and not yet waited for."""

    def __init__(
        self, control: socket.socket, parent: int, handler: Handler, memory_bytes: int
    ) -> None:
        self._control = control
        self._parent = parent
        self._handler = handler
        self._memory_bytes = memory_bytes
        self._workers: dict[int, int] = {}
        self._dying: set[int] = set()
        self._watched = _watch(parent)

    def run(self) -> None:
        """Serve until there is nobody left to serve."""
        watch = select.poll()
        watch.register(self._control, select.POLLIN)
        if self._watched is not None:
            watch.register(self._watched, select.POLLIN)
        try:
            while os.getppid() == self._parent:
                ready = watch.poll(_REAP_MILLISECONDS if self._dying else _LOOK_MILLISECONDS)
                if any(handle == self._watched for handle, _ in ready):
                    return
                if ready and not self._obey():
                    return
                self._reap()
        finally:
            for pid in (*self._workers.values(), *self._dying):
                _kill(pid)
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _obey(self) -> bool:
        """Do one operation; False when there will be no more."""
        try:
            frame = receive_frame(self._control)
        except OSError:
            return False
        if frame is None:
            return False
        operation, number, handles = frame
        if operation == FORK:
            self._fork(number, handles[0])
        elif operation == KILL and number in self._workers:
            pid = self._workers.pop(number)
            _kill(pid)
            self._dying.add(pid)  # freeing its memory may take long: the next fork does not wait
        return True

    def _fork(self, number: int, handle: int) -> None:
        """A new worker, which owns `handle`; or the reason for there being none, said on it."""
        channel = open_channel(handle)
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            with suppress(OSError):
                channel.send(json.dumps({"fault": f"cannot fork: {error.strerror}"}).encode())
            channel.close()
            return
        if pid:
            channel.close()
            self._workers[number] = pid
            return
        try:
            self._control.close()
            if self._watched is not None:
                os.close(self._watched)
            die_with_parent(server)
            serve(channel, self._handler, self._memory_bytes)
        finally:
            os._exit(0)  # never run the fork server's own clean-up in a worker

    def _reap(self) -> None:
        for pid in list(self._dying):
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._dying.discard(pid)


def _watch(pid: int) -> int | None:
    """A descriptor that is readable once that process is dead; None where there is none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
