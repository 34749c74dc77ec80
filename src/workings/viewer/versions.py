"""When a file is still the one that something was made from."""

from __future__ import annotations

from pathlib import Path

Version = tuple[str, int, int]


def version_of(path: Path) -> Version:
    """Path, time of change in nanoseconds, and size: equal while the file has not changed."""
    state = path.stat()
    return str(path), state.st_mtime_ns, state.st_size
