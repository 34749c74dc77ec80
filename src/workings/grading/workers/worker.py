"""A worker process: takes one task at a time from its pipe, answers, and ends with its parent.

A task is a JSON object {"answer", "gold", "seconds"}. The worker first sends `STARTED`, from which
the parent counts the deadline, then a JSON object {"verdict", "tier", "detail"}.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection

from workings.types import Verdict

STARTED = b"started"

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_SPARE_CPU_SECONDS = 5


def serve(connection: Connection, memory_bytes: int) -> None:
    """Answer tasks until the other end of `connection` is closed."""
    _limit_memory(memory_bytes)
    while True:
        try:
            task = json.loads(connection.recv_bytes())
            _limit_cpu(task["seconds"])
            connection.send_bytes(STARTED)
            connection.send_bytes(json.dumps(_answer(task)).encode())
        except (EOFError, OSError):
            return


def main(handle: int, memory_bytes: int) -> None:
    """Entry point of a worker that was not forked; `handle` is its end of the pipe."""
    from workings.grading.peer import warm_up

    warm_up()
    serve(open_connection(handle), memory_bytes)


def open_connection(handle: int) -> Connection:
    """The connection behind an inherited file descriptor (on Windows: pipe handle)."""
    if sys.platform == "win32":
        from multiprocessing.connection import PipeConnection

        return PipeConnection(handle)
    return Connection(handle)


def die_with_parent() -> None:
    """Have Linux kill this process when its parent dies; elsewhere the closed pipe has to do."""
    if sys.platform == "linux":
        import signal

        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)


def _answer(task: dict[str, str]) -> dict[str, str | None]:
    from workings.grading.peer import peer_says_equal

    try:
        equal = peer_says_equal(task["answer"], task["gold"])
    except (MemoryError, RecursionError) as error:
        return {"verdict": Verdict.REFUSED, "tier": None, "detail": repr(error)}
    except Exception as error:  # whatever a parser does with model text must not end the worker
        return {"verdict": Verdict.INTERNAL_ERROR, "tier": None, "detail": repr(error)[:500]}
    if equal:
        return {"verdict": Verdict.EQUAL, "tier": "peer", "detail": None}
    return {"verdict": Verdict.UNDECIDED, "tier": None, "detail": None}


def _limit_memory(memory_bytes: int) -> None:
    if sys.platform != "win32":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        with suppress(ValueError, OSError):  # macOS knows the limit and refuses to set it
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _limit_cpu(seconds: float) -> None:
    """Let the kernel end this process should nobody be left to kill it at the deadline."""
    if sys.platform != "win32":
        import resource

        soft = math.ceil(time.process_time() + seconds) + _SPARE_CPU_SECONDS
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        if hard == resource.RLIM_INFINITY or soft < hard:
            resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
