"""Rows of one file: JSONL, JSON, parquet or CSV, told apart by the suffix."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from workings.errors import DataError

Rows = list[dict[str, object]]
LONGEST_CSV_VALUE = 2**31 - 1


def read_file(path: Path) -> Rows:
    """The rows of `path`; DataError where the file is missing, damaged or of another kind."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path} is not a kind of file that can be read; known: {', '.join(READERS)}"
        )
    try:
        return reader(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}") from error


def read_jsonl(path: Path) -> Rows:
    """One row per line, where only "\\n" ends a line.

    Model responses hold other line separators (U+2028, U+0085, form feeds), at which
    `str.splitlines` would cut a row in two.
    """
    rows: Rows = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            encoding = "utf-8-sig" if number == 1 else "utf-8"
            text = line.decode(encoding).strip(" \t\r\n")
            if text:
                rows.append(_object(_parse(text, path, first_line=number), path, f"line {number}"))
    return rows


def read_json(path: Path) -> Rows:
    """The rows of a JSON array of objects; a file of one object per line is read as JSONL."""
    text = path.read_bytes().decode("utf-8-sig")
    if text.lstrip().startswith("{"):
        return read_jsonl(path)
    values = _parse(text, path, first_line=1)
    if not isinstance(values, list):
        raise DataError(f"{path} holds a {type(values).__name__}; expected an array of objects")
    return [_object(value, path, f"row {number}") for number, value in enumerate(values)]


def read_csv(path: Path) -> Rows:
    """The rows of a CSV file with a header line; every value stays the text it is."""
    # The module's limit on the length of a value is global and too low for model responses.
    limit_before = csv.field_size_limit(LONGEST_CSV_VALUE)
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            rows: Rows = []
            for number, values in enumerate(reader):
                if not values:
                    continue
                if len(values) != len(header):
                    raise DataError(
                        f"{path}, row {number}: {len(values)} values for {len(header)} columns "
                        f"({', '.join(header)})",
                        hint="quote values that hold commas, and give the file a header line",
                    )
                rows.append(dict(zip(header, values, strict=True)))
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: {error}") from error
        finally:
            csv.field_size_limit(limit_before)
    return rows


def read_parquet(path: Path) -> Rows:
    """The rows of a parquet file, nested lists and structs as Python lists and dicts."""
    from pyarrow import ArrowException, parquet

    try:
        rows: Rows = parquet.read_table(path).to_pylist()
    except ArrowException as error:
        raise DataError(f"{path} is not a readable parquet file: {error}") from error
    return rows


def _parse(text: str, path: Path, *, first_line: int) -> object:
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise DataError(
            f"{path}, line {line}, column {error.colno}: not JSON: {error.msg}",
            hint="a .jsonl file holds one whole JSON object on each line",
        ) from error
    return value


def _object(value: object, path: Path, place: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise DataError(f"{path}, {place}: a {type(value).__name__}; expected a JSON object")
    return value


READERS: Mapping[str, Callable[[Path], Rows]] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_json,
    ".parquet": read_parquet,
    ".csv": read_csv,
}
