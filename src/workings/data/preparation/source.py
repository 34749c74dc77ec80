"""Where a recipe's rows come from: the files of a hub data set, or a local copy of them.

Files of the hub are downloaded one at a time, when their turn comes, into the cache that all
Hugging Face libraries share; a download that was cut goes on where it stood. Rows are then streamed
from disk, so a source of many gigabytes never stands in memory.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workings.data.preparation.card import CONTAMINATION, RECORD
from workings.data.preparation.checksums import sha256_of
from workings.data.preparation.json_arrays import holds_array, stream_array
from workings.data.sources import DATA_DIR_VARIABLE
from workings.data.streaming import STREAMERS, StreamedRow, stream_file
from workings.errors import DataError

ARROW = ".arrow"
SUFFIXES = (*STREAMERS, ARROW)
# Files about the data that lie beside it: of `datasets`, and of a folder that was prepared.
NO_DATA = ("dataset_info.json", "dataset_dict.json", "state.json", RECORD, CONTAMINATION)
SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of a source.

    Attributes:
        name: its path inside the source, with "/".
        locate: gives the file on this machine; downloads it where it is not here yet.
    """

    name: str
    locate: Callable[[], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A data set as it was found.

    Attributes:
        origin: the hub id, or the local path, as the user wrote it.
        revision: commit on the hub; None for local files.
        licence: what the hub's card says; None where it was not asked or says nothing.
        files: in the order in which they are read.
    """

    origin: str
    revision: str | None = None
    licence: str | None = None
    files: tuple[SourceFile, ...]

    def describe(self) -> str:
        """One line for the log."""
        at = f" @ {self.revision[:12]}" if self.revision else ""
        names = ", ".join(file.name for file in self.files[:3])
        more = f" and {len(self.files) - 3} more" if len(self.files) > 3 else ""
        return f"{self.origin}{at}: {names}{more}"


def find_source(
    where: str, *, patterns: Sequence[str], split: str, endpoint: str | None = None
) -> Source:
    """The files to read at `where`: a file, a folder, a name below $WORKINGS_DATA_DIR, a hub id.

    Args:
        patterns: which files of a folder or hub data set, as shell patterns; where none fits, the
            files of `split`, and where those are missing, the only data file there is.
        endpoint: of the hub; the usual one where None.
    """
    local = _local_path(where)
    if local is None:
        return _hub_source(where, patterns, split, endpoint)
    if local.is_file():
        if local.suffix.lower() not in SUFFIXES:
            raise DataError(
                f"{local} is not a kind of file that can be read; known: {', '.join(SUFFIXES)}"
            )
        return Source(origin=where, files=(_local_file(local.name, local),))
    names = [
        path.relative_to(local).as_posix() for path in sorted(local.rglob("*")) if path.is_file()
    ]
    chosen = choose_files(names, patterns=patterns, split=split, origin=where)
    return Source(origin=where, files=tuple(_local_file(name, local / name) for name in chosen))


def choose_files(
    names: Iterable[str], *, patterns: Sequence[str], split: str, origin: str
) -> list[str]:
    """The data files to read, sorted; DataError lists what there is where the choice is open.

    >>> names = ["README.md", "data/cot-0.parquet", "data/cot-1.parquet", "data/tir-0.parquet"]
    >>> choose_files(names, patterns=["data/cot-*.parquet"], split="cot", origin="x")
    ['data/cot-0.parquet', 'data/cot-1.parquet']
    >>> choose_files(names, patterns=["*.jsonl"], split="tir", origin="x")
    ['data/tir-0.parquet']
    """
    data = sorted(
        name
        for name in names
        if Path(name).suffix.lower() in SUFFIXES
        and Path(name).name not in NO_DATA
        and not any(part.startswith(".") for part in name.split("/"))
    )
    fitting = [n for n in data if any(fnmatch.fnmatchcase(n, pattern) for pattern in patterns)]
    of_split = [name for name in data if split in (_split_of(name), *Path(name).parent.parts)]
    chosen = fitting or of_split or (data if len(data) == 1 else [])
    if not chosen:
        shown = ", ".join(data[:SHOWN]) + (" ..." if len(data) > SHOWN else "")
        raise DataError(
            f"{origin} has no file of split {split!r}, nor one like "
            f"{' or '.join(patterns) or '(no pattern)'}; its data files: {shown or 'none'}",
            hint="name the files with --files PATTERN",
        )
    return chosen


def stream_source(
    source: Source,
    *,
    columns: Collection[str] | None = None,
    limit: int | None = None,
    opened: Callable[[SourceFile, Path], None] | None = None,
) -> Iterator[StreamedRow]:
    """The rows of all files, numbered through from 0; broken rows come with their fault.

    Args:
        columns: those that will be looked at; a parquet file is read without its others.
        limit: the first so many rows.
        opened: is told each file before its first row.
    """
    index = 0
    for file in source.files:
        if limit is not None and index >= limit:
            return
        path = file.locate()
        if opened is not None:
            opened(file, path)
        for row in _rows_of(path, columns):
            if limit is not None and index >= limit:
                return
            yield replace(row, index=index)
            index += 1


def input_entry(file: SourceFile, path: Path) -> dict[str, object]:
    """The entry of an input in the card: name, size and checksum."""
    return {"file": file.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


# ------------------------------------------------------------------------------------- local files


def _local_path(where: str) -> Path | None:
    """The file or folder that `where` names on this machine; None for a hub id."""
    path = Path(where).expanduser()
    if path.exists():
        return path
    looks_local = where.startswith(("/", "./", "../", "~")) or where.count("/") > 1
    if looks_local or Path(where).suffix.lower() in SUFFIXES:
        raise DataError(f"{path} does not exist")
    if "/" in where:
        return None
    given = os.environ.get(DATA_DIR_VARIABLE)
    if not given:
        raise DataError(
            f"{where!r} is neither a file nor a folder, and {DATA_DIR_VARIABLE} is not set",
            hint="give a path, or write a hub id as owner/name",
        )
    folder = Path(given).expanduser()
    for name in (where, *(f"{where}{suffix}" for suffix in SUFFIXES)):
        if (folder / name).exists():
            return folder / name
    names = sorted(path.stem for path in folder.glob("*") if path.suffix.lower() in SUFFIXES)
    near = difflib.get_close_matches(where, names, n=1, cutoff=0.5)
    raise DataError(
        f"{folder} holds no data set {where!r}",
        hint=f"did you mean {near[0]!r}?" if near else "give a path, or a hub id as owner/name",
    )


def _local_file(name: str, path: Path) -> SourceFile:
    return SourceFile(name=name, locate=lambda: path)


def _split_of(name: str) -> str:
    return Path(name).stem.split("-")[0]


def _rows_of(path: Path, columns: Collection[str] | None) -> Iterator[StreamedRow]:
    suffix = path.suffix.lower()
    if suffix == ARROW:
        return _stream_arrow(path)
    if suffix in (".json", ".jsonl") and holds_array(path):
        return stream_array(path)
    return stream_file(path, columns=columns)


def _stream_arrow(path: Path) -> Iterator[StreamedRow]:
    """Rows of a file that `Dataset.save_to_disk` wrote."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as batches:
            index = 0
            for batch in batches:
                for values in batch.to_pylist():
                    yield StreamedRow(index=index, values=values)
                    index += 1
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a readable arrow file: {error}") from error


# ------------------------------------------------------------------------------------------ the hub


def _hub_source(hub_id: str, patterns: Sequence[str], split: str, endpoint: str | None) -> Source:
    from huggingface_hub import HfApi

    # The client, its HTTP library and the cache each raise errors of their own, and all of them
    # mean the same to the caller.
    try:
        info = HfApi(endpoint=endpoint).dataset_info(hub_id)
    except Exception as error:
        raise DataError(
            f"{hub_id} cannot be read from the hub: {type(error).__name__}: {error}",
            hint=f"there is no local file or folder {hub_id!r} either; check the name and the "
            "connection, or give a local copy with --from PATH",
        ) from error
    names = [sibling.rfilename for sibling in info.siblings or ()]
    chosen = choose_files(names, patterns=patterns, split=split, origin=hub_id)
    revision = str(info.sha)
    licence = getattr(info.card_data, "license", None)
    return Source(
        origin=hub_id,
        revision=revision,
        licence=None if licence is None else str(licence),
        files=tuple(_hub_file(hub_id, name, revision, endpoint) for name in chosen),
    )


def _hub_file(hub_id: str, name: str, revision: str, endpoint: str | None) -> SourceFile:
    def download() -> Path:
        from huggingface_hub import hf_hub_download

        try:
            path = hf_hub_download(
                hub_id, name, repo_type="dataset", revision=revision, endpoint=endpoint
            )
        except Exception as error:  # as above
            raise DataError(
                f"{name} of {hub_id} cannot be downloaded: {type(error).__name__}: {error}",
                hint="run the same command again: what was downloaded is kept",
            ) from error
        return Path(path)

    return SourceFile(name=name, locate=download)
