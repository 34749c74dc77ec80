"""A lock that one process holds while it writes, and that says which process that is."""

from __future__ import annotations

import errno
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workings.errors import DataError

LOCK_FILE = ".lock"
"""In the folder of a run, while a process writes there."""
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What a file system says that knows no locks; nothing is locked there."""
WAIT = "wait for it, or stop it"


@contextmanager
def alone_in(place: Path, target: Path, *, hint: str = WAIT) -> Iterator[None]:
    """Hold the lock on `place`, which ends with the process, however that ends.

    `place` is a folder, or a file that is made if need be: it stays, and says who holds the lock.
    DataError where another process holds it, which writes `target`.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    names_holder = not place.is_dir()
    try:
        lock = os.open(place, os.O_RDWR | os.O_CREAT if names_holder else os.O_RDONLY, 0o666)
    except PermissionError as error:
        raise DataError(
            f"{place} cannot be written, so {target} is not this user's to write",
            hint="choose another folder, or ask its owner for the rights",
        ) from error
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise DataError(
            f"{place} cannot be held: too many files are open",
            hint="every evaluation of a grid holds its folder; allow more (`ulimit -n 8192`), or "
            "start fewer at once",
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(
                f"another process is writing {target}{_holder(place)}", hint=hint
            ) from error
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        if names_holder:
            _name_holder(lock, f"process {os.getpid()} on {platform.node()}\n")
        try:
            yield
        finally:
            if names_holder:
                _name_holder(lock, "")
            with suppress(OSError):  # a forked copy of this process would hold it on
                fcntl.flock(lock, fcntl.LOCK_UN)
    finally:
        os.close(lock)


@contextmanager
def run_alone(
    folder: Path, *, instead: str | None = "start another run beside it with name=..."
) -> Iterator[None]:
    """Hold the folder of a run, which is made; DataError says which process has it.

    `instead` is what the user can do but wait for that process, or stop it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hint = WAIT if instead is None else f"wait for it, stop it, or {instead}"
    with alone_in(folder / LOCK_FILE, folder, hint=hint):
        yield


def _name_holder(lock: int, text: str) -> None:
    """Write into the file who holds it; that is information only, and a full disk ends no run."""
    with suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, text.encode(), 0)


def _holder(place: Path) -> str:
    """Who holds the lock on a file, and since when; nothing for a folder."""
    if place.is_dir():
        return ""
    who = place.read_text(encoding="utf-8").strip()
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(place.stat().st_mtime))
    return f": {who}, since {since}" if who else ""
