"""A summary of verdicts as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from workings.cli.grade.tally import BAD_ROW
from workings.cli.terminal_text import on_one_line
from workings.evaluation.tables import format_share
from workings.types import Verdict

Summary = Mapping[str, Any]
MOST_NAMES = 50
LONGEST_NAME, LONGEST_ANSWER, LONGEST_REASON = 40, 60, 160
EQUAL, DIFFERENT = Verdict.EQUAL.value, Verdict.DIFFERENT.value
MEANINGS = {
    EQUAL: "agreement was proved",
    DIFFERENT: "disagreement was proved",
    Verdict.NO_ANSWER.value: "the response gives no answer",
    Verdict.UNDECIDED.value: "no tier could decide",
    Verdict.REFUSED.value: "too large to evaluate",
    Verdict.TIMEOUT.value: "the deadline passed",
    Verdict.BAD_GOLD.value: "the gold cannot be graded against",
    Verdict.INTERNAL_ERROR.value: "the grader failed",
    BAD_ROW: "the row cannot be graded",
}
LISTS = {
    "false_positives": "false positives: called equal, labelled false",
    "false_negatives": "false negatives: not called equal, labelled true",
    Verdict.INTERNAL_ERROR.value: "internal errors",
    Verdict.BAD_GOLD.value: "bad golds",
}


def print_report(summary: Summary, console: Console) -> None:
    """Accuracy, then tables by verdict, tier, column and label, then the rows that need a look."""
    write_text(console, Text(_headline(summary), style="bold"))
    for table in _tables(summary):
        write_text(console, "", table)
    if "expected" in summary:
        write_text(console, _agreement(summary["expected"]))
    for name, heading in LISTS.items():
        listed = summary["listed"].get(name, ())
        count = _count_of(summary, name)
        if listed:
            write_text(console, "", Text(f"{heading} ({count:,})", style="bold"))
            write_text(console, *(_row(record, name) for record in listed))
        if count > len(listed):
            more = count - len(listed)
            write_text(console, f"  and {more:,} more; --show {count} lists them")


def write_text(console: Console, *parts: RenderableType) -> None:
    """Print `parts`, one below the other, without the spaces that fill up a table's lines."""
    with console.capture() as captured:
        for part in parts:
            console.print(part, markup=False)
    lines = captured.get().split("\n")
    console.file.write("\n".join(line.rstrip(" ") for line in lines))


def bad_rows(summary: Summary, source: str) -> str:
    """What is wrong with the rows that could not be graded: how many, and the first of them."""
    count = _count_of(summary, BAD_ROW)
    lines = [f"{source}: {count:,} of {summary['rows']:,} rows cannot be graded"]
    lines += [f"  {place(record)}: {record['reason']}" for record in summary["listed"][BAD_ROW]]
    shown = len(lines) - 1
    return "\n".join([*lines, *([f"  and {count - shown:,} more"] if count > shown else [])])


def place(record: Mapping[str, Any]) -> str:
    """Where a record's row stands in its file.

    >>> place({"index": 3, "line": 4}), place({"index": 3, "sample": 2})
    ('line 4', 'row 3, sample 2')
    """
    where = f"line {record['line']}" if "line" in record else f"row {record['index']}"
    return where + (f", sample {record['sample']}" if record.get("sample") else "")


def format_accuracy(accuracy: Mapping[str, Any]) -> str:
    """A share with its interval, or a dash where nothing can be counted.

    >>> format_accuracy({"value": 0.824, "low": 0.7882, "high": 0.8549})
    '82.4 % [78.8, 85.5]'
    """
    if accuracy["value"] is None:
        return "-"
    return format_share(accuracy["value"], accuracy["low"], accuracy["high"])


def _headline(summary: Summary) -> str:
    accuracy = summary["accuracy"]
    text = f"accuracy {format_accuracy(accuracy)}: {accuracy['correct']:,} of {accuracy['of']:,}"
    if accuracy["interval"] != "wilson" and accuracy["value"] is not None:
        text += f" responses to {accuracy['problems']:,} problems, mean and interval over problems"
    settings = summary["settings"]
    policy = "compared as they are" if settings["bare"] else settings["policy"]["extraction"]
    left_out = summary["responses"] - accuracy["of"]
    return f"{text}; policy {policy}" + (f"; {left_out:,} left out" if left_out else "")


def _tables(summary: Summary) -> Iterator[Table]:
    yield _verdict_table(summary)
    yield _tier_table(summary)
    for path, names in summary["by"].items():
        yield _name_table(path, names, num_values=summary["values"][path])
    if "expected" in summary:
        yield _label_table(summary["expected"])


def _verdict_table(summary: Summary) -> Table:
    table = _table("verdict", "responses", "share", left=("meaning",))
    for verdict, count in summary["verdicts"].items():
        share = f"{100 * count / summary['responses']:.1f} %"
        _add(table, verdict, f"{count:,}", share, MEANINGS[verdict])
    return table


def _tier_table(summary: Summary) -> Table:
    table = _table("tier", "responses", "equal", "different", "other", "mean ms", "99 %", "worst")
    for name, tier in summary["tiers"].items():
        equal, different = (tier["verdicts"].get(one, 0) for one in (EQUAL, DIFFERENT))
        others = tier["responses"] - equal - different
        times = [f"{tier['milliseconds'][one]:,.2f}" for one in ("mean", "p99", "max")]
        counts = [f"{n:,}" for n in (tier["responses"], equal, different, others)]
        _add(table, name, *counts, *times)
    return table


def _name_table(path: str, names: Mapping[str, Any], *, num_values: int) -> Table:
    table = _table(path, "responses", "accuracy, 95 %", left=("not equal",))
    frequent = sorted(names, key=lambda name: -sum(names[name]["verdicts"].values()))[:MOST_NAMES]
    for name in sorted(frequent):
        one = names[name]
        others = {verdict: n for verdict, n in one["verdicts"].items() if verdict != EQUAL}
        told = ", ".join(f"{verdict} {n:,}" for verdict, n in others.items())
        responses = sum(one["verdicts"].values())
        _add(table, _cut(name, LONGEST_NAME), f"{responses:,}", format_accuracy(one), told)
    if num_values > len(frequent):
        where = "in the summary file" if num_values == len(names) else "less frequent"
        _add(table, f"and {num_values - len(frequent):,} more", "", "", where)
    return table


def _label_table(labels: Mapping[str, Any]) -> Table:
    table = _table(str(labels["column"]), "graded equal", "graded otherwise")
    positives = (labels["true_positives"], labels["false_negatives"])
    negatives = (labels["false_positives"], labels["true_negatives"])
    for name, counts in (("true", positives), ("false", negatives)):
        _add(table, name, *(f"{n:,}" for n in counts))
    return table


def _agreement(labels: Mapping[str, Any]) -> str:
    told = f"agrees with {format_accuracy(labels['agreement'])} of {labels['labelled']:,} labels"
    apart = [f"{labels[name]:,} {name}" for name in ("debatable", "unlabelled") if labels[name]]
    return told + "".join(f"; {one} not counted" for one in apart)


def _row(record: Mapping[str, Any], name: str) -> Table:
    """Where a row stands, and why it got its verdict, on as many lines as that takes."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    parts = []
    if name in ("false_positives", "false_negatives"):
        parts += [_cut(str(value), LONGEST_NAME) for value in record.get("kept", {}).values()]
    if record["gold"] is not None:
        parts.append(f"gold {_cut(record['gold'], LONGEST_ANSWER)}")
    if record["extracted"] is not None:
        parts.append(f"read {_cut(record['extracted'], LONGEST_ANSWER)}")
    decided = f"{record['verdict']}" + (f" by {record['tier']}" if record["tier"] else "")
    if name not in (Verdict.BAD_GOLD.value, Verdict.INTERNAL_ERROR.value):
        parts.append(decided)
    if record["reason"]:
        parts.append(_cut(record["reason"], LONGEST_REASON))
    grid.add_row(Text(f"  {place(record)}:"), Text(" | ".join(map(on_one_line, parts))))
    return grid


def _count_of(summary: Summary, name: str) -> int:
    counts = summary["verdicts"] if name in summary["verdicts"] else summary.get("expected", {})
    return int(counts.get(name, 0))


def _table(first: str, *right: str, left: Sequence[str] = ()) -> Table:
    """An empty table: the first column left, then numbers, then text that may wrap."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    table.add_column(Text(on_one_line(first)), overflow="fold")
    for heading in right:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    for heading in left:
        table.add_column(Text(heading), overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    table.add_row(*(Text(on_one_line(cell)) for cell in cells))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
