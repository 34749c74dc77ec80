"""What the tests of the grader's processes ask the system."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """True as soon as the condition holds; False where it does not in that time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return condition()


def is_gone(pid: int) -> bool:
    """True where no process of that id runs; one that is dead and not waited for is gone."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def all_gone(pids: set[int]) -> bool:
    """True where none of the processes runs."""
    return all(map(is_gone, pids))


def descendants(pid: int | None = None) -> set[int]:
    """Processes under that one, or under this one: the fork servers and their workers."""
    return {child.pid for child in psutil.Process(pid).children(recursive=True)}


def start_script(folder: Path, code: str) -> subprocess.Popen[str]:
    """A Python process, leader of a session, that runs the code; the caller waits for it."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code))
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_script(folder: Path, code: str) -> str:
    """What a Python process that runs the code writes to stdout; it must succeed."""
    process = start_script(folder, code)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output
