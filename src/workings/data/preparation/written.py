"""A folder of prepared files that appears whole or not at all.

Everything is written into a folder beside the final one (`.NAME.part`), which is renamed at the
end. A killed preparation leaves that folder behind; the next one clears it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from workings.data.preparation.checksums import sha256_of
from workings.errors import DataError
from workings.tracking.alone import alone_in

PARQUET_ROWS = 1000
Record = Mapping[str, object]
SchemaOf = Callable[[Sequence[Record]], Any]


class RowWriter(Protocol):
    """Writes rows to one file."""

    def write(self, record: Record) -> None: ...

    def close(self) -> None: ...


class WrittenFolder:
    """The files being written, by name; made by `new_folder`."""

    def __init__(self, part: Path, schemas: Mapping[str, SchemaOf]) -> None:
        self._part = part
        self._schemas = schemas
        self._writers: dict[str, RowWriter] = {}

    def write(self, name: str, record: Record) -> None:
        """Append a row to the file `name`, .jsonl or .parquet.

        DataError for a row that UTF-8 cannot hold.
        """
        writer = self._writers.get(name)
        if writer is None:
            path = self._part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".parquet":
                writer = _ParquetWriter(path, self._schemas[name]([record]))
            else:
                writer = _JsonlWriter(path)
            self._writers[name] = writer
        writer.write(record)

    def write_text(self, name: str, text: str) -> None:
        """Write a whole text file."""
        (self._part / name).write_text(text, encoding="utf-8")

    def finish_rows(self) -> list[dict[str, object]]:
        """Close the files of rows; an entry for each with its name, size and checksum."""
        for writer in self._writers.values():
            writer.close()
        return [
            {
                "file": name,
                "bytes": (self._part / name).stat().st_size,
                "sha256": sha256_of(self._part / name),
            }
            for name in sorted(self._writers)
        ]

    def close(self) -> None:
        """Close whatever is open."""
        for writer in self._writers.values():
            writer.close()


@contextmanager
def new_folder(
    target: Path, *, schemas: Mapping[str, SchemaOf] | None = None, replace: bool = False
) -> Iterator[WrittenFolder]:
    """A folder to write to, which becomes `target` when the block ends without an error.

    Args:
        schemas: parquet file to a function that gives its arrow schema from the first row.
        replace: take the place of a `target` that exists.

    DataError where `target` exists, and where another process is writing it.
    """
    if target.exists() and not replace:
        raise DataError(
            f"{target} exists",
            hint="choose another folder with --out, or replace this one with --force",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.parent / f".{target.name}.part"
    part.mkdir(exist_ok=True)
    with alone_in(part, target):
        _empty(part)
        folder = WrittenFolder(part, schemas or {})
        try:
            yield folder
            folder.close()
        except BaseException:
            with suppress(Exception):  # what went wrong before is what the caller needs to know
                folder.close()
            shutil.rmtree(part)
            raise
        _sync(part)
        _rename(part, target)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _sync(folder: Path) -> None:
    """Have the files on disk before their folder gets its name."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _rename(part: Path, target: Path) -> None:
    if not target.exists():
        part.rename(target)
        return
    before = target.parent / f".{target.name}.before"
    if before.exists():
        shutil.rmtree(before)
    target.rename(before)
    part.rename(target)
    shutil.rmtree(before)


def json_line(record: Record) -> bytes:
    """The row as one line of JSON, in the order of its keys; DataError for a lone surrogate.

    >>> json_line({"b": "é", "a": None})
    b'{"b": "\\xc3\\xa9", "a": null}\\n'
    """
    try:
        return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"the row holds half of a character: {error}") from error


class _JsonlWriter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, record: Record) -> None:
        self._file.write(json_line(record))

    def close(self) -> None:
        self._file.close()


class _ParquetWriter:
    """Row groups of a fixed size, so that the same rows give the same bytes."""

    def __init__(self, path: Path, schema: Any) -> None:
        from pyarrow import parquet

        self._schema = schema
        self._writer: Any = parquet.ParquetWriter(path, schema, compression="zstd")
        self._rows: list[Record] = []

    def write(self, record: Record) -> None:
        json_line(record)
        self._rows.append(record)
        if len(self._rows) == PARQUET_ROWS:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        from pyarrow import ArrowInvalid, ArrowTypeError, Table

        rows, self._rows = self._rows, []
        try:
            self._writer.write_table(Table.from_pylist(rows, schema=self._schema))
        except (ArrowInvalid, ArrowTypeError) as error:
            raise DataError(f"a row does not fit into the parquet file: {error}") from error
