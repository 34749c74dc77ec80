"""Figures from stored numbers: curves over steps, bars with intervals, a whole quickstart."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workings.errors import DataError, unknown_name
from workings.evaluation.metrics import Estimate
from workings.evaluation.plot_style import (
    BLUE,
    COLOURS,
    GREY,
    INK,
    LINES,
    MARKERS,
    ORANGE,
    SKY,
    VERMILLION,
    new_figure,
    save_figure,
    style,
)
from workings.tracking.jsonl import read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNITS = {
    "completion_length": "tokens",
    "avg_response_length": "tokens",
    "token_entropy": "nats per token",
    "avg_token_entropy": "nats per token",
    "loss": "nats per token",
    "kl": "nats per token",
    "step_time": "seconds",
    "timing": "seconds",
    "tokens_per_sec": "tokens per second",
    "peak_memory_gb": "GB",
}
"""Units by the part of a metric's name; shares and rewards have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A metric over steps; `lows` and `highs` are empty where no interval was stored."""

    steps: tuple[int, ...]
    values: tuple[float, ...]
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()


def read_series(path: Path, metric: str) -> Series:
    """The named metric of a metrics file; NAME_low and NAME_high are its interval."""
    rows = read_metrics(path)
    found = [row for row in rows if metric in row]
    if not found:
        known = {name for row in rows for name in row if "/" in name}
        raise DataError(f"{path}: {unknown_name('metric', metric, known)}")
    low, high = f"{metric}_low", f"{metric}_high"
    banded = all(low in row and high in row for row in found)
    return Series(
        steps=tuple(row["step"] for row in found),
        values=tuple(row[metric] for row in found),
        lows=tuple(row[low] for row in found) if banded else (),
        highs=tuple(row[high] for row in found) if banded else (),
    )


def moving_mean(values: Sequence[float], window: int) -> list[float]:
    """The centred mean over `window` values (odd), over fewer at the ends.

    >>> moving_mean([1.0, 2.0, 6.0, 3.0], 3)
    [1.5, 3.0, 3.6666666666666665, 4.5]
    """
    half = window // 2
    parts = [values[max(0, i - half) : i + half + 1] for i in range(len(values))]
    return [sum(part) / len(part) for part in parts]


@style()
def plot_curves(
    runs: Mapping[str, Path],
    metric: str,
    output: Path,
    *,
    title: str | None = None,
    smoothing: int = 1,
    settings: Mapping[str, object] | None = None,
) -> list[Path]:
    """The files written: one line per run (label: metrics.jsonl), with its interval as a band.

    `smoothing` is the window of a centred moving mean; the raw values stay visible behind it.
    """
    figure, (axes,) = new_figure(width=6.4, height=4.0)
    for index, (label, path) in enumerate(runs.items()):
        series = read_series(path, metric)
        _draw_curve(axes, series, label=label, index=index, smoothing=smoothing)
    if title:
        axes.set_title(title)
    axes.set_xlabel("Step")
    axes.set_ylabel(metric_label(metric))
    _whole_steps(axes)
    if len(runs) > 1:
        axes.legend(loc="best")
    caption = f"{metric_label(metric)} by step ({metric}); {', '.join(runs)}."
    caption += " Bands are 95 % intervals where the run stored them."
    if smoothing > 1:
        caption += f" Lines are centred means over {smoothing} steps; thin lines are raw values."
    return save_figure(figure, output, caption=caption, settings=settings or {})


@style()
def plot_bars(
    values: Mapping[str, Mapping[str, Estimate]],
    output: Path,
    *,
    title: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> list[Path]:
    """The files written: {series: {data set: estimate}} as paired bars with 95 % intervals.

    A series that lacks a data set leaves its place empty.
    """
    data_sets = list(dict.fromkeys(name for row in values.values() for name in row))
    width = max(4.8, 1.2 + 0.45 * len(values) * len(data_sets) + 0.4 * len(data_sets))
    figure, (axes,) = new_figure(width=min(width, 14.0), height=4.0)
    bar = 0.8 / len(values)
    for index, (label, row) in enumerate(values.items()):
        offset = (index - (len(values) - 1) / 2) * bar
        places = [place + offset for place, name in enumerate(data_sets) if name in row]
        estimates = [row[name] for name in data_sets if name in row]
        colour = _stage_colour(label, COLOURS[(index + 2) % 6])
        _draw_bars(axes, places, estimates, colours=[colour], width=bar, label=label)
    axes.set_xticks(range(len(data_sets)), data_sets)
    _percent_axis(axes, "Accuracy (% of problems)")
    _legend_below(axes, columns=len(values))
    if title:
        axes.set_title(title)
    caption = f"Accuracy of {', '.join(values)} on {', '.join(data_sets)}. {_intervals(values)}"
    return save_figure(figure, output, caption=caption, settings=settings or {})


@style()
def plot_quickstart(
    stages: Mapping[str, Estimate],
    metrics_file: Path,
    output: Path,
    *,
    reward_metric: str = "train/reward",
    validation_metric: str | None = None,
    title: str | None = None,
    smoothing: int = 5,
    settings: Mapping[str, object] | None = None,
) -> list[Path]:
    """The files written: left, held-out accuracy by stage; right, how GRPO got there.

    `stages` is {"base": ..., "SFT": ..., "GRPO": ..., "control": ...} in the order to show.
    `metrics_file` is the GRPO run's; its sampled reward is drawn raw and smoothed, and the
    accuracy on the validation split as points, where `validation_metric` names it.
    """
    figure, (left, right) = new_figure(width=9.6, height=4.0, columns=2)
    colours = [_stage_colour(name, ORANGE) for name in stages]
    places = list(range(len(stages)))
    _draw_bars(left, places, list(stages.values()), colours=colours, width=0.62, numbers=True)
    left.set_xticks(places, [textwrap.fill(name, 14) for name in stages])
    _percent_axis(left, "Accuracy (% of problems)")
    num_problems = next(iter(stages.values())).num_problems
    left.set_title(f"Held-out accuracy, {num_problems} problems")

    _draw_training(right, metrics_file, reward_metric, validation_metric, smoothing)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    caption = (
        f"Left: accuracy on {num_problems} held-out problems after each stage. "
        f"{_intervals({'stages': stages})} Right: the mean reward of each GRPO step's samples "
        f"({reward_metric}; thin: raw, thick: centred mean over {smoothing} steps)"
    )
    if validation_metric:
        caption += f" and accuracy on the validation split ({validation_metric}, 95 % intervals)"
    return save_figure(figure, output, caption=caption + ".", settings=settings or {})


def metric_label(metric: str) -> str:
    """A metric's name as an axis label, with its unit where it has one.

    >>> metric_label("eval/sums/avg_response_length/total"), metric_label("train/reward")
    ('Avg response length, total (sums, tokens)', 'Reward')
    """
    kind, *parts = metric.split("/")
    unit = next((UNITS[part] for part in [kind, *parts] if part in UNITS), None)
    data_set = parts.pop(0) if kind == "eval" and len(parts) > 1 else None
    name = ", ".join(part.replace("_", " ") for part in parts)
    notes = ", ".join(note for note in (data_set, unit) if note)
    label = name[:1].upper() + name[1:]
    return f"{label} ({notes})" if notes else label


def _draw_curve(axes: Axes, series: Series, *, label: str, index: int, smoothing: int) -> None:
    colour, line = COLOURS[index % len(COLOURS)], LINES[index // len(COLOURS) % len(LINES)]
    marker = MARKERS[index % len(MARKERS)] if len(series.steps) <= 25 and smoothing <= 1 else None
    if smoothing > 1:
        axes.plot(series.steps, series.values, color=colour, alpha=0.3, linewidth=0.8)
    axes.plot(
        series.steps,
        moving_mean(series.values, smoothing),
        color=colour,
        linestyle=line,
        marker=marker,
        markersize=4.5,
        label=label,
    )
    if series.lows:
        axes.fill_between(
            series.steps, series.lows, series.highs, color=colour, alpha=0.15, linewidth=0
        )


def _draw_bars(
    axes: Axes,
    places: Sequence[float],
    estimates: Sequence[Estimate],
    *,
    colours: Sequence[str],
    width: float,
    label: str | None = None,
    numbers: bool = False,
) -> None:
    heights = [100 * one.value for one in estimates]
    below = [100 * (one.value - one.low) for one in estimates]
    above = [100 * (one.high - one.value) for one in estimates]
    axes.bar(
        places,
        heights,
        width=0.9 * width,
        color=colours,
        yerr=[below, above],
        error_kw={"ecolor": INK, "elinewidth": 1.1, "capsize": 3},
        label=label,
    )
    if numbers:
        for place, one in zip(places, estimates, strict=True):
            text = f"{100 * one.value:.1f}"
            axes.annotate(
                text,
                (place, 100 * one.high),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontweight="bold",
            )


def _draw_training(
    axes: Axes,
    metrics_file: Path,
    reward_metric: str,
    validation_metric: str | None,
    smoothing: int,
) -> None:
    reward = read_series(metrics_file, reward_metric)
    axes.plot(reward.steps, reward.values, color=BLUE, alpha=0.35, linewidth=0.9)
    smooth = moving_mean(reward.values, smoothing)
    axes.plot(reward.steps, smooth, color=BLUE, linewidth=2.2, label="sampled reward, training")
    if validation_metric is not None:
        points = read_series(metrics_file, validation_metric)
        spread = None
        if points.lows:
            below = [v - low for v, low in zip(points.values, points.lows, strict=True)]
            above = [high - v for v, high in zip(points.values, points.highs, strict=True)]
            spread = [below, above]
        axes.errorbar(
            points.steps,
            points.values,
            yerr=spread,
            fmt="D:",
            linewidth=1.0,
            color=VERMILLION,
            markersize=5.5,
            elinewidth=1.1,
            capsize=3,
            label="accuracy, validation",
        )
    axes.set_title("GRPO, step by step")
    axes.set_xlabel("GRPO step")
    axes.set_ylabel("Mean reward, accuracy")
    _whole_steps(axes)
    _legend_below(axes, columns=2, drop=-0.17)


def _stage_colour(name: str, other: str) -> str:
    """One colour for a stage in every figure; `other` where the name is no stage."""
    return {"base": GREY, "sft": SKY, "grpo": BLUE}.get(name.lower(), other)


def _legend_below(axes: Axes, *, columns: int, drop: float = -0.1) -> None:
    """A legend under the plot, where it can hide no data."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, drop), ncols=min(columns, 5))


def _percent_axis(axes: Axes, label: str) -> None:
    axes.set_ylim(0, 100)
    axes.set_ylabel(label)
    axes.tick_params(axis="x", length=0)


def _whole_steps(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _intervals(values: Mapping[str, Mapping[str, Estimate]]) -> str:
    """A sentence on what the whiskers are; D16: no accuracy without n and interval."""
    every = [one for row in values.values() for one in row.values()]
    methods: dict[str, Any] = {"wilson": "Wilson", "bootstrap": "bootstrap over problems"}
    used = " or ".join(methods[name] for name in sorted({one.interval for one in every}))
    sizes = ", ".join(str(n) for n in sorted({one.num_problems for one in every}))
    samples = ", ".join(str(n) for n in sorted({one.num_samples for one in every}))
    return f"Whiskers are 95 % intervals ({used}); n = {sizes} problems, {samples} sample(s) each."
