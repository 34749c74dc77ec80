"""Checkpoints that are whole or absent: written to the side, checksummed, renamed, verified.

    write_checkpoint(folder, write)      write(temporary) -> manifest -> fsync -> rename
    verify_checkpoint(folder)            sizes and checksums against the manifest
    latest_checkpoint(root)              the newest one that verifies, and why others were skipped
    prune_checkpoints(root, ...)         the oldest go, never the best

A process killed at any moment leaves either the old state or the new one. A temporary folder that
a killed process left behind is never taken for a checkpoint, and goes with the next prune.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from workings.errors import CheckpointError

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
PARTIAL = ".partial-"
STEP_FOLDER = re.compile(r"(?:step_|checkpoint-)(\d+)")
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestCheckpoint:
    """The newest whole checkpoint of a run.

    Attributes:
        path: its folder; None where there is none.
        step: its step; 0 where there is none.
        skipped: one line for every newer folder that was damaged, and why.
    """

    path: Path | None
    step: int
    skipped: tuple[str, ...]


def write_checkpoint(folder: Path, write: Callable[[Path], None]) -> None:
    """Makes `folder` hold what `write(temporary folder)` writes, all of it or none of it.

    A folder of that name is replaced. On any error the temporary folder is removed and what stood
    there before is untouched; a full disk raises CheckpointError.
    """

    def write_with_manifest(partial: Path) -> None:
        write(partial)
        files = _files(partial)
        if not files:
            raise CheckpointError(f"nothing was written into the checkpoint {folder}")
        manifest = {"format": MANIFEST_FORMAT, "files": _checksums(partial, files)}
        text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
        (partial / MANIFEST).write_text(text, encoding="utf-8")

    replace_folder(folder, write_with_manifest)


def replace_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """`folder` with what `write` puts into an empty one, moved into place in one rename."""
    partial: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}{PARTIAL}", dir=folder.parent))
        partial.chmod(0o755)
        write(partial)
        _flush(partial)
        _move_into_place(partial, folder)
    except Exception as error:
        if _disk_is_full(error, folder.parent):
            raise CheckpointError(
                f"no space left on the disk while writing {folder}; what was there before is "
                "untouched",
                hint="free some space, or lower checkpoint.save_total_limit, and resume",
            ) from error
        raise
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)


def verify_checkpoint(folder: Path) -> None:
    """Raises CheckpointError unless every file of the manifest is there, whole and unchanged."""
    manifest = _read_manifest(folder)
    for name, entry in manifest.items():
        file = folder / name
        if not file.is_file():
            raise CheckpointError(f"the checkpoint {folder} is damaged: {name} is missing")
        size = file.stat().st_size
        if size != entry["size"]:
            raise CheckpointError(
                f"the checkpoint {folder} is damaged: {name} has {size} bytes, "
                f"expected {entry['size']}"
            )
    found = _checksums(folder, list(manifest))
    for name, entry in manifest.items():
        if found[name]["sha256"] != entry["sha256"]:
            raise CheckpointError(
                f"the checkpoint {folder} is damaged: the content of {name} does not match its "
                "checksum"
            )


def latest_checkpoint(root: Path) -> LatestCheckpoint:
    """The newest checkpoint below `root` that verifies; damaged ones are skipped and named."""
    skipped = []
    for step, folder in reversed(checkpoint_folders(root)):
        try:
            verify_checkpoint(folder)
        except CheckpointError as error:
            skipped.append(f"{error.message}; skipped")
            continue
        return LatestCheckpoint(path=folder, step=step, skipped=tuple(skipped))
    return LatestCheckpoint(path=None, step=0, skipped=tuple(skipped))


def checkpoint_folders(root: Path) -> list[tuple[int, Path]]:
    """(step, folder) of every `step_N` or `checkpoint-N` below `root`, oldest first."""
    if not root.is_dir():
        return []
    found = []
    for folder in root.iterdir():
        match = STEP_FOLDER.fullmatch(folder.name)
        if match and folder.is_dir():
            found.append((int(match[1]), folder))
    return sorted(found)


def prune_checkpoints(
    root: Path, *, save_total_limit: int, keep: Iterable[Path] = ()
) -> list[Path]:
    """The step folders removed: the oldest beyond `save_total_limit`, never those of `keep`.

    A kept one (the best) counts towards the limit, so that the newest always stays as well.
    Leftovers of interrupted writes go too. Call it after a checkpoint was written.
    """
    if save_total_limit < 1:
        raise CheckpointError(f"save_total_limit={save_total_limit}; expected 1 or more")
    kept = {path.resolve() for path in keep}
    folders = [folder for _, folder in checkpoint_folders(root)]
    surplus = len(folders) - save_total_limit
    removed: list[Path] = []
    for folder in folders[:-1]:
        if surplus > len(removed) and folder.resolve() not in kept:
            removed.append(folder)
    leftovers = [path for path in root.glob(f".*{PARTIAL}*") if path.is_dir()]
    for folder in removed + leftovers:
        # Renamed first, so that a kill in between never leaves half a checkpoint under its name.
        doomed = folder.with_name(f".{folder.name.lstrip('.')}{PARTIAL}removed")
        if folder != doomed:
            shutil.rmtree(doomed, ignore_errors=True)
            folder.rename(doomed)
        shutil.rmtree(doomed)
    return removed


def _disk_is_full(error: Exception, folder: Path) -> bool:
    """True if `error` comes from a full disk; safetensors and torch do not raise OSError then."""
    if isinstance(error, OSError):
        return error.errno in FULL_DISK
    if "os error 28" in str(error):
        return True
    return isinstance(error, RuntimeError) and shutil.disk_usage(folder).free < 2**20


def _files(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    names = (path.relative_to(folder).as_posix() for path in paths)
    return sorted(name for name in names if name != MANIFEST)


def _checksums(folder: Path, names: list[str]) -> dict[str, dict[str, int | str]]:
    def entry(name: str) -> dict[str, int | str]:
        with (folder / name).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return {"size": stream.tell(), "sha256": digest}

    # hashlib lets go of the interpreter lock, so large files are read side by side.
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(names, pool.map(entry, names), strict=True))


def _read_manifest(folder: Path) -> dict[str, dict[str, int | str]]:
    file = folder / MANIFEST
    if not file.is_file():
        raise CheckpointError(f"the checkpoint {folder} is incomplete: it has no {MANIFEST}")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        files: dict[str, dict[str, int | str]] = manifest["files"]
        if manifest["format"] != MANIFEST_FORMAT:
            raise CheckpointError(
                f"the checkpoint {folder} has manifest format {manifest['format']}; this version "
                f"reads {MANIFEST_FORMAT}"
            )
        if not all({"size", "sha256"} <= entry.keys() for entry in files.values()):
            raise KeyError("size, sha256")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"the checkpoint {folder} is damaged: its {MANIFEST} cannot be read ({error!r})"
        ) from error
    return files


def _flush(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _move_into_place(partial: Path, folder: Path) -> None:
    if folder.exists():
        previous = folder.with_name(f".{folder.name}{PARTIAL}previous")
        shutil.rmtree(previous, ignore_errors=True)
        folder.rename(previous)
        try:
            partial.rename(folder)
        except OSError:
            previous.rename(folder)
            raise
        shutil.rmtree(previous)
    else:
        partial.rename(folder)
    descriptor = os.open(folder.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
