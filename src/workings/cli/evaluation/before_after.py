"""A run's first evaluation against its last, on the same problems. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workings.errors import DataError
from workings.evaluation.compare import compare_folders
from workings.evaluation.metrics import Estimate
from workings.evaluation.reports import read_summary
from workings.evaluation.stored_evaluations import find_evaluation
from workings.evaluation.tables import format_difference, format_estimate
from workings.evaluation.tag_metrics import describe_tag_metrics

START = 0


def before_and_after(folder: Path) -> list[str]:
    """Lines for every data set that a run was measured on at step 0 and at its end.

    Both accuracies, the paired difference with its interval, and the tag metrics of both where the
    run has them. Empty where step 0 was not evaluated, or nothing after it.
    """
    try:
        first = find_evaluation(folder, step=START)
    except DataError:  # no evaluation, or none at step 0
        return []
    last = find_evaluation(folder)
    if first is None or last is None or last.step in (None, START):
        return []
    lines = []
    for name, file in last.data_sets.items():
        if name in first.data_sets:
            lines += _lines(name, first.data_sets[name], file, last.step)
    return lines


def _lines(name: str, before: Path, after: Path, step: int | None) -> list[str]:
    sides = [read_summary(path.parent) for path in (before, after)]
    accuracies = [_accuracy(summary) for summary in sides]
    try:
        difference = format_difference(compare_folders([before], [after]))
    except DataError as error:
        difference = f"not paired: {error.message}"
    lines = [
        f"{name}, step 0 against step {step}: {accuracies[0]} -> {accuracies[1]}",
        f"{name}, difference: {difference}",
    ]
    for when, summary in zip((START, step), sides, strict=True):
        told = describe_tag_metrics(summary["metrics"])
        if told is not None:
            lines.append(f"{name}, step {when}: {told}")
    return lines


def _accuracy(summary: dict[str, Any]) -> str:
    return format_estimate(Estimate(**next(iter(summary["estimates"].values()))))
