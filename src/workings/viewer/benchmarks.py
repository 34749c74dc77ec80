"""The table of evaluations with their intervals, and paired differences between them."""

from __future__ import annotations

import functools
import html
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from workings.errors import DataError
from workings.evaluation.comparison import Comparison, Finding, Side, compare_sides
from workings.evaluation.reports import RESULTS_FILE, read_summary
from workings.evaluation.stored_evaluations import StoredEvaluation, differing_settings
from workings.viewer.discovery import SEPARATOR, Found, FoundFile
from workings.viewer.files import inside
from workings.viewer.markup import Cell, interval_axis, table, text_cell
from workings.viewer.versions import Version, version_of

WORDS: Mapping[Finding, tuple[str, str]] = {
    "better": ("clearly better", "up"),
    "worse": ("clearly worse", "down"),
    "not clear": ("not clear", "none"),
}
MOST_COMPARED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An evaluation on one data set, as far as its summary knows it; None where it does not.

    Attributes:
        file: its summary, as it was found.
        estimate: name of the headline, "pass@1" or "avg@8".
        value, low, high: strict accuracy, format and answer right.
        lenient: the answer alone.
        format_rate, truncated, length: shares of samples, and mean tokens of a response.
    """

    file: FoundFile
    model: str
    setting: str
    estimate: str
    value: float
    low: float | None
    high: float | None
    lenient: float | None
    format_rate: float | None
    truncated: float | None
    length: float | None
    num_problems: int | None
    num_samples: int | None


def read_lines(root: Path, found: Found) -> tuple[list[Line], list[str]]:
    """The lines of all summaries, and a sentence for each that cannot be read.

    Those of a run stand together, newest first, and the run with the newest comes first.
    """
    lines, problems = [], []
    for file in found.summaries:
        try:
            lines.append(_line(file, read_summary(inside(root, file.name))))
        except (DataError, KeyError, TypeError, ValueError, AttributeError) as error:
            problems.append(f"{file.name} is left out: {error}")
    runs = {run: place for place, run in enumerate(dict.fromkeys(map(_run_of, lines)))}
    return sorted(lines, key=lambda line: runs[_run_of(line)]), problems


def lines_table(lines: Sequence[Line]) -> str:
    """HTML; the name of an evaluation leads to its responses. Empty columns are left out."""
    headers = [
        *("Evaluation", "Data set", "Model", "Accuracy, 95 % interval", "0 to 100 %", "Lenient"),
        *("Format", "Truncated", "Tokens", "Problems"),
    ]
    rows = [_cells(line) for line in lines]
    kept = [n for n in range(len(headers)) if any(row[n].content for row in rows)]
    return table([headers[n] for n in kept], [[row[n] for n in kept] for row in rows], tall=True)


def first_compared(lines: Sequence[Line], names: Collection[str]) -> list[str]:
    """What is compared unless it is chosen, the reference last: the newest of each run.

    They are on one data set with as many problems; of one run alone, its newest and its first.
    """
    known = [line for line in lines if line.file.evaluation in names]
    sizes = Counter(map(_measured, known))
    size = next((one for one in map(_measured, known) if sizes[one] > 1), None)
    having = [line for line in known if _measured(line) == size]
    newest = list({_run_of(line): line for line in reversed(having)}.values())[::-1]
    chosen = newest[:MOST_COMPARED] if len(newest) > 1 else [*having[:1], *having[-1:]]
    return list(dict.fromkeys(line.file.evaluation for line in chosen))


def _run_of(line: Line) -> str:
    return line.file.evaluation.rpartition(SEPARATOR)[0] or line.file.evaluation


def _measured(line: Line) -> tuple[str, int | None]:
    return line.file.dataset, line.num_problems


def evaluations(found: Found) -> dict[str, dict[str, FoundFile]]:
    """{evaluation: {data set: its results.jsonl}}, newest first; what is not graded is left out."""
    sets: dict[str, dict[str, FoundFile]] = {}
    for file in found.responses:
        if file.dataset and file.name.endswith(RESULTS_FILE):
            sets.setdefault(file.evaluation, {})[file.dataset] = file
    return sets


def compare(
    root: Path,
    sets: Mapping[str, Mapping[str, FoundFile]],
    reference: str,
    others: Sequence[str],
) -> tuple[list[Comparison], list[str]]:
    """Paired differences on the data sets that all have, and remarks on how they were measured.

    DataError where an evaluation is unknown, they share no data set, or answered other problems.
    """
    for name in (reference, *others):
        if name not in sets:
            raise DataError(f"there is no evaluation {name!r}")
    common = [name for name in sets[reference] if all(name in sets[other] for other in others)]
    if not common:
        raise DataError("these evaluations have no data set in common")
    paths = {
        name: {dataset: inside(root, sets[name][dataset].name) for dataset in common}
        for name in (reference, *others)
    }
    remarks = [
        f"{dataset}: {reference} and {other} were measured with other settings: "
        f"{'; '.join(differing)}"
        for other in others
        for dataset in common
        if (differing := differing_settings(paths[reference][dataset], paths[other][dataset]))
    ]
    sides = tuple(
        (name, tuple((dataset, version_of(path)) for dataset, path in paths[name].items()))
        for name in (reference, *others)
    )
    return list(_compare(sides)), remarks


def comparisons_table(comparisons: Sequence[Comparison]) -> str:
    """HTML; differences in points on one scale."""
    ends = [abs(end) for one in comparisons for end in (one.difference.low, one.difference.high)]
    reach = max([0.05, *ends])
    headers = [
        *("Evaluation", "Data set", "Accuracy", "Reference", "Difference, points"),
        f"{-100 * reach:.0f} to {100 * reach:+.0f}",
        *("Better", "Worse", "p" if len(comparisons) == 1 else "p (Holm)", ""),
    ]
    rows = []
    for one in comparisons:
        found, tone = WORDS[one.finding]
        change = one.difference
        drawn = interval_axis(
            change.difference,
            change.low,
            change.high,
            start=-reach,
            end=reach,
            zero=True,
            tone=tone,
        )
        points = (100 * number for number in (change.difference, change.low, change.high))
        p = one.corrected_p_value
        rows.append(
            [
                text_cell(one.other),
                text_cell(one.dataset),
                text_cell(_percent(one.other_accuracy.value), numeric=True),
                text_cell(_percent(one.reference_accuracy.value), numeric=True),
                text_cell("{:+.1f} [{:+.1f}, {:+.1f}]".format(*points), numeric=True),
                drawn,
                text_cell(str(change.num_better), numeric=True),
                text_cell(str(change.num_worse), numeric=True),
                text_cell("< 0.001" if p < 0.001 else f"{p:.3f}", numeric=True),
                text_cell(found),
            ]
        )
    return table(headers, rows)


@functools.lru_cache(maxsize=32)
def _compare(
    sides: tuple[tuple[str, tuple[tuple[str, Version], ...]], ...],
) -> tuple[Comparison, ...]:
    """By labels, data sets and versions of the files, so that it is done once for each of them."""
    stored = [
        Side(
            label=label,
            evaluations=(
                StoredEvaluation(
                    path=Path(label),
                    step=None,
                    data_sets={dataset: Path(version[0]) for dataset, version in data_sets},
                ),
            ),
        )
        for label, data_sets in sides
    ]
    names = [dataset for dataset, _ in sides[0][1]]
    return tuple(compare_sides(stored[0], stored[1:], data_sets=names))


def _line(file: FoundFile, summary: Mapping[str, Any]) -> Line:
    settings, metrics = summary.get("settings") or {}, summary.get("metrics") or {}
    estimates = summary.get("estimates") or {}
    name = next(iter(estimates), "")
    headline = estimates.get(name, {})
    lenient = (summary.get("lenient_estimates") or {}).get(name) or {}
    sampling = settings.get("sampling") or {}
    parts = [("template", settings.get("template"))]
    parts += [(key, sampling.get(key)) for key in ("temperature", "top_p", "max_tokens")]
    return Line(
        file=file,
        model=str(settings.get("model", "")),
        setting=", ".join(f"{key} {value}" for key, value in parts if value is not None),
        estimate=name,
        value=float(headline.get("value", summary["aggregate_metrics"].get("reward", 0.0))),
        low=headline.get("low"),
        high=headline.get("high"),
        lenient=lenient.get("value"),
        format_rate=metrics.get("format_accuracy"),
        truncated=metrics.get("truncation_rate"),
        length=metrics.get("avg_response_length/total"),
        num_problems=headline.get("num_problems"),
        num_samples=headline.get("num_samples"),
    )


def _cells(line: Line) -> list[Cell]:
    responses = line.file.name.rpartition("/")[0]
    results = f"{responses}/{RESULTS_FILE}" if responses else RESULTS_FILE
    share = _percent(line.value)
    if line.low is not None and line.high is not None:
        share += f" [{100 * line.low:.1f}, {100 * line.high:.1f}]"
    problems = "" if line.num_problems is None else f"{line.num_problems:,}"
    if line.num_samples is not None and line.num_samples > 1:
        problems += f" × {line.num_samples}"
    model = line.model.rstrip("/")
    short = "/".join(model.split("/")[-2:])
    named = text_cell(short)
    length = "" if line.length is None else f"{line.length:,.0f}"
    return [
        text_cell(
            line.file.evaluation, link="?" + urlencode({"view": "responses", "file": results})
        ),
        text_cell(line.file.dataset),
        Cell(content=f'<span title="{html.escape(line.setting)}">{named.content}</span>'),
        text_cell(f"{share} {line.estimate}".rstrip(), numeric=True),
        interval_axis(line.value, line.low, line.high),
        text_cell(_percent(line.lenient), numeric=True),
        text_cell(_percent(line.format_rate), numeric=True),
        text_cell(_percent(line.truncated), numeric=True),
        text_cell(length, numeric=True),
        text_cell(problems, numeric=True),
    ]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"
