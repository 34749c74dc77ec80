"""Rows of a file of responses, read page by page and never as a whole.

A JSONL file is scanned once for where its rows begin; a parquet file knows its rows. Texts and
tokens stay on disk until their row is shown. Both kinds of file give rows with the same keys
(`results.jsonl` says response and ground_truth, `rollouts/*.parquet` completion and answer).
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
from workings.evaluation.responses import RESPONSES_FILE

SHORT_COLUMNS = (
    *("problem_id", "sample", "subject", "level", "reward", "components", "advantage"),
    *("verdict", "finish_reason", "num_tokens", "rollout_source"),
)
TEXT_COLUMNS = ("question", "prompt", "answer", "completion", "extracted", "tier")
TOKEN_COLUMNS = ("ids", "sampling_logprobs", "kept_mass", "mask", "off_policy")
SEARCHED = ("prompt", "completion", "answer")
_BATCH = 2048
_CHUNK = 1 << 24

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowFile:
    """A file of responses.

    Attributes:
        num_rows: how many there are.
        offsets: int64 [num_rows], the byte where each row of a JSONL file begins; None for parquet.
    """

    path: Path
    num_rows: int
    offsets: np.ndarray[Any, np.dtype[np.int64]] | None

    @property
    def version(self) -> tuple[str, int, int]:
        """Path, time of change and size: what was made from the file holds while this is equal."""
        return version_of(self.path)


def version_of(path: Path) -> tuple[str, int, int]:
    """Path, time of change in nanoseconds, and size."""
    state = path.stat()
    return str(path), state.st_mtime_ns, state.st_size


def open_rows(path: Path) -> RowFile:
    """The file, counted; kept in memory until it changes."""
    return _open(version_of(path))


def read_rows(file: RowFile, numbers: Sequence[int], *, tokens: bool = False) -> list[Row]:
    """The rows with these numbers, in the order asked for.

    Each has problem_id, sample, subject, level, prompt, question, answer, completion, extracted,
    verdict, tier, reward, format_reward, answer_reward, correct, advantage, components,
    finish_reason, num_tokens and rollout_source; with `tokens` also ids, sampling_logprobs,
    kept_mass, mask and off_policy where they are stored. What the file does not know is None.
    """
    if not numbers:
        return []
    ordered = sorted(set(numbers))
    if ordered[0] < 0 or ordered[-1] >= file.num_rows:
        raise DataError(f"{file.path.name} has rows 0 to {file.num_rows - 1}; asked for {numbers}")
    if file.offsets is None:
        found = _parquet_rows(file.path, ordered, tokens=tokens)
    else:
        found = _jsonl_rows(file, ordered, tokens=tokens)
    return [found[number] for number in numbers]


def matching_rows(file: RowFile, text: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """bool [num_rows]: whether prompt, response or gold holds `text`, in any case."""
    found = _search_jsonl if file.offsets is not None else _search_parquet
    return np.fromiter(found(file.path, text.lower()), dtype=bool, count=file.num_rows)


@functools.lru_cache(maxsize=32)
def _open(version: tuple[str, int, int]) -> RowFile:
    path = Path(version[0])
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
    """A row of results.jsonl under the names that parquet has; earlier programs store fewer."""
    metrics = row.get("metrics") or {}
    known = {
        "problem_id": _text(row.get("id")),
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
    beside = file.path.with_name(RESPONSES_FILE)
    if tokens and beside.is_file() and not beside.is_symlink():
        _add_tokens(rows, beside)
    return rows


def _add_tokens(rows: dict[int, Row], beside: Path) -> None:
    """Give rows of results.jsonl the tokens that were stored for the same problem and sample."""
    ids = parquet_file(beside).read(columns=["problem_id", "sample"]).to_pydict()
    places = {key: n for n, key in enumerate(zip(ids["problem_id"], ids["sample"], strict=True))}
    keys = {number: (row["problem_id"], row["sample"]) for number, row in rows.items()}
    wanted = {number: places[key] for number, key in keys.items() if key in places}
    found = _parquet_rows(beside, sorted(wanted.values()), tokens=True) if wanted else {}
    for number, place in wanted.items():
        # Responses that were sampled again since these were graded are other responses.
        if found[place]["completion"] == rows[number]["completion"]:
            rows[number] |= {name: found[place].get(name) for name in TOKEN_COLUMNS}


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
            row = from_json(json_object(path, line))
            yield any(needle in (row[name] or "").lower() for name in SEARCHED)


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
