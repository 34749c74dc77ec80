"""A copy of a data file without some of its rows, the others byte for byte or value for value."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from workings.data.preparation.json_arrays import holds_array
from workings.data.streaming import PARQUET_ROWS
from workings.errors import DataError

PARQUET = ".parquet"
SUFFIXES = (".jsonl", ".ndjson", PARQUET)


def check_copy(source: Path, target: Path) -> None:
    """Raise DataError where `copy_without` cannot write `target` from `source`."""
    if source.suffix.lower() not in SUFFIXES or target.suffix.lower() != source.suffix.lower():
        raise DataError(
            f"a copy of {source} without some rows cannot be written to {target}",
            hint=f"both must end alike, in {', '.join(SUFFIXES)}",
        )
    if source.suffix.lower() != PARQUET and holds_array(source):
        raise DataError(
            f"{source} holds one JSON array, and a copy leaves out whole lines",
            hint="write it with one JSON object on each line first, "
            "as `jq -c '.[]' FILE > NEW.jsonl` does",
        )
    if target.exists():
        raise DataError(f"{target} exists", hint="choose another name; nothing is overwritten")
    if not target.parent.is_dir():
        raise DataError(f"{target.parent} is not a folder", hint="make it first")


def copy_without(source: Path, target: Path, rows: Collection[int]) -> int:
    """Write `source` to `target` without the rows of these numbers; gives the rows written.

    Rows count from 0, blank lines do not count. The file appears whole or not at all.
    """
    check_copy(source, target)
    beside = target.with_name(f".{target.name}.part")
    try:
        copy = _copy_parquet if source.suffix.lower() == PARQUET else _copy_lines
        written = copy(source, beside, rows)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    os.replace(beside, target)
    return written


def _copy_lines(source: Path, target: Path, rows: Collection[int]) -> int:
    index = written = 0
    with source.open("rb") as old, target.open("wb") as new:
        for number, line in enumerate(old):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line
            if not text.strip(b" \t\r\n"):
                continue
            if index not in rows:
                new.write(line if line.endswith(b"\n") else line + b"\n")
                written += 1
            index += 1
    return written


def _copy_parquet(source: Path, target: Path, rows: Collection[int]) -> int:
    from pyarrow import parquet

    file = parquet.ParquetFile(source)
    start = written = 0
    with parquet.ParquetWriter(target, file.schema_arrow, compression="zstd") as new:
        for batch in file.iter_batches(batch_size=PARQUET_ROWS):
            kept = [i for i in range(batch.num_rows) if start + i not in rows]
            new.write_batch(batch.take(kept))
            start += batch.num_rows
            written += len(kept)
    return written
