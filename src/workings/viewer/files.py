"""The one way from a name in an address to a file: below the root, or not at all.

A name is relative, has no `..`, and what it leads to lies below the root after every symbolic link
is followed. Hidden files and folders do not exist for the viewer. Nothing is ever written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from workings.errors import DataError, Forbidden, NotFound
from workings.evaluation.reports import RESULTS_FILE
from workings.evaluation.responses import RESPONSES_FILE
from workings.tracking.jsonl import FILE_NAME as METRICS_FILE
from workings.viewer.beside import DECODED, FLAT, is_store
from workings.viewer.rows import open_rows, read_rows
from workings.viewer.whole_run import WHOLE_RUN

ROLLOUTS_FOLDER = "rollouts"
SUFFIXES = (".jsonl", ".json", ".parquet")
NEVER_ENTERED = ("checkpoints", "wandb", "tensorboard")
"""Folders of a run without anything to show; a checkpoint may hold thousands of files."""


def inside(root: Path, name: str) -> Path:
    """The path of `name` below `root`, links resolved.

    Raises Forbidden where it is absolute, has `..`, names something hidden, or leads out of the
    root through a symbolic link; NotFound where nothing is there.
    """
    asked = PurePosixPath(name)
    if "\x00" in name or "\\" in name or asked.is_absolute() or ".." in asked.parts:
        raise Forbidden(
            f"{name!r} leads out of the folder that is shown",
            hint="give a path below it, without ..",
        )
    if any(is_hidden(part) for part in asked.parts):
        raise Forbidden(f"{name!r} is hidden, and hidden files are not shown")
    base = root.resolve()
    try:
        path = (base / asked).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise NotFound(f"there is no {name!r} in the folder that is shown") from error
    if not path.is_relative_to(base):
        raise Forbidden(f"{name!r} leads out of the folder that is shown, by a symbolic link")
    return path


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is left alone.

    >>> is_hidden(".git"), is_hidden("runs"), is_hidden(".")
    (True, False, False)
    """
    return name.startswith(".") and name != "."


def walk(root: Path, folder: str = ".") -> Iterator[tuple[PurePosixPath, list[str]]]:
    """(folder relative to the root, names of its files) from `folder` on, sorted.

    Hidden ones are skipped, folders behind links are not entered, and a linked file is left out
    unless it leads to one below the root.
    """
    base = root.resolve()
    for where, folders, files in os.walk(inside(root, folder)):
        folders[:] = sorted(
            one for one in folders if not is_hidden(one) and one not in NEVER_ENTERED
        )
        here = Path(where)
        names = [name for name in sorted(files) if not is_hidden(name) and _stays(base, here, name)]
        yield PurePosixPath(here.relative_to(base).as_posix()), names


def list_result_files(root: Path, folder: str = ".") -> list[str]:
    """Every file of responses below `folder`, relative to `root`, newest first.

    These are `results.jsonl`, `rollouts/*.parquet`, and a `responses.parquet` that has no
    `results.jsonl` beside it, because it is not graded yet; the files of `workings eval-luffy`,
    NAME.jsonl with NAME.log or NAME.decoded.jsonl beside it, or the latter alone; and whole-run
    files of earlier programs, ..._eval_DATE_TIME.json. Raises Forbidden and NotFound as `inside`
    does.
    """
    found = [
        (where / name).as_posix()
        for where, names in walk(root, folder)
        for name in names
        if is_result_file(where, name, names)
    ]
    return sorted(found, key=lambda name: (-modified(root / name), name))


def load_result_file(
    root: Path, name: str, *, offset: int = 0, limit: int = 100
) -> list[dict[str, Any]]:
    """The rows of a file of responses from `offset` on, at most `limit` of them.

    Raises Forbidden and NotFound as `inside` does, and DataError where it is no such file.
    """
    if offset < 0 or limit < 1:
        raise DataError(f"offset {offset}, limit {limit}; expected 0 or more, and 1 or more")
    path = inside(root, name)
    if not path.is_file():
        raise NotFound(f"{name!r} is no file")
    if path.suffix not in SUFFIXES:
        hint = "they are .jsonl, .json or .parquet"
        raise DataError(f"{name!r} is no file of responses", hint=hint)
    file = open_rows(path)
    return read_rows(file, range(offset, min(offset + limit, file.num_rows)))


def is_result_file(where: PurePosixPath, name: str, names: list[str]) -> bool:
    """Whether this file of a folder, with these names in it, holds responses to be shown."""
    if name == RESPONSES_FILE:
        return RESULTS_FILE not in names and not is_store(where)
    if name.endswith(".parquet"):
        return where.name == ROLLOUTS_FOLDER
    return name == RESULTS_FILE or is_flat(name, names) or bool(WHOLE_RUN.fullmatch(name))


def is_flat(name: str, names: list[str]) -> bool:
    """Whether this file of a folder is one of `workings eval-luffy`, graded or still to be.

    >>> names = ["a.decoded.jsonl", "a.jsonl", "a.log", "b.decoded.jsonl", "b.log", "c.jsonl"]
    >>> [name for name in names if is_flat(name, names)]
    ['a.jsonl', 'b.decoded.jsonl']
    """
    if name.endswith(DECODED):
        return name.removesuffix(DECODED) + FLAT not in names
    if not name.endswith(FLAT) or name in (RESULTS_FILE, METRICS_FILE):
        return False
    stem = name.removesuffix(FLAT)
    return stem + DECODED in names or stem + ".log" in names


def modified(path: Path) -> float:
    """Seconds since the epoch of the last change; 0 where the file has gone meanwhile."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _stays(base: Path, folder: Path, name: str) -> bool:
    path = folder / name
    try:
        return not path.is_symlink() or path.resolve().is_relative_to(base)
    except (OSError, RuntimeError):  # RuntimeError: links that lead to each other
        return False
