"""Checkpoints are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from workings.errors import CheckpointError
from workings.models import checkpoint
from workings.models.checkpoint import (
    MANIFEST,
    checkpoint_folders,
    latest_checkpoint,
    prune_checkpoints,
    verify_checkpoint,
    write_checkpoint,
)


def writer(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "weights").write_text(text * 1000)
        (folder / "parts").mkdir()
        (folder / "parts" / "state").write_text("state " + text)

    return write


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_is_written_and_verifies(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "checkpoints" / "step_1"
    write_checkpoint(folder, writer("a"))
    assert names(folder) == [MANIFEST, "parts", "weights"]
    assert names(folder.parent) == ["step_1"]
    verify_checkpoint(folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["files"].keys() == {"weights", "parts/state"}
    assert manifest["files"]["weights"]["size"] == 1000


def test_a_checkpoint_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "best"
    write_checkpoint(folder, writer("a"))
    write_checkpoint(folder, writer("bb"))
    verify_checkpoint(folder)
    assert (folder / "weights").read_text() == "bb" * 1000
    assert names(tmp_path) == ["best"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "weights").unlink(), "weights is missing"),
        (lambda f: (f / "weights").write_text("short"), "has 5 bytes, expected 1000"),
        (lambda f: (f / "weights").write_text("b" * 1000), "does not match its checksum"),
        (lambda f: (f / MANIFEST).unlink(), f"has no {MANIFEST}"),
        (lambda f: (f / MANIFEST).write_text("{"), "cannot be read"),
        (lambda f: (f / MANIFEST).write_text("[]"), "cannot be read"),
        (lambda f: (f / MANIFEST).write_text('{"format": 9, "files": {}}'), "manifest format 9"),
    ],
)
def test_A11d_damage_is_found_and_the_one_before_is_used(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    for step in (5, 10):
        write_checkpoint(tmp_path / f"step_{step}", writer("a"))
    damage(tmp_path / "step_10")
    with pytest.raises(CheckpointError, match=message):
        verify_checkpoint(tmp_path / "step_10")
    latest = latest_checkpoint(tmp_path)
    assert (latest.path, latest.step) == (tmp_path / "step_5", 5)
    assert len(latest.skipped) == 1
    assert message in latest.skipped[0]
    assert latest.skipped[0].endswith("skipped")


def test_the_latest_is_by_number_in_either_layout(tmp_path: Path) -> None:
    for step in (9, 100, 20):
        write_checkpoint(tmp_path / f"checkpoint-{step}", writer("a"))
    (tmp_path / "final").mkdir()
    (tmp_path / "step_x").mkdir()
    (tmp_path / "step_7").write_text("a file")
    assert [step for step, _ in checkpoint_folders(tmp_path)] == [9, 20, 100]
    latest = latest_checkpoint(tmp_path)
    assert (latest.step, latest.skipped) == (100, ())


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "nothing").path is None
    assert latest_checkpoint(tmp_path).step == 0


def fail_with(error: BaseException) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise error

    return write


FULL_DISK_ERRORS = [
    OSError(errno.ENOSPC, "No space left on device"),
    Exception("Error while serializing: I/O error: No space left on device (os error 28)"),
]


@pytest.mark.parametrize("error", FULL_DISK_ERRORS, ids=["python", "safetensors"])
def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path: Path, error: Exception) -> None:
    folder = tmp_path / "step_1"
    write_checkpoint(folder, writer("a"))
    with pytest.raises(CheckpointError, match="no space left on the disk") as caught:
        write_checkpoint(folder, fail_with(error))
    assert "save_total_limit" in str(caught.value.hint)
    verify_checkpoint(folder)
    assert names(tmp_path) == ["step_1"]


def test_torch_running_out_of_space_is_told_from_other_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")
    with pytest.raises(RuntimeError, match="unexpected pos"):
        write_checkpoint(tmp_path / "step_1", fail_with(error))
    usage = checkpoint.shutil._ntuple_diskusage(10, 10, 0)
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(CheckpointError, match="no space left"):
        write_checkpoint(tmp_path / "step_1", fail_with(error))
    assert names(tmp_path) == []


@pytest.mark.parametrize("error", [ValueError("bug"), KeyboardInterrupt()], ids=["bug", "ctrl-c"])
def test_any_other_error_passes_through_and_leaves_no_trace(
    tmp_path: Path, error: BaseException
) -> None:
    write_checkpoint(tmp_path / "step_1", writer("a"))
    with pytest.raises(type(error)):
        write_checkpoint(tmp_path / "step_2", fail_with(error))
    assert names(tmp_path) == ["step_1"]


def test_a_rename_that_fails_puts_the_previous_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "best"
    write_checkpoint(folder, writer("a"))
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if Path(target) == folder and "previous" not in self.name:
            raise OSError(errno.EIO, "disk trouble")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="disk trouble"):
        write_checkpoint(folder, writer("b"))
    verify_checkpoint(folder)
    assert (folder / "weights").read_text() == "a" * 1000


def test_an_empty_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing was written"):
        write_checkpoint(tmp_path / "step_1", lambda folder: None)


KILLED = """
import sys, time
from pathlib import Path
from workings.models.checkpoint import write_checkpoint

def write(folder):
    (folder / "weights").write_text("half")
    print("writing", flush=True)
    time.sleep(60)

write_checkpoint(Path(sys.argv[1]), write)
"""


def test_a_process_killed_while_writing_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "step_1", writer("a"))
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "step_2")], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"writing\n"
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=30)
    assert len(names(tmp_path)) == 2, "the half-written folder is there, under another name"
    latest = latest_checkpoint(tmp_path)
    assert (latest.step, latest.skipped) == (1, ())
    assert prune_checkpoints(tmp_path, save_total_limit=5) == []
    assert names(tmp_path) == ["step_1"]


def test_the_oldest_are_pruned_and_the_best_and_newest_stay(tmp_path: Path) -> None:
    for step in range(1, 7):
        write_checkpoint(tmp_path / f"step_{step}", writer("a"))
    removed = prune_checkpoints(tmp_path, save_total_limit=3, keep=[tmp_path / "step_2"])
    assert [path.name for path in removed] == ["step_1", "step_3", "step_4"]
    assert names(tmp_path) == ["step_2", "step_5", "step_6"]
    assert prune_checkpoints(tmp_path, save_total_limit=1, keep=[tmp_path / "step_2"]) == [
        tmp_path / "step_5"
    ]
    assert names(tmp_path) == ["step_2", "step_6"]
    with pytest.raises(CheckpointError, match="save_total_limit=0"):
        prune_checkpoints(tmp_path, save_total_limit=0)


def test_checksums_of_large_files_are_fast(tmp_path: Path) -> None:
    size = 64 << 20

    def write(folder: Path) -> None:
        for name in ("a", "b"):
            (folder / name).write_bytes(bytes(size))

    write_checkpoint(tmp_path / "step_1", write)
    start = time.process_time()
    verify_checkpoint(tmp_path / "step_1")
    assert time.process_time() - start < 20.0, "128 MiB; SHA-256 reads a gigabyte a second"


def test_files_of_torch_and_safetensors_land_in_the_manifest(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    def write(folder: Path) -> None:
        save_file({"w": torch.ones(10)}, folder / "model.safetensors")
        torch.save({"w": torch.ones(10)}, folder / "optimizer.pt")

    write_checkpoint(tmp_path / "step_1", write)
    verify_checkpoint(tmp_path / "step_1")
    assert os.stat(tmp_path / "step_1").st_mode & 0o777 == 0o755
