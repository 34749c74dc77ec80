"""Rows of a parquet file of responses: `rollouts/*.parquet`, and `responses.parquet`.

Texts and tokens stay on disk until their row is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workings.errors import DataError

SHORT_COLUMNS = (
    *("problem_id", "sample", "source", "subject", "level", "reward", "components", "advantage"),
    *("verdict", "finish_reason", "num_tokens", "rollout_source"),
)
TEXT_COLUMNS = ("question", "prompt", "answer", "completion", "extracted", "tier")
TOKEN_COLUMNS = ("ids", "sampling_logprobs", "kept_mass", "mask", "off_policy")
SEARCHED = ("prompt", "completion", "answer")
_BATCH = 2048

Row = dict[str, Any]


def parquet_file(path: Path) -> Any:
    """The `pyarrow.parquet.ParquetFile`; DataError where it is none, or is no file of responses."""
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DataError(f"{path.name} is no parquet file, or is damaged: {error}") from error
    missing = {"problem_id", "completion"} - set(file.schema_arrow.names)
    if missing:
        raise DataError(f"{path.name} is no file of rollouts: it has no {', '.join(missing)}")
    return file


def from_parquet(row: Row) -> Row:
    """A parquet row with every key, the components as a dictionary."""
    names = (*SHORT_COLUMNS, *TEXT_COLUMNS, "format_reward", "answer_reward", "correct")
    row = dict.fromkeys(names) | row
    row["components"] = dict(row["components"] or {})
    return row


def parquet_rows(path: Path, numbers: Sequence[int], *, tokens: bool) -> dict[int, Row]:
    """The rows by their numbers, which are sorted; reading stops behind the last of them."""
    file = parquet_file(path)
    wanted = (*SHORT_COLUMNS, *TEXT_COLUMNS, *(TOKEN_COLUMNS if tokens else ()))
    columns = [name for name in wanted if name in file.schema_arrow.names]
    rows: dict[int, Row] = {}
    left = list(reversed(numbers))
    start = 0
    for group in range(file.num_row_groups):
        end = start + file.metadata.row_group(group).num_rows
        if left and left[-1] < end:
            first = start
            for batch in file.iter_batches(_BATCH, row_groups=[group], columns=columns):
                while left and left[-1] < first + batch.num_rows:
                    number = left.pop()
                    rows[number] = from_parquet(batch.slice(number - first, 1).to_pylist()[0])
                first += batch.num_rows
                if not left or left[-1] >= end:
                    break
        start = end
    return rows


def search_parquet(path: Path, needle: str) -> Iterator[bool]:
    """For every row, whether prompt, completion or gold holds the needle, in any case."""
    import pyarrow.compute as compute

    file = parquet_file(path)
    columns = [name for name in SEARCHED if name in file.schema_arrow.names]
    for batch in file.iter_batches(_BATCH, columns=columns):
        hits = np.zeros(batch.num_rows, dtype=bool)
        for name in columns:
            found = compute.match_substring(batch.column(name), needle, ignore_case=True)
            hits |= np.asarray(found.fill_null(False))
        yield from hits
