"""Rows from wherever they are: a file, a folder, the hub, or a name in the folder of data sets.

"train.jsonl"            a file: .jsonl, .ndjson, .json, .parquet, .csv
"data/my_set"            a folder: saved by `datasets`, or with one file or more per split
"openai/gsm8k"           an id on the Hugging Face hub
"gsm8k_train"            a bare name: a file or folder below $WORKINGS_DATA_DIR

A split "train+test" is one after the other.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workings.data.files import READERS, Rows, read_file
from workings.data.table import Table, table_of
from workings.errors import DataError, unknown_name

DATA_DIR_VARIABLE = "WORKINGS_DATA_DIR"


def read_rows(
    path: str | Path,
    *,
    subset: str | None = None,
    split: str = "train",
    data_dir: str | Path | None = None,
) -> Table:
    """The rows at `path`, as a `Table`.

    A local file or folder wins over a name, and a name over the hub. `split` chooses among the
    files of a folder and the splits on the hub; a single file is one split, whatever it is called.
    `data_dir` stands for $WORKINGS_DATA_DIR. DataError says what is missing, and the nearest name.
    """
    text = str(path)
    local = Path(text).expanduser()
    if local.is_file():
        return _file_table(local, subset)
    if local.is_dir():
        return _folder_table(local, subset, split)
    if isinstance(path, Path) or _looks_like_a_path(text):
        raise DataError(f"{local} does not exist", hint=_neighbour(local))
    if "/" in text:
        return _hub_table(text, subset, split)
    return _named_table(text, subset, split, data_dir)


def _looks_like_a_path(text: str) -> bool:
    starts_like_one = text.startswith(("/", "./", "../", "~", ".\\"))
    return starts_like_one or Path(text).suffix.lower() in READERS or text.count("/") > 1


def _neighbour(missing: Path) -> str | None:
    if not missing.parent.is_dir():
        return f"its folder {missing.parent} does not exist either"
    names = [entry.name for entry in missing.parent.iterdir()]
    near = difflib.get_close_matches(missing.name, names, n=1, cutoff=0.5)
    return f"did you mean {missing.parent / near[0]}?" if near else None


def _file_table(path: Path, subset: str | None) -> Table:
    if subset is not None:
        raise DataError(
            f"{path} is one file, so it has no subset {subset!r}",
            hint="leave subset out; it names a configuration on the hub",
        )
    return table_of(read_file(path), name=path.stem, origin=str(path))


# ------------------------------------------------------------------------------------- folders


def _folder_table(folder: Path, subset: str | None, split: str) -> Table:
    root = folder if subset is None else folder / subset
    if not root.is_dir():
        known = [entry.name for entry in folder.iterdir() if entry.is_dir()]
        raise DataError(f"{folder}: {unknown_name('subset', str(subset), known)}")
    if (root / "dataset_dict.json").is_file() or (root / "dataset_info.json").is_file():
        rows = [row for part in split.split("+") for row in _saved_rows(root, part)]
    else:
        files = [file for part in split.split("+") for file in _split_files(root, part)]
        rows = [row for file in files for row in read_file(file)]
    return table_of(rows, name=folder.name, origin=f"{root} ({split})")


def _split_files(folder: Path, split: str) -> list[Path]:
    """The files `train.parquet`, or `train-00000-of-00002.parquet` and so on, of a split."""
    found = [
        entry
        for place in (folder, folder / "data")
        if place.is_dir()
        for entry in sorted(place.iterdir())
        if entry.is_file() and entry.suffix.lower() in READERS
    ]
    chosen = [file for file in found if _split_of(file) == split]
    if not chosen:
        splits = sorted({_split_of(file) for file in found})
        if not splits:
            raise DataError(
                f"{folder} holds no data file; expected files such as {split}.parquet",
                hint=f"known kinds: {', '.join(READERS)}",
            )
        raise DataError(f"{folder}: {unknown_name('split', split, splits)}")
    return chosen


def _split_of(file: Path) -> str:
    return file.stem.split("-")[0]


def _saved_rows(folder: Path, split: str) -> Rows:
    """The rows of a folder written by `Dataset.save_to_disk` or `DatasetDict.save_to_disk`."""
    from datasets import load_from_disk

    try:
        saved: Any = load_from_disk(str(folder))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{folder} is not a readable folder of `datasets`: {error}") from error
    if (folder / "dataset_dict.json").is_file():
        if split not in saved:
            raise DataError(f"{folder}: {unknown_name('split', split, saved)}")
        saved = saved[split]
    rows: Rows = saved.to_list()
    return rows


# ----------------------------------------------------------------------------- names and the hub


def _named_table(name: str, subset: str | None, split: str, data_dir: str | Path | None) -> Table:
    given = data_dir if data_dir is not None else os.environ.get(DATA_DIR_VARIABLE)
    if not given:
        raise DataError(
            f"{name!r} is neither a file nor a folder, and {DATA_DIR_VARIABLE} is not set",
            hint=f"set {DATA_DIR_VARIABLE} to the folder of data sets, give a path, or write a hub "
            "id as owner/name",
        )
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise DataError(f"{DATA_DIR_VARIABLE}={folder} is not a folder")
    copy = named_copy(name, split, folder)
    if copy is not None:
        return _folder_table(copy, subset, split) if copy.is_dir() else _file_table(copy, subset)
    raise DataError(
        f"{folder}: {unknown_name('data set', name, _names_in(folder))}",
        hint="a data set on the hub is written owner/name",
    )


def named_copy(name: str, split: str, folder: Path) -> Path | None:
    """The file `name` or `name_split` of a known kind, or the folder `name`, in `folder`."""
    for stem in (name, f"{name}_{split}"):
        for suffix in READERS:
            if (file := folder / f"{stem}{suffix}").is_file():
                return file
    return folder / name if (folder / name).is_dir() else None


def _names_in(folder: Path) -> Sequence[str]:
    return [
        entry.stem if entry.is_file() else entry.name
        for entry in folder.iterdir()
        if entry.is_dir() or entry.suffix.lower() in READERS
    ]


def _hub_table(hub_id: str, subset: str | None, split: str) -> Table:
    return table_of(
        read_hub(hub_id, subset, split),
        name=hub_id.rsplit("/", 1)[-1],
        origin=f"{hub_id} ({split})",
    )


def read_hub(hub_id: str, subset: str | None, split: str) -> Rows:
    """The rows of one split on the hub, through `datasets.load_dataset` and its cache."""
    from datasets import load_dataset

    try:
        rows: Rows = load_dataset(hub_id, subset, split=split).to_list()
    # The hub client, its HTTP library, `datasets` and pyarrow each raise errors of their own, and
    # all of them mean the same to the caller.
    except Exception as error:
        where = hub_id if subset is None else f"{hub_id} (subset {subset})"
        raise DataError(
            f"split {split!r} of {where} cannot be loaded: {type(error).__name__}: {error}",
            hint=f"there is no local file or folder {hub_id!r} either; check the name, the subset "
            "and split, and the connection",
        ) from error
    return rows
