"""What a sweep found: its runs by one metric, best first, and one figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workings.errors import DataError, unknown_name
from workings.evaluation.plot_series import Series, read_series
from workings.evaluation.plots import plot_curves
from workings.evaluation.plots_points import plot_points
from workings.evaluation.tables import text_table
from workings.launch.sweep import Sweep, SweepRun
from workings.tracking.json_values import json_value
from workings.tracking.jsonl import read_metrics

HEADLINES = ("accuracy", "reward", "rewards/accuracies", "loss")
"""Ends of evaluation metrics that decide which run is best, the first that was recorded."""
IN_TRAINING = ("train/reward", "train/loss")
"""The same where nothing was evaluated."""
LOWER_IS_BETTER = ("loss", "kl", "length", "truncation_rate", "no_answer_rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A run's headline: its last value, and the best of all its evaluations.

    Attributes:
        name, values: of the run.
        value, low, high: at `step`, the last one; low and high are None where no interval is
            known.
        best, best_step: over all steps whose value is finite, of the last one where none is. It is
            chosen among several and therefore flatters.
    """

    name: str
    values: Mapping[str, str]
    value: float
    low: float | None
    high: float | None
    step: int
    best: float
    best_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResults:
    """The table of a sweep: finished runs, the best first, by `metric`.

    Runs whose value is not finite come last.
    """

    metric: str
    lower_is_better: bool
    results: tuple[Result, ...]

    def to_dict(self) -> dict[str, Any]:
        """As it stands in sweep.json: null where a value is not finite."""
        content: dict[str, Any] = json_value(asdict(self))
        return content


def sweep_results(
    runs: Sequence[SweepRun], *, metric: str | None = None, lower_is_better: bool | None = None
) -> SweepResults | None:
    """The finished runs by `metric`, by default the first headline that they recorded.

    None where no run is finished. DataError where none of them recorded that metric.
    """
    finished = [run for run in runs if run.status == "finished" and run.metrics_file.is_file()]
    if not finished:
        return None
    recorded = {run.name: _recorded(run.metrics_file) for run in finished}
    every = dict.fromkeys(name for names in recorded.values() for name in names)
    chosen = _headline(every) if metric is None else _full_name(metric, every)
    lower = _lower(chosen) if lower_is_better is None else lower_is_better
    results = [
        _result(run, read_series(run.metrics_file, chosen), lower=lower)
        for run in finished
        if chosen in recorded[run.name]
    ]
    results.sort(key=lambda one: _rank(one.value, lower=lower))
    return SweepResults(metric=chosen, lower_is_better=lower, results=tuple(results))


def results_table(sweep: Sweep, found: SweepResults | None) -> str:
    """A line per run: the finished ones best first, then the others with what became of them."""
    keys = [axis.key for axis in sweep.grid.axes]
    metric = "result" if found is None else found.metric
    headers = [*(key.rpartition(".")[2] for key in keys), metric, "step", "best (step)", "run"]
    rows = []
    listed = set()
    for one in found.results if found is not None else ():
        listed.add(one.name)
        rows.append(
            [
                *(one.values[key] for key in keys),
                format_value(one.value, one.low, one.high),
                str(one.step),
                f"{one.best:.4g} ({one.best_step})",
                one.name,
            ]
        )
    for run in sweep.runs:
        if run.name not in listed:
            state = "not recorded" if run.status == "finished" else run.status
            rows.append([*(run.values[key] for key in keys), state, "-", "-", run.name])
    sides: list[Any] = ["left"] * len(keys) + ["right"] * 3 + ["left"]
    return text_table(headers, rows, alignments=sides)


def format_value(value: float, low: float | None, high: float | None) -> str:
    """A value with its interval, where one is known.

    >>> format_value(0.5, 0.25, 0.75), format_value(12.3456, None, None)
    ('0.5 [0.25, 0.75]', '12.35')
    """
    text = f"{value:.4g}"
    return text if low is None or high is None else f"{text} [{low:.3g}, {high:.3g}]"


def draw_sweep(sweep: Sweep, found: SweepResults) -> list[Path]:
    """The figure's files in the sweep's folder: a line per run, or a point each without steps.

    Runs that differ in their seed alone are one line.
    """
    files: dict[str, list[Path]] = {}
    ends: dict[str, list[Result]] = {}
    folders = {run.name: run.metrics_file for run in sweep.runs}
    for one in sorted(found.results, key=lambda one: list(folders).index(one.name)):
        label = _label(one.values)
        files.setdefault(label, []).append(folders[one.name])
        ends.setdefault(label, []).append(one)
    output = sweep.folder / "plots" / found.metric.replace("/", "_")
    settings: dict[str, object] = {
        "kind": sweep.kind,
        "configurations": ", ".join(sweep.configs),
        "fixed": ", ".join(sweep.grid.fixed) or "nothing",
        **{axis.key: ", ".join(axis.values) for axis in sweep.grid.axes},
    }
    steps = {len(read_series(file, found.metric).steps) for some in files.values() for file in some}
    if steps == {1}:
        return plot_points(
            {label: [(o.value, o.low, o.high) for o in some] for label, some in ends.items()},
            found.metric,
            output,
            settings=settings,
        )
    return plot_curves(dict(files), found.metric, output, settings=settings)


# -------------------------------------------------------------------------------------- parts


def _recorded(file: Path) -> list[str]:
    return list(dict.fromkeys(name for row in read_metrics(file) for name in row if "/" in name))


def _headline(recorded: Mapping[str, None]) -> str:
    for end in HEADLINES:
        for name in recorded:
            if name.startswith("eval/") and name in (f"eval/{end}", _of_a_set(name, end)):
                return name
    for name in IN_TRAINING:
        if name in recorded:
            return name
    raise DataError(
        "these runs recorded neither an evaluation nor a reward or loss",
        hint="name a metric with --metric",
    )


def _of_a_set(name: str, end: str) -> str:
    """`eval/SET/END`, with the set of `name`."""
    return f"eval/{name.split('/')[1]}/{end}"


def _full_name(name: str, recorded: Mapping[str, None]) -> str:
    """The metric as it was recorded; "reward" may stand for "eval/reward"."""
    for candidate in (name, f"eval/{name}", f"train/{name}"):
        if candidate in recorded:
            return candidate
    raise DataError(unknown_name("metric", name, recorded))


def _lower(metric: str) -> bool:
    return any(part in LOWER_IS_BETTER for part in metric.replace("policy_loss", "").split("/"))


def _result(run: SweepRun, series: Series, *, lower: bool) -> Result:
    last = len(series.values) - 1
    finite = [index for index, value in enumerate(series.values) if math.isfinite(value)]
    best = min(finite, key=lambda i: _rank(series.values[i], lower=lower), default=last)
    return Result(
        name=run.name,
        values=dict(run.values),
        value=series.values[-1],
        low=series.lows[-1] if series.lows else None,
        high=series.highs[-1] if series.highs else None,
        step=series.steps[-1],
        best=series.values[best],
        best_step=series.steps[best],
    )


def _rank(value: float, *, lower: bool) -> tuple[bool, float]:
    """What sorts the better value first, and what is not finite last."""
    if not math.isfinite(value):
        return True, 0.0
    return False, value if lower else -value


def _label(values: Mapping[str, str]) -> str:
    """What tells a line apart: every setting that varies but the seed.

    >>> _label({"optimizer.learning_rate": "1e-5", "seed": "1"}), _label({"seed": "1"})
    ('learning_rate=1e-5', 'all seeds')
    """
    shown = [f"{k.rpartition('.')[2]}={v}" for k, v in values.items() if k != "seed"]
    return ", ".join(shown) or "all seeds"
