"""One file graded: rows in, verdicts out in chunks, a summary at the end."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console

import workings
from workings.cli.grade.columns import AskedFor, Columns, choose_columns
from workings.cli.grade.output import GradedFile, is_finished, json_line, read_records
from workings.cli.grade.pairs import Pair, pairs_of
from workings.cli.grade.progress import GradingProgress
from workings.cli.grade.tally import Tally
from workings.data.streaming import StreamedRow, count_rows, stream_file, stream_jsonl
from workings.errors import DataError
from workings.grading.grader import Grader
from workings.grading.policy import GRADER_VERSION
from workings.types import Grade, Verdict

LOOKED_AT = 100
"""Rows from which the columns are chosen."""
CHUNK_SECONDS = 0.5
"""Work that a kill may cost."""
FIRST_CHUNK, SMALLEST_CHUNK, LARGEST_CHUNK = 16, 8, 4096
MOST_CHARACTERS = 16_000_000
"""Of the responses of one chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command was asked for, but for its files.

    `bare` compares a response as the answer itself; `show` rows of each kind are listed.
    """

    asked: AskedFor
    bare: bool = False
    fresh: bool = False
    show: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file to grade, looked at once.

    Attributes:
        name: for messages.
        path: None for standard input.
        columns: where its responses and golds stand.
        rows: all of its rows, to be read once.
        total: how many there are, None where that is not known before.
    """

    name: str
    path: Path | None
    columns: Columns
    rows: Iterator[StreamedRow]
    total: int | None


def open_file(path: Path, asked: AskedFor) -> Source:
    """The source that a file is; DataError where it cannot be read or lacks a column."""
    first = list(islice(stream_file(path), LOOKED_AT))
    columns = choose_columns(first, asked, origin=str(path))
    return Source(
        name=str(path),
        path=path,
        columns=columns,
        rows=stream_file(path, columns=columns.roots),
        total=count_rows(path),
    )


def open_stream(stream: BinaryIO, asked: AskedFor) -> Source:
    """The source that JSONL on standard input is."""
    rows = stream_jsonl(stream)
    first = list(islice(rows, LOOKED_AT))
    name = "standard input"
    columns = choose_columns(first, asked, origin=name)
    return Source(name=name, path=None, columns=columns, rows=chain(first, rows), total=None)


def settings_of(source: Source, grader: Grader, options: Options) -> dict[str, Any]:
    """What the verdicts depend on, as JSON holds it."""
    settings = {
        "file": source.name,
        "sha256": None if source.path is None else _checksum(source.path),
        "policy": asdict(grader.policy),
        "bare": options.bare,
        "grader_version": GRADER_VERSION,
        "workings": workings.__version__,
        "columns": asdict(source.columns),
    }
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def grade_file(
    source: Source, output: Path, grader: Grader, options: Options, *, console: Console
) -> tuple[dict[str, Any], int]:
    """(summary, responses graded by this start); `output` and its summary are there afterwards.

    A half-written output is gone on with, and one that is whole is kept. DataError where what is
    there was made with other settings.
    """
    settings = settings_of(source, grader, options)
    tally = Tally(source.columns, show=options.show)
    if is_finished(output, settings, fresh=options.fresh):
        for record in read_records(output):
            tally.add(record)
        return {**tally.summary(), "settings": settings}, 0
    # Standard input cannot be read again, so nothing of an earlier start fits to it.
    fresh = options.fresh or source.path is None
    with GradedFile(output, settings, fresh=fresh) as graded:
        last: Mapping[str, Any] = {}
        for last in graded.earlier_records():
            tally.add(last)
        pairs = pairs_of(source.rows, source.columns)
        _skip(pairs, graded.num_done, last, output)
        with GradingProgress(output.name, total=source.total, console=console) as progress:
            progress.update(tally.num_rows, tally.verdicts)
            for records in graded_chunks(pairs, grader, bare=options.bare):
                graded.write(b"".join(map(json_line, records)))
                for record in records:
                    tally.add(record)
                progress.update(tally.num_rows, tally.verdicts)
        summary = {**tally.summary(), "settings": settings}
        graded.finish(summary)
    return summary, summary["responses"] - graded.num_done


def grade_stream(
    source: Source, target: BinaryIO, grader: Grader, options: Options
) -> dict[str, Any]:
    """The summary; every verdict goes to `target` as soon as it is there."""
    tally = Tally(source.columns, show=options.show)
    for records in graded_chunks(pairs_of(source.rows, source.columns), grader, bare=options.bare):
        target.write(b"".join(map(json_line, records)))
        target.flush()
        for record in records:
            tally.add(record)
    return {**tally.summary(), "settings": settings_of(source, grader, options)}


def graded_chunks(
    pairs: Iterable[Pair], grader: Grader, *, bare: bool
) -> Iterator[list[dict[str, Any]]]:
    """The records of `pairs`, in order; chunks are sized so that each takes about half a second."""
    remaining = iter(pairs)
    size = FIRST_CHUNK
    while chunk := _chunk(remaining, size):
        start = time.monotonic()
        yield [record_of(*one) for one in zip(chunk, _grades(chunk, grader, bare), strict=True)]
        factor = CHUNK_SECONDS / max(time.monotonic() - start, 1e-3)
        size = round(size * min(max(factor, 0.25), 4.0))
        size = min(max(size, SMALLEST_CHUNK), LARGEST_CHUNK)


def record_of(pair: Pair, grade: Grade | None) -> dict[str, Any]:
    """The line of one response; a row without one has no verdict, and the reason why."""
    record: dict[str, Any] = {"index": pair.index}
    if pair.line is not None:
        record["line"] = pair.line
    record |= {
        "sample": pair.sample,
        "verdict": None if grade is None else grade.verdict.value,
        "correct": grade is not None and grade.correct,
        "tier": None if grade is None else grade.tier,
        "gold": pair.gold,
        "extracted": None if grade is None else grade.extracted,
        "reason": pair.fault if grade is None else grade.reason,
        "milliseconds": 0.0 if grade is None else round(grade.milliseconds, 3),
    }
    if pair.expected is not None:
        record["expected"] = pair.expected
    if pair.debatable:
        record["debatable"] = True
    if pair.kept:
        record["kept"] = dict(pair.kept)
    return record


def _grades(pairs: Sequence[Pair], grader: Grader, bare: bool) -> list[Grade | None]:
    asked = [pair for pair in pairs if pair.response is not None and pair.gold is not None]
    responses = [pair.response or "" for pair in asked]
    golds = [pair.gold or "" for pair in asked]
    given = iter((grader.compare_batch if bare else grader.grade_batch)(responses, golds))
    return [_grade(pair, given) for pair in pairs]


def _grade(pair: Pair, given: Iterator[Grade]) -> Grade | None:
    if pair.response is None:
        return None
    if pair.gold is None:
        return Grade(verdict=Verdict.BAD_GOLD, reason=pair.gold_fault)
    return next(given)


def _chunk(pairs: Iterator[Pair], size: int) -> list[Pair]:
    chunk: list[Pair] = []
    characters = 0
    while len(chunk) < size and characters < MOST_CHARACTERS:
        pair = next(pairs, None)
        if pair is None:
            break
        chunk.append(pair)
        characters += len(pair.response or "")
    return chunk


def _skip(pairs: Iterator[Pair], count: int, last: Mapping[str, Any], output: Path) -> None:
    """Pass over the pairs that an earlier start graded; DataError where they are not those."""
    pair = next(islice(pairs, count - 1, count), None) if count else None
    if count and (pair is None or (pair.index, pair.sample) != (last["index"], last["sample"])):
        raise DataError(
            f"the verdicts in {output}.part do not fit to the rows that are read",
            hint="--fresh begins anew",
        )


def _checksum(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
