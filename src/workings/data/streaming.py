"""Rows of one file, one after another and in bounded memory; a broken row is told, not raised.

`workings.data.files` reads the same kinds of files whole, for data sets, and stops at the first
broken row.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from workings.data.files import LONGEST_CSV_VALUE
from workings.errors import DataError

PARQUET_ROWS = 1024
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedRow:
    """One row, or the reason why there is none.

    Attributes:
        index: its number in the file, from 0; blank lines do not count.
        line: the line it begins on, from 1; None in files without lines.
        values: column to value; None where the row is broken.
        fault: what is wrong with it, None where nothing is.
    """

    index: int
    line: int | None = None
    values: Mapping[str, object] | None = None
    fault: str | None = None

    @property
    def place(self) -> str:
        """Where the row stands, for messages.

        >>> StreamedRow(index=3, line=5).place, StreamedRow(index=3).place
        ('line 5', 'row 3')
        """
        return f"row {self.index}" if self.line is None else f"line {self.line}"


def stream_file(path: Path, *, columns: Collection[str] | None = None) -> Iterator[StreamedRow]:
    """The rows of a JSONL, JSON, parquet or CSV file, told apart by the suffix.

    Only a JSON array is read whole. `columns` are those that will be looked at; a parquet file is
    read without its others. DataError where the file is missing, of another kind, or so damaged
    that no further row can be told from the next.
    """
    streamer = STREAMERS.get(path.suffix.lower())
    if streamer is None:
        raise DataError(
            f"{path} is not a kind of file that can be read; known: {', '.join(STREAMERS)}"
        )
    try:
        yield from streamer(path, columns)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}") from error


def stream_jsonl(file: BinaryIO) -> Iterator[StreamedRow]:
    r"""One row per line that is not blank; only "\n" ends a line (see `files.read_jsonl`)."""
    index = 0
    for number, line in enumerate(file, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip(" \t\r\n")
        except UnicodeDecodeError as error:
            yield StreamedRow(index=index, line=number, fault=f"not UTF-8 text: {error}")
            index += 1
            continue
        if text:
            yield _row_of_text(text, index, number)
            index += 1


def count_rows(path: Path) -> int | None:
    """How many rows `path` has, where that costs no parsing; a blank line of JSONL counts as one.

    None for CSV and JSON arrays.
    """
    try:
        if path.suffix.lower() == ".parquet":
            return _open_parquet(path).metadata.num_rows  # type: ignore[no-any-return]
        if path.suffix.lower() in (".jsonl", ".ndjson"):
            return _count_lines(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return None


def _row_of_text(text: str, index: int, line: int | None) -> StreamedRow:
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        fault = f"not JSON: {error.msg} at column {error.colno}"
        return StreamedRow(index=index, line=line, fault=fault)
    except (ValueError, RecursionError) as error:  # a numeral or a nesting beyond Python's limits
        return StreamedRow(index=index, line=line, fault=f"JSON that cannot be read: {error}")
    return _row_of_value(value, index, line)


def _row_of_value(value: object, index: int, line: int | None = None) -> StreamedRow:
    if isinstance(value, dict):
        return StreamedRow(index=index, line=line, values=value)
    fault = f"a {type(value).__name__}; expected a JSON object"
    return StreamedRow(index=index, line=line, fault=fault)


def _stream_jsonl_file(path: Path, _: Collection[str] | None) -> Iterator[StreamedRow]:
    with path.open("rb") as file:
        yield from stream_jsonl(file)


def _stream_json(path: Path, columns: Collection[str] | None) -> Iterator[StreamedRow]:
    """The objects of an array; a file of one object per line is read as JSONL."""
    with path.open(encoding="utf-8-sig") as file:
        start = file.read(1024).lstrip()
        if not start.startswith("{"):
            file.seek(0)
            yield from _elements(file.read(), path)
            return
    yield from _stream_jsonl_file(path, columns)


def _elements(text: str, path: Path) -> Iterator[StreamedRow]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is not JSON: {error}",
            hint="a .jsonl file holds one JSON object on each line; there only a broken line is "
            "lost",
        ) from error
    if not isinstance(values, list):
        raise DataError(f"{path} holds a {type(values).__name__}; expected an array of objects")
    for index, value in enumerate(values):
        yield _row_of_value(value, index)


def _stream_csv(path: Path, _: Collection[str] | None) -> Iterator[StreamedRow]:
    """Rows below a header line; every value stays the text it is."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = _next_values(reader)
        except csv.Error as error:
            raise DataError(f"{path}, line 1: {error}") from error
        index = 0
        while True:
            line = reader.line_num + 1
            try:
                values = _next_values(reader)
            except csv.Error as error:
                yield StreamedRow(index=index, line=line, fault=f"not CSV: {error}")
                index += 1
                continue
            if values is None:
                return
            if values:
                yield _csv_row(header or [], values, index, line)
                index += 1


def _next_values(reader: Iterator[list[str]]) -> list[str] | None:
    # The module's limit on the length of a value is global and too low for model responses.
    limit_before = csv.field_size_limit(LONGEST_CSV_VALUE)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(limit_before)


def _csv_row(header: list[str], values: list[str], index: int, line: int) -> StreamedRow:
    if len(values) == len(header):
        return StreamedRow(index=index, line=line, values=dict(zip(header, values, strict=True)))
    fault = f"{len(values)} values for {len(header)} columns; values that hold commas need quotes"
    return StreamedRow(index=index, line=line, fault=fault)


def _stream_parquet(path: Path, columns: Collection[str] | None) -> Iterator[StreamedRow]:
    from pyarrow import ArrowException

    file = _open_parquet(path)
    known = file.schema_arrow.names
    wanted = None if columns is None else [name for name in known if name in columns]
    index = 0
    try:
        for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=wanted):
            for values in batch.to_pylist():
                yield StreamedRow(index=index, values=values)
                index += 1
    except ArrowException as error:
        raise DataError(f"{path} is damaged after row {index}: {error}") from error


def _open_parquet(path: Path):  # type: ignore[no-untyped-def]  # pyarrow has no types
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(path)
    except ArrowException as error:
        raise DataError(f"{path} is not a readable parquet file: {error}") from error


def _count_lines(path: Path) -> int:
    lines, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")


STREAMERS: Mapping[str, Callable[[Path, Collection[str] | None], Iterator[StreamedRow]]] = {
    ".jsonl": _stream_jsonl_file,
    ".ndjson": _stream_jsonl_file,
    ".json": _stream_json,
    ".parquet": _stream_parquet,
    ".csv": _stream_csv,
}
