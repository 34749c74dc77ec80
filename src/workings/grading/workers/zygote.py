"""The fork server: imports the slow libraries once, then forks a worker in milliseconds.

It talks over one socket in frames of an operation and a number. It alone waits for the workers,
and only when told, so a process id can never mean another process. When the socket closes, by
`close` or because the parent died, it kills every worker and ends.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from workings.grading.workers.worker import die_with_parent, open_connection, serve

FRAME = struct.Struct("!cq")
READY, FAILED, FORK, FORKED, KILL = b"R", b"X", b"F", b"P", b"K"


def main(control_handle: int, memory_bytes: int) -> None:
    """Serve the control socket until it closes."""
    control = socket.socket(fileno=control_handle)
    try:
        from workings.grading.peer import warm_up

        warm_up()
    except Exception as error:
        text = f"{type(error).__name__}: {error}".encode(errors="replace")
        control.sendall(FRAME.pack(FAILED, len(text)) + text)
        return
    gc.collect()
    gc.freeze()  # what is loaded now is shared by all workers and never collected
    control.sendall(FRAME.pack(READY, os.getpid()))
    workers: set[int] = set()
    try:
        while _serve_once(control, workers, memory_bytes):
            pass
    finally:
        for pid in workers:
            _kill(pid)


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


def _serve_once(control: socket.socket, workers: set[int], memory_bytes: int) -> bool:
    """Do one operation; False when there will be no more."""
    try:
        frame = receive_frame(control)
    except OSError:
        return False
    if frame is None:
        return False
    operation, number, handles = frame
    if operation == FORK:
        pid = _fork(control, handles[0], memory_bytes)
        if pid > 0:
            workers.add(pid)
        with suppress(OSError):
            control.sendall(FRAME.pack(FORKED, pid))
    elif operation == KILL and number in workers:
        workers.discard(number)
        _kill(number)
    return True


def _fork(control: socket.socket, handle: int, memory_bytes: int) -> int:
    """The id of a new worker that owns `handle`; minus the error number where none can be made."""
    try:
        pid = os.fork()
    except OSError as error:
        os.close(handle)
        return -(error.errno or 1)
    if pid:
        os.close(handle)
        return pid
    try:
        control.close()
        die_with_parent()
        serve(open_connection(handle), memory_bytes)
    finally:
        os._exit(0)  # never run the fork server's own clean-up in a worker


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
