"""Rows of a file of responses, read page by page.

A JSONL file is scanned once for where its rows begin; a parquet file knows its rows. Texts and
tokens stay on disk until their row is shown. Every kind of file gives rows with the same keys
(`results.jsonl` says response and ground_truth, `rollouts/*.parquet` completion and answer,
`eval-luffy` generated_text). Only the one JSON object of a whole-run file is read as it is.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workings.errors import DataError
from workings.evaluation.other_rows import as_result_row
from workings.viewer.beside import add_tokens, stored_lengths, stored_sources
from workings.viewer.parquet_rows import SEARCHED, Row, parquet_file, parquet_rows, search_parquet
from workings.viewer.versions import Version, version_of
from workings.viewer.whole_run import whole_run_rows

_CHUNK = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowFile:
    """A file of responses.

    Attributes:
        num_rows: how many there are.
        offsets: int64 [num_rows], the byte where each row of a JSONL file begins; None for others.
    """

    path: Path
    num_rows: int
    offsets: np.ndarray[Any, np.dtype[np.int64]] | None

    @property
    def version(self) -> Version:
        """Path, time of change and size: what was made from the file holds while this is equal."""
        return version_of(self.path)


def open_rows(path: Path) -> RowFile:
    """The file, counted; kept in memory until it changes."""
    return _open(version_of(path))


def read_rows(file: RowFile, numbers: Sequence[int], *, tokens: bool = False) -> list[Row]:
    """The rows with these numbers, in the order asked for.

    Each has problem_id, sample, source, subject, level, prompt, question, answer, completion,
    extracted, verdict, tier, reward, format_reward, answer_reward, correct, advantage, components,
    finish_reason, num_tokens and rollout_source; with `tokens` also ids, sampling_logprobs,
    kept_mass, mask and off_policy where they are stored. What the file does not know is None.
    """
    if not numbers:
        return []
    ordered = sorted(set(numbers))
    if ordered[0] < 0 or ordered[-1] >= file.num_rows:
        raise DataError(f"{file.path.name} has rows 0 to {file.num_rows - 1}; asked for {numbers}")
    if file.offsets is not None:
        found = _jsonl_rows(file, ordered, tokens=tokens)
    elif file.path.suffix == ".json":
        whole = whole_run_rows(file.path)
        found = {number: from_json(whole[number]) for number in ordered}
    else:
        found = parquet_rows(file.path, ordered, tokens=tokens)
    return [found[number] for number in numbers]


def matching_rows(file: RowFile, text: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """bool [num_rows]: whether prompt, response or gold holds `text`, in any case."""
    search = {".jsonl": _search_jsonl, ".json": _search_whole, ".parquet": search_parquet}
    found = search[file.path.suffix](file.path, text.lower())
    return np.fromiter(found, dtype=bool, count=file.num_rows)


@functools.lru_cache(maxsize=32)
def _open(version: Version) -> RowFile:
    path = Path(version[0])
    if path.suffix == ".json":
        return RowFile(path=path, num_rows=len(whole_run_rows(path)), offsets=None)
    if path.suffix == ".parquet":
        return RowFile(path=path, num_rows=parquet_file(path).metadata.num_rows, offsets=None)
    offsets = _line_offsets(path)
    return RowFile(path=path, num_rows=len(offsets), offsets=offsets)


# -------------------------------------------------------------------------------------- JSONL


def json_object(path: Path, line: bytes | str) -> Row:
    """The object in a line; DataError where it is something else."""
    try:
        value = json.loads(line)
    except ValueError as error:
        raise DataError(f"{path.name} holds a line that is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{path.name} holds {type(value).__name__}; expected JSON objects")
    return value


def from_json(row: Mapping[str, Any]) -> Row:
    """A row of results.jsonl under the names that parquet has; other programs store fewer."""
    row = as_result_row(row)
    metrics = row.get("metrics") or {}
    known = {
        "problem_id": _text(row.get("id")),
        "source": _text(row.get("source", row.get("data_source"))),
        "question": _text(row.get("question")),
        "answer": _text(row.get("ground_truth")),
        "prompt": _text(row.get("prompt")),
        "completion": _text(row.get("response")) or "",
        "extracted": _text(row.get("extracted")),
        "subject": _text(row.get("subject")),
        "level": _text(row.get("level")),
        "num_tokens": row.get("response_tokens"),
        "format_reward": metrics.get("format_reward"),
        "answer_reward": metrics.get("answer_reward"),
        "reward": metrics.get("reward"),
        "components": row.get("components") or {},
    }
    others = ("correct", "sample", "verdict", "tier", "finish_reason", "advantage")
    return known | {name: row.get(name) for name in (*others, "rollout_source")}


def _line_offsets(path: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where the lines begin that are not empty."""
    begins = [np.zeros(1, dtype=np.int64)]
    position = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            begins.append(np.flatnonzero(np.frombuffer(chunk, np.uint8) == 10) + (position + 1))
            position += len(chunk)
    places = np.concatenate(begins)
    lengths = np.diff(np.append(places, position))
    return places[lengths > len("\r\n")]


def _jsonl_rows(file: RowFile, numbers: Sequence[int], *, tokens: bool) -> dict[int, Row]:
    assert file.offsets is not None
    rows = {}
    with file.path.open("rb") as lines:
        for number in numbers:
            lines.seek(int(file.offsets[number]))
            rows[number] = from_json(json_object(file.path, lines.readline()))
    for row in rows.values():
        if row["source"] is None:
            row["source"] = stored_sources(file.path).get(row["problem_id"])
        if row["num_tokens"] is None:
            key = (row["problem_id"], row["sample"])
            row["num_tokens"] = stored_lengths(file.path).get(key)
    if tokens:
        add_tokens(file.path, rows)
    return rows


def _search_jsonl(path: Path, needle: str) -> Iterator[bool]:
    """Lines are parsed only where the longest plain word of the needle occurs in their bytes."""
    words = re.findall(r"[a-z0-9]+", needle)
    probe = max(words, key=len).encode() if words else b""
    with path.open("rb") as file:
        for line in file:
            if len(line) <= len("\r\n"):
                continue
            if probe not in line.lower():
                yield False
                continue
            yield _holds(from_json(json_object(path, line)), needle)


def _search_whole(path: Path, needle: str) -> Iterator[bool]:
    return (_holds(from_json(row), needle) for row in whole_run_rows(path))


def _holds(row: Row, needle: str) -> bool:
    return any(needle in (row[name] or "").lower() for name in SEARCHED)


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
