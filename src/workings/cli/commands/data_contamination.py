"""`workings data contamination`: which benchmark questions occur in a training set."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workings.cli.console import write_data, write_note
from workings.data.contamination import ContaminationIndex, OverlapRule
from workings.data.contamination_report import ContaminationReport
from workings.data.preparation.benchmarks import questions_of
from workings.data.preparation.source import Source, SourceFile, find_source, input_entry
from workings.data.preparation.source import stream_source as stream
from workings.data.preparation.without_rows import check_copy, copy_without
from workings.data.schemas import ID
from workings.data.training_texts import choices_offered, training_text
from workings.errors import DataError

PROGRESS_ROWS = 100_000


def run(
    train: str,
    *,
    against: Sequence[str],
    benchmarks_from: Path | None,
    ngram: int,
    min_words: int,
    min_share: float,
    column: str | None,
    split: str,
    files: Sequence[str],
    responses: bool,
    num_examples: int,
    out: Path | None,
    clean: Path | None,
    as_json: bool,
) -> int:
    """Report the overlaps; the table, or the report as JSON, goes to stdout."""
    source = find_source(train, patterns=tuple(files) or (f"**/{split}*", f"{split}*"), split=split)
    copied = None if clean is None else _one_file(source)
    if copied is not None and clean is not None:
        check_copy(copied, clean)
    if out is not None:
        _check_report(out, source)
    index = ContaminationIndex(
        questions_of(against, folder=benchmarks_from, log=write_note),
        OverlapRule(n=ngram, min_words=min_words, min_share=min_share),
    )
    report = ContaminationReport(index, num_examples=num_examples)
    inputs: list[dict[str, object]] = []

    def opened(file: SourceFile, path: Path) -> None:
        inputs.append(input_entry(file, path))

    overlapping: set[int] = set()
    unreadable = _Unreadable()
    columns: tuple[str, ...] = ()
    for row in stream(source, opened=opened):
        if row.values is None:
            unreadable.rows += 1
            continue
        columns = columns or tuple(row.values)
        asked, rest = training_text(row.values, column=column)
        found = report.add(
            *(_row_id(row.values, row.index), asked),
            options=unreadable.choices_of(row.values, row.place),
            more=rest if responses else "",
        )
        if found:
            overlapping.add(row.index)
        if report.num_rows % PROGRESS_ROWS == 0:
            write_note(f"{report.num_rows:,} rows, {report.num_overlapping:,} with an overlap")
    if report.num_rows == report.num_without_question and not responses:
        raise DataError(
            f"none of the {report.num_rows:,} rows of {train} has a question"
            + (f"; its columns: {', '.join(columns)}" if columns else "")
            + (f"; {unreadable.rows:,} more cannot be read" if unreadable.rows else ""),
            hint="name the column with --question, or look through all text with --responses",
        )
    result = {
        "train": {"origin": source.origin, "revision": source.revision, "inputs": inputs},
        "text": "question and responses" if responses else "question",
        "rows_unreadable": unreadable.rows,
        "rows_choices_unreadable": unreadable.choices,
        **report.as_dict(),
    }
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    if out is not None:
        _write_whole(out, text)
    write_data(text if as_json else "\n".join(report.lines()))
    write_note(
        f"{report.num_overlapping:,} of {report.num_rows:,} rows overlap"
        + (f"; {n:,} rows cannot be read" if (n := unreadable.rows) else "")
        + (f"; {n:,} rows have no question" if (n := report.num_without_question) else "")
    )
    if unreadable.choices:
        write_note(
            f"{unreadable.choices:,} rows are compared without their choices, which cannot be read "
            f"(first: {unreadable.first})"
        )
    if copied is not None and clean is not None:
        written = copy_without(copied, clean, overlapping)
        write_note(f"{clean}: {written:,} rows, {len(overlapping):,} left out")
    return 0


@dataclass(slots=True)
class _Unreadable:
    """Rows that cannot be read, and rows whose choices cannot, with the first of these."""

    rows: int = 0
    choices: int = 0
    first: str = ""

    def choices_of(self, values: Mapping[str, object], place: str) -> tuple[str, ...]:
        """The choices of a row; none, and counted, where they cannot be read."""
        try:
            return choices_offered(values)
        except DataError as error:
            self.choices += 1
            self.first = self.first or f"{place}: {error.message}"
            return ()


def _one_file(source: Source) -> Path:
    if len(source.files) != 1:
        raise DataError(
            f"{source.origin} has {len(source.files)} files, and a copy is made of one",
            hint="give one file, or prepare the set with --drop-contaminated",
        )
    return source.files[0].locate()


def _check_report(out: Path, source: Source) -> None:
    """Raise DataError where the report would take the place of a folder, or of the data."""
    if out.is_dir():
        raise DataError(f"--out {out} is a folder", hint="name a file, such as report.json")
    if source.revision is None and out.exists():
        files = (file.locate() for file in source.files)
        if any(out.samefile(file) for file in files):
            raise DataError(f"--out {out} is the training set itself", hint="name another file")


def _row_id(values: object, index: int) -> str:
    """The number of the row, and its own id where it has one."""
    own = next((values[c] for c in ID.columns if c in values), None)  # type: ignore[index,operator]
    return f"row {index}" if own is None else f"row {index} ({own})"


def _write_whole(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error
