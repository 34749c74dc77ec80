"""One process at a time, and who it is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from processes import start_script, wait_until
from workings.errors import DataError
from workings.tracking.alone import alone_in

HOLDING = """
import time
from pathlib import Path
from workings.tracking.alone import alone_in
with alone_in(Path({place!r}), Path("target")):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_told_who_holds_the_lock_and_a_kill_frees_it(tmp_path: Path) -> None:
    place = tmp_path / ".lock"
    process = start_script(tmp_path, HOLDING.format(place=str(place)))
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(DataError) as caught, alone_in(place, Path("target"), hint="wait"):
            pass
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=20)
    told = f"another process is writing target: process {process.pid} on {os.uname().nodename}, "
    assert caught.value.message.startswith(f"{told}since 20")
    assert caught.value.hint == "wait"
    with alone_in(place, Path("target")):
        assert f"process {os.getpid()} on " in place.read_text()
    assert place.read_text() == ""


def test_a_folder_is_held_without_a_file(tmp_path: Path) -> None:
    with alone_in(tmp_path, Path("target")):
        with pytest.raises(DataError) as caught, alone_in(tmp_path, Path("target")):
            pass
        assert caught.value.message == "another process is writing target"
    with alone_in(tmp_path, Path("target")):
        assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_block_frees_the_lock(tmp_path: Path) -> None:
    place = tmp_path / ".lock"
    with pytest.raises(RuntimeError), alone_in(place, tmp_path):
        raise RuntimeError
    with alone_in(place, tmp_path):
        pass


def test_a_forked_copy_does_not_hold_it_on(tmp_path: Path) -> None:
    read, write = os.pipe()
    with alone_in(tmp_path / ".lock", tmp_path):
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)  # until the parent closes its end
            os._exit(0)
    os.close(read)
    try:
        with alone_in(tmp_path / ".lock", tmp_path):
            pass
    finally:
        os.close(write)
        assert wait_until(lambda: os.waitpid(child, os.WNOHANG)[0] == child)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied"), "run is not this user's to write"),
        (OSError(24, "Too many open files"), "cannot be held: too many files are open"),
    ],
)
def test_a_lock_that_cannot_be_had_is_an_error(
    error: OSError, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object) -> int:
        raise error

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(DataError) as caught, alone_in(tmp_path / ".lock", tmp_path / "run"):
        pass
    assert message in caught.value.message


def test_a_full_disk_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    place = tmp_path / ".lock"
    with alone_in(place, tmp_path), pytest.raises(DataError, match="another process is writing"):
        alone_in(place, tmp_path).__enter__()
