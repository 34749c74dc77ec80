"""What a worker may use: so much memory and time, and no network, files or programs.

No text is ever evaluated as code; these limits are for the day that something goes wrong anyway.
Each is set where the system lets an ordinary process set it.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import struct
import sys
import time
from contextlib import suppress

_SPARE_CPU_SECONDS = 5
_SET_PARENT_DEATH_SIGNAL, _SET_NO_NEW_PRIVILEGES = 1, 38  # prctl(2)
_SET_MODE_FILTER, _ALLOW_SPECULATION = 1, 4  # seccomp(2)
_LOAD_WORD, _JUMP_EQUAL, _JUMP_NOT_LESS, _RETURN = 0x20, 0x15, 0x35, 0x06  # classic BPF
_ALLOWED, _DENIED = 0x7FFF0000, 0x00050000 | 13  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EACCES
_FOREIGN_NUMBERS = 0x40000000
"""From here on x86 numbers its system calls a second time (the x32 interface)."""
_ARCHITECTURES = {
    # name: (audit number, seccomp, (socket, execve, execveat, ptrace, io_uring_setup))
    "x86_64": (0xC000003E, 317, (41, 59, 322, 101, 425)),
    "aarch64": (0xC00000B7, 277, (198, 221, 281, 117, 425)),
}


def die_with_parent(parent: int) -> None:
    """Have Linux kill this process when its parent dies; elsewhere the closed line has to do."""
    if sys.platform == "linux":
        import signal

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it died before it could be watched
            os._exit(1)


def limit_memory(memory_bytes: int) -> None:
    """Cap this process's address space, and let it write no file and leave no core dump."""
    if sys.platform != "win32":
        import resource

        _lower(resource.RLIMIT_AS, memory_bytes)
        _lower(resource.RLIMIT_FSIZE, 0)
        _lower(resource.RLIMIT_CORE, 0)


def limit_cpu(seconds: float) -> None:
    """Let the kernel end this process should nobody be left to kill it at the deadline."""
    if sys.platform != "win32":
        import resource

        soft = math.ceil(time.process_time() + seconds) + _SPARE_CPU_SECONDS
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        if hard == resource.RLIM_INFINITY or soft < hard:
            resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def forbid_sockets_and_programs() -> bool:
    """True where the kernel now refuses both to this process and to all that it will fork.

    A filter on system calls does it (seccomp), on Linux on x86-64 and ARM64. It cannot be undone.
    """
    if sys.platform != "linux" or platform.machine() not in _ARCHITECTURES:
        return False
    if struct.calcsize("P") != 8:  # a 32-bit interpreter uses other numbers
        return False
    audit_number, seccomp, denied = _ARCHITECTURES[platform.machine()]
    filters = _filter_program(audit_number, denied)
    library = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(filters, len(filters))
    program = struct.pack("HP", len(filters) // 8, ctypes.addressof(code))
    if library.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    return not library.syscall(
        ctypes.c_long(seccomp),
        ctypes.c_ulong(_SET_MODE_FILTER),
        ctypes.c_ulong(_ALLOW_SPECULATION),  # a worker holds no secret: no need to run slower
        program,
    )


def _filter_program(audit_number: int, denied: tuple[int, ...]) -> bytes:
    """Classic BPF: an error for the denied calls, leave for all others of this architecture."""
    steps = [
        (_LOAD_WORD, 0, 0, 4),  # seccomp_data.arch
        (_JUMP_EQUAL, 0, len(denied) + 3, audit_number),  # as if for another one: an error
        (_LOAD_WORD, 0, 0, 0),  # seccomp_data.nr
        (_JUMP_NOT_LESS, len(denied) + 1, 0, _FOREIGN_NUMBERS),
        *((_JUMP_EQUAL, len(denied) - n, 0, number) for n, number in enumerate(denied)),
        (_RETURN, 0, 0, _ALLOWED),
        (_RETURN, 0, 0, _DENIED),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _lower(kind: int, limit: int) -> None:
    import resource

    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    with suppress(ValueError, OSError):  # macOS knows the limit on memory and refuses to set it
        resource.setrlimit(kind, (limit, limit))
