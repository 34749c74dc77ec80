"""`workings grade`: stored responses graded, with the reason of every verdict."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.text import Text

from workings.cli.console import stderr_console, write_data, write_note
from workings.cli.grade.columns import AskedFor
from workings.cli.grade.explain_text import (
    BARE_HINT,
    explanation_json,
    offers_bare,
    print_explanation,
)
from workings.cli.grade.grade_file import (
    Options,
    Source,
    grade_file,
    grade_stream,
    open_file,
    open_stream,
)
from workings.cli.grade.output import output_path, summary_path
from workings.cli.grade.report import bad_rows, print_report
from workings.cli.grade.tally import BAD_ROW
from workings.cli.terminal_text import for_terminal
from workings.errors import ConfigError, DataError
from workings.grading.explain import explain
from workings.grading.grader import Grader
from workings.grading.policy import ExtractionPolicy, GradingPolicy
from workings.types import Verdict

STANDARD = "-"
MOST_WORKERS = 4
DEFAULT_POLICY, DEFAULT_SHOWN = "boxed", 10
FAULTS = (Verdict.BAD_GOLD.value, Verdict.INTERNAL_ERROR.value)


def run(
    files: Sequence[str],
    *,
    pair: tuple[str, str] | None,
    policy: str | None,
    deadline: float,
    num_workers: int | None,
    asked: AskedFor,
    out: str | None,
    bare: bool,
    fresh: bool,
    strict: bool,
    as_json: bool,
    show: int | None,
) -> int:
    """Grade every file, or explain the grade of one `pair` (gold, response).

    With `strict`, 1 for a bad gold or an internal error. DataError at the end where rows could not
    be graded; what could be is written all the same.
    """
    if bare and policy is not None:
        raise ConfigError(f"--bare reads nothing out of a response, so --policy {policy} is unused")
    extraction = cast(ExtractionPolicy, policy or DEFAULT_POLICY)
    grading = GradingPolicy(extraction=extraction, deadline_seconds=deadline)
    if pair is not None:
        of_files = {"--out": out, "--fresh": fresh, "--workers": num_workers, "--show": show}
        _refuse_for_one_pair(files, asked, of_files)
        return _explain(*pair, policy=grading, bare=bare, as_json=as_json, strict=strict)
    if not files:
        raise ConfigError(
            "no file to grade", hint="name files, - for standard input, or --explain GOLD RESPONSE"
        )
    options = Options(
        asked=asked, bare=bare, fresh=fresh, show=DEFAULT_SHOWN if show is None else show
    )
    with Grader(grading, num_workers=num_workers or default_workers()) as grader:
        summaries = _grade_files(files, out, grader, options, as_json=as_json)
    _refuse_bad_rows(summaries)
    return 1 if strict and any(map(_is_faulty, summaries.values())) else 0


def default_workers() -> int:
    """One process for each processor that may be used, up to four."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(usable or 1, MOST_WORKERS)


def _grade_files(
    files: Sequence[str],
    out: str | None,
    grader: Grader,
    options: Options,
    *,
    as_json: bool,
) -> dict[str, dict[str, Any]]:
    """Name of a source to its summary, which has been printed."""
    _refuse_mixtures(files, out)
    sources = [_opened(file, options.asked) for file in files]
    outputs = _outputs(files, out)
    summaries: dict[str, dict[str, Any]] = {}
    for source, output in zip(sources, outputs, strict=True):
        write_note(_columns_used(source))
        summary = summaries[source.name] = _graded(source, output, grader, options)
        # What a reader of the verdicts gets on stdout must be nothing else.
        console = Console(stderr=output is None, highlight=False)
        if as_json:
            console.file.write(json.dumps(summary, indent=2) + "\n")
            continue
        console.print()
        if len(files) > 1:
            console.print(Text(for_terminal(source.name), style="bold"), soft_wrap=True)
        print_report(summary, console)
    return summaries


def _refuse_bad_rows(summaries: Mapping[str, Mapping[str, Any]]) -> None:
    broken = [
        bad_rows(summary, name)
        for name, summary in summaries.items()
        if BAD_ROW in summary["verdicts"]
    ]
    if broken:
        raise DataError(
            "\n".join(broken),
            hint="all other rows are graded; these stand in the output without a verdict",
        )


def _is_faulty(summary: Mapping[str, Any]) -> bool:
    return any(fault in summary["verdicts"] for fault in FAULTS)


# --------------------------------------------------------------------------------- one pair


def _refuse_for_one_pair(
    files: Sequence[str], asked: AskedFor, options: Mapping[str, object]
) -> None:
    if files:
        raise ConfigError(
            f"--explain takes one gold and one response; {files[0]!r} is too much",
            hint="quote texts with spaces: --explain GOLD RESPONSE",
        )
    columns = {f"--{field.name}": getattr(asked, field.name) for field in fields(asked)}
    given = [name for name, value in {**columns, **options}.items() if value]
    if given:
        raise ConfigError(f"{' and '.join(given)} are for files, and --explain takes one pair")


def _explain(
    gold: str, response: str, *, policy: GradingPolicy, bare: bool, as_json: bool, strict: bool
) -> int:
    """Print how the grade of one pair comes about; `-` is read from standard input."""
    if gold == response == STANDARD:
        raise ConfigError("gold and response cannot both come from standard input")
    gold, response = (_text_of(given) for given in (gold, response))
    explanation = explain(response, gold, policy, bare=bare)
    if as_json:
        write_data(explanation_json(explanation))
    else:
        print_explanation(explanation, response, Console(highlight=False))
        if offers_bare(explanation) and not bare:
            write_note(BARE_HINT)
    return 1 if strict and explanation.grade.verdict.value in FAULTS else 0


def _text_of(given: str) -> str:
    if given != STANDARD:
        return given
    return sys.stdin.buffer.read().decode("utf-8", errors="replace").removesuffix("\n")


# ------------------------------------------------------------------------------- in and out


def _refuse_mixtures(files: Sequence[str], out: str | None) -> None:
    """Raise ConfigError for files that cannot be graded by one command."""
    twice = [file for file, count in Counter(files).items() if count > 1]
    if twice:
        raise ConfigError(f"{twice[0]} is given twice")
    if STANDARD in files and len(files) > 1:
        raise ConfigError("standard input is graded by itself; leave the other files out")
    if out == STANDARD and len(files) > 1:
        raise ConfigError("--out - takes the verdicts of one file, and several are given")


def _outputs(files: Sequence[str], out: str | None) -> list[Path | None]:
    """Where the verdicts on each file go; None is stdout."""
    if out == STANDARD or (out is None and STANDARD in files):
        return [None]
    outputs = [_output(Path(file), out, several=len(files) > 1) for file in files]
    clash = [output for output, count in Counter(outputs).items() if count > 1]
    if clash:
        raise ConfigError(
            f"two of the files would write {clash[0]}", hint="grade them one by one, with --out"
        )
    for file, output in zip(files, outputs, strict=True):
        if output.exists() and Path(file).exists() and output.samefile(file):
            raise ConfigError(f"--out {out} is the file that is graded")
    return list(outputs)


def _output(file: Path, out: str | None, *, several: bool) -> Path:
    if out is None:
        return output_path(file)
    folder = Path(out)
    return folder / output_path(file).name if several or folder.is_dir() else folder


def _opened(file: str, asked: AskedFor) -> Source:
    if file == STANDARD:
        return open_stream(sys.stdin.buffer, asked)
    path = Path(file)
    if path.is_dir():
        inside = sorted([*path.rglob("responses.parquet"), *path.glob("rollouts/*.parquet")])
        raise DataError(
            f"{path} is a folder",
            hint=f"name files in it, such as {inside[0]}" if inside else "name files",
        )
    return open_file(path, asked)


def _graded(
    source: Source, output: Path | None, grader: Grader, options: Options
) -> dict[str, Any]:
    if output is None:
        return grade_stream(source, sys.stdout.buffer, grader, options)
    start = time.monotonic()
    try:
        summary, num_new = grade_file(source, output, grader, options, console=stderr_console())
    except KeyboardInterrupt:
        if source.path is not None:
            write_note("what is graded is kept; the same command goes on from there")
        raise
    except OSError as error:
        raise DataError(
            f"{error.filename or output} cannot be written: {error.strerror or error}",
            hint="what is graded is kept; the same command goes on from there",
        ) from error
    if not num_new and summary["responses"]:
        write_note(f"{output} was finished before with these settings; kept")
    else:
        seconds = max(time.monotonic() - start, 1e-3)
        earlier = summary["responses"] - num_new
        write_note(
            f"{num_new:,} graded in {seconds:.1f} s, {num_new / seconds:,.0f} a second"
            + (f"; {earlier:,} were graded by an earlier start" if earlier else "")
        )
    write_note(f"verdicts in {output}, counts in {summary_path(output).name}")
    return summary


# ------------------------------------------------------------------------------- what is said


def _columns_used(source: Source) -> str:
    columns = source.columns
    by = f", by {' and '.join(map(repr, columns.by))}" if columns.by else ""
    same = f"; rows with the same {columns.problem!r} are one problem" if columns.problem else ""
    return (
        f"{source.name}: responses from {columns.response!r}, golds from {columns.gold!r}{by}{same}"
    )
