"""Metrics over steps, read from what runs stored, with the intervals that their samples allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from workings.errors import DataError, unknown_name
from workings.evaluation.metrics import Estimate, estimate
from workings.evaluation.reports import RESULTS_FILE, read_results
from workings.tracking.jsonl import read_metrics

EVALUATED = "eval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A metric over steps; `lows` and `highs` are empty where no interval is known.

    `num_problems` is what each interval runs over, 0 where it is not known; `num_runs` how many
    runs the values are a mean of; `num_not_finite` how many values were left out, because they are
    NaN or infinite.
    """

    steps: tuple[int, ...]
    values: tuple[float, ...]
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()
    num_problems: int = 0
    num_runs: int = 1
    num_not_finite: int = 0


def read_series(path: Path, metric: str) -> Series:
    """The named metric of a metrics file, every value as it was recorded, NaN among them.

    Its interval is NAME_low and NAME_high where they were recorded; for rewards and format rates
    of an evaluation that stored its samples beside the file it is computed from those.
    """
    rows = read_metrics(path)
    found = [row for row in rows if metric in row]
    if not found:
        known = {name for row in rows for name in row if "/" in name}
        raise DataError(f"{path}: {unknown_name('metric', metric, known)}")
    steps = tuple(row["step"] for row in found)
    values = tuple(row[metric] for row in found)
    low, high = f"{metric}_low", f"{metric}_high"
    if all(low in row and high in row for row in found):
        return Series(
            steps=steps,
            values=values,
            lows=tuple(row[low] for row in found),
            highs=tuple(row[high] for row in found),
        )
    stored = [_stored_estimate(path.parent, step, metric) for step in steps]
    estimates = [one for one in stored if one is not None]
    if len(estimates) < len(steps):
        return Series(steps=steps, values=values)
    return Series(
        steps=steps,
        values=values,
        lows=tuple(one.low for one in estimates),
        highs=tuple(one.high for one in estimates),
        num_problems=min(one.num_problems for one in estimates),
    )


def finite_of(series: Series) -> Series:
    """The series without values that are NaN or infinite, which it counts.

    >>> some = finite_of(Series(steps=(1, 2, 3), values=(0.5, float("nan"), 1.0)))
    >>> some.steps, some.values, some.num_not_finite
    ((1, 3), (0.5, 1.0), 1)
    """
    kept = [place for place, value in enumerate(series.values) if math.isfinite(value)]
    return replace(
        series,
        steps=tuple(series.steps[place] for place in kept),
        values=tuple(series.values[place] for place in kept),
        lows=tuple(series.lows[place] for place in kept) if series.lows else (),
        highs=tuple(series.highs[place] for place in kept) if series.highs else (),
        num_not_finite=series.num_not_finite + len(series.values) - len(kept),
    )


def mean_of(series: Sequence[Series]) -> Series:
    """The mean over runs that differ in their seed alone, from the lowest run to the highest.

    Only steps that all of them have are kept; of one run it is that run with its own interval.

    >>> a, b = (Series(steps=(0, 1), values=(0.0, v)) for v in (1.0, 3.0))
    >>> both = mean_of([a, b])
    >>> both.values, both.lows, both.highs, both.num_runs
    ((0.0, 2.0), (0.0, 1.0), (0.0, 3.0), 2)
    """
    if len(series) == 1:
        return series[0]
    tables = [dict(zip(one.steps, one.values, strict=True)) for one in series]
    steps = tuple(step for step in series[0].steps if all(step in table for table in tables))
    columns = [[table[step] for table in tables] for step in steps]
    return Series(
        steps=steps,
        values=tuple(map(fmean, columns)),
        lows=tuple(map(min, columns)),
        highs=tuple(map(max, columns)),
        num_runs=len(series),
        num_not_finite=sum(one.num_not_finite for one in series),
    )


def moving_mean(values: Sequence[float], window: int) -> list[float]:
    """The centred mean over `window` values (odd), over fewer at the ends.

    >>> moving_mean([1.0, 2.0, 6.0, 3.0], 3)
    [1.5, 3.0, 3.6666666666666665, 4.5]
    """
    half = window // 2
    parts = [values[max(0, i - half) : i + half + 1] for i in range(len(values))]
    return [sum(part) / len(part) for part in parts]


def _stored_estimate(run: Path, step: int, metric: str) -> Estimate | None:
    """The estimate of eval/NAME or eval/SET/NAME from the samples stored at a step.

    None where there are none, where the name says no reward of a sample, or where a reward leaves
    [0, 1], for which the interval holds.
    """
    kind, *parts = metric.split("/")
    if kind != EVALUATED or len(parts) > 2:
        return None
    folder = run / EVALUATED / f"step_{step:06d}"
    files = sorted(folder.glob(f"{parts[0] if len(parts) == 2 else '*'}/{RESULTS_FILE}"))
    if len(files) != 1:
        return None
    by_problem: dict[str, list[float]] = {}
    for row in read_results(files[0]):
        value = (row.get("metrics") or {}).get(parts[-1])
        if value is not None:
            by_problem.setdefault(str(row.get("id")), []).append(float(value))
    shares = [fmean(values) for values in by_problem.values()]
    if not shares or min(shares) < 0 or max(shares) > 1:
        return None
    return estimate(shares, num_samples=max(map(len, by_problem.values())))
