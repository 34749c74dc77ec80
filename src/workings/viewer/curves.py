"""Curves of several runs in one chart, smoothed, as Vega-Lite specifications with their data."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workings.config.sources import read_yaml
from workings.config.trees import leaves
from workings.errors import DataError, WorkingsError, said
from workings.evaluation.plot_style import COLOURS
from workings.evaluation.plots import metric_label
from workings.tracking.jsonl import FILE_NAME, read_metrics
from workings.viewer.files import inside
from workings.viewer.versions import Version, version_of

USUAL = (
    *("train/reward", "train/loss", "eval/accuracy", "train/completion_length/mean"),
    *("train/token_entropy", "train/grad_norm", "train/policy_loss", "train/format_reward"),
    *("train/rewards/accuracies", "train/rewards/margins", "train/mean_token_accuracy"),
)
"""What is drawn unless metrics are chosen, as far as it was recorded, the first six of it."""
MOST_USUAL, MOST_RUNS = 6, 3
MOST_POINTS = 1000
"""Points of a line that go to the page; of longer lines every n-th."""
TITLE = {"anchor": "start", "subtitleColor": "#8A8A8A", "subtitlePadding": 4}
OF_THE_FOLDER = ("name", "output_dir")
CONFIG = "config.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A metric of a run over its steps, finite values only.

    Attributes:
        lows, highs: ends of the interval; empty where none was recorded.
        num_not_finite: values that were left out, because they are NaN or infinite.
    """

    steps: tuple[int, ...]
    values: tuple[float, ...]
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()
    num_not_finite: int = 0


def recorded_metrics(files: Sequence[Path]) -> list[str]:
    """The metrics with two values or more in one of the files, sorted; no ends of intervals.

    Values that are not finite count too: that a metric is NaN from the first step on is to be seen.
    """
    return sorted({name for file in files for name in _drawn(read_curves(file))})


def read_lines(files: Mapping[str, Path]) -> tuple[dict[str, Mapping[str, Curve]], list[str]]:
    """{label: its curves} of the files that can be read, and what is wrong with the others."""
    lines, problems = {}, []
    for label, file in files.items():
        try:
            lines[label] = read_curves(file)
        except WorkingsError as error:
            problems.append(error.message)
    return lines, problems


def without_curves(lines: Mapping[str, Mapping[str, Curve]]) -> list[str]:
    """The labels of runs in which no metric has two values yet."""
    return [label for label, curves in lines.items() if not _drawn(curves)]


def first_runs(root: Path, names: Sequence[str]) -> list[str]:
    """The runs that are drawn unless some are chosen: the first with curves, else the first.

    One whose metrics are damaged is not among the first.
    """
    having = (name for name in names if _has_curves(metrics_file(inside(root, name))))
    return list(itertools.islice(having, MOST_RUNS)) or list(names[:1])


def usual_metrics(known: Sequence[str]) -> list[str]:
    """What is drawn where nothing is chosen: the usual ones, accuracies of data sets among them."""
    accuracies = [one for one in known if one.startswith("eval/") and one.endswith("/accuracy")]
    usual = [name for name in USUAL if name in known]
    place = next((n for n, name in enumerate(usual) if name.startswith("train/comp")), len(usual))
    wanted = dict.fromkeys([*usual[:place], *accuracies, *usual[place:]])
    return list(wanted)[:MOST_USUAL] or list(known[:MOST_USUAL])


def read_curves(file: Path) -> Mapping[str, Curve]:
    """{metric: curve} of a `metrics.jsonl`, kept in memory until it changes.

    DataError, with the number of the line, where the file is damaged.
    """
    try:
        return _curves(version_of(file))
    except OSError as error:
        raise DataError(f"{file} cannot be read: {said(error)}") from error


def smooth(values: Sequence[float], steps: Sequence[int], window: int) -> list[float]:
    """The centred mean over `window` steps, made odd, over fewer at the ends.

    An evaluation every hundred steps is not smoothed over ten of them. `steps` are in order.

    >>> smooth([1.0, 2.0, 6.0, 3.0], [1, 2, 3, 4], 3)
    [1.5, 3.0, 3.6666666666666665, 4.5]
    >>> smooth([1.0, 2.0, 6.0], [0, 100, 101], 3)
    [1.0, 4.0, 4.0]
    """
    half = window // 2
    if half == 0 or not values:
        return list(values)
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(values, dtype=np.float64))])
    # Steps that go back would have no window: then each counts as the latest one before it.
    places = np.maximum.accumulate(np.asarray(steps))
    low = np.searchsorted(places, places - half, side="left")
    high = np.searchsorted(places, places + half, side="right")
    means: list[float] = ((sums[high] - sums[low]) / (high - low)).tolist()
    return means


def chart(
    curves: Mapping[str, Curve], metric: str, *, colours: Mapping[str, str], smoothing: int
) -> dict[str, Any]:
    """The Vega-Lite specification of {label of a run: its curve}, with the data inside.

    With `smoothing` the recorded values stay behind the smoothed line, paler.
    """
    points = [
        point for label, curve in curves.items() for point in _points(curve, label, smoothing)
    ]
    axis = {"grid": False, "tickMinStep": 1, "labelFlush": False}
    x = {"field": "step", "type": "quantitative", "title": "Step", "axis": axis}
    scale = {"domain": list(curves), "range": [colours[label] for label in curves]}
    colour = {"field": "run", "type": "nominal", "scale": scale, "legend": None}
    layers: list[dict[str, Any]] = []
    if any(curve.lows for curve in curves.values()):
        band = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
        layers.append({"mark": {"type": "area", "opacity": 0.14}, "encoding": band})
    if smoothing > 1:
        raw = {"y": {"field": "raw", "type": "quantitative"}}
        mark = {"type": "line", "opacity": 0.25, "strokeWidth": 1}
        layers.append({"mark": mark, "encoding": raw})
    y = {
        "field": "value",
        "type": "quantitative",
        "title": None,
        "scale": {"zero": False, "nice": True},
        "axis": {"tickCount": 5},
    }
    tooltip = [
        {"field": "run", "title": "run"},
        {"field": "step", "title": "step"},
        {"field": "raw", "title": metric, "format": ".4~g"},
    ]
    few = max((len(curve.steps) for curve in curves.values()), default=0) <= 40
    line = {"type": "line", "strokeWidth": 2, "point": {"size": 28} if few else False}
    layers.append({"mark": line, "encoding": {"y": y, "tooltip": tooltip}})
    return {
        "title": {"text": metric_label(metric), "subtitle": metric, **TITLE},
        "data": {"values": points},
        "height": 250,
        "encoding": {"x": x, "color": colour},
        "layer": layers,
    }


def not_drawn(label: str, count: int) -> str:
    """What stands below a chart for a run with values that are not finite.

    >>> not_drawn("grpo", 2)
    '2 values of grpo are NaN or infinite and not drawn'
    """
    values = f"1 value of {label} is" if count == 1 else f"{count:,} values of {label} are"
    return f"{values} NaN or infinite and not drawn"


def colours_of(labels: Sequence[str]) -> dict[str, str]:
    """A colour for every run, the same in all charts."""
    return {label: COLOURS[place % len(COLOURS)] for place, label in enumerate(labels)}


def differing_settings(folders: Mapping[str, Path]) -> list[tuple[str, list[str]]]:
    """(setting, its value in each run) of the settings in which the runs differ.

    ConfigError where the configuration of one cannot be read.
    """
    trees = [_settings(folder) for folder in folders.values()]
    names = dict.fromkeys(name for tree in trees for name in tree)
    rows = [(name, [str(tree.get(name, "-")) for tree in trees]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def metrics_file(folder: Path) -> Path:
    """The metrics of the run in `folder`."""
    return folder / FILE_NAME


@functools.lru_cache(maxsize=64)
def _curves(version: Version) -> Mapping[str, Curve]:
    rows = read_metrics(Path(version[0]))
    names = dict.fromkeys(name for row in rows for name in row if "/" in name)
    return {name: _curve(rows, name) for name in names}


def _curve(rows: Sequence[Mapping[str, Any]], name: str) -> Curve:
    having = [row for row in rows if name in row]
    kept = [row for row in having if math.isfinite(row[name])]
    low, high = f"{name}_low", f"{name}_high"
    banded = bool(kept) and all(
        math.isfinite(row.get(end, math.nan)) for row in kept for end in (low, high)
    )
    return Curve(
        steps=tuple(row["step"] for row in kept),
        values=tuple(row[name] for row in kept),
        lows=tuple(row[low] for row in kept) if banded else (),
        highs=tuple(row[high] for row in kept) if banded else (),
        num_not_finite=len(having) - len(kept),
    )


def _points(curve: Curve, label: str, smoothing: int) -> list[dict[str, Any]]:
    smoothed = smooth(curve.values, curve.steps, smoothing)
    every = max(1, math.ceil(len(curve.steps) / MOST_POINTS))
    last = len(curve.steps) - 1
    points = []
    for place in sorted({*range(0, len(curve.steps), every), *([last] if last >= 0 else [])}):
        point = {
            "run": label,
            "step": curve.steps[place],
            "raw": curve.values[place],
            "value": smoothed[place],
        }
        if curve.lows:
            point |= {"low": curve.lows[place], "high": curve.highs[place]}
        points.append(point)
    return points


def _has_curves(file: Path) -> bool:
    try:
        return bool(_drawn(read_curves(file)))
    except WorkingsError:
        return False


def _drawn(curves: Mapping[str, Curve]) -> list[str]:
    """The metrics with two values or more that are no ends of an interval."""
    return [
        name
        for name, curve in curves.items()
        if len(curve.steps) + curve.num_not_finite > 1 and not _is_end(name, curves)
    ]


def _is_end(name: str, names: Container[str]) -> bool:
    """Whether this is `X_low` or `X_high` of another metric `X`."""
    return any(name.endswith(end) and name.removesuffix(end) in names for end in ("_low", "_high"))


def _settings(folder: Path) -> dict[str, object]:
    file = folder / CONFIG
    if not file.is_file():
        return {}
    return {name: value for name, value in leaves(read_yaml(file)) if name not in OF_THE_FOLDER}
