"""Figures from stored numbers: curves over steps, a whole quickstart."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workings.evaluation.metrics import Estimate
from workings.evaluation.plot_series import Series, finite_of, mean_of, moving_mean, read_series
from workings.evaluation.plot_style import (
    BLUE,
    COLOURS,
    LINES,
    MARKERS,
    ORANGE,
    VERMILLION,
    new_figure,
    save_figure,
    style,
)
from workings.evaluation.plots_bars import (
    draw_bars,
    intervals_note,
    legend_below,
    percent_axis,
    stage_colour,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNITS = {
    "completion_length": "tokens",
    "avg_response_length": "tokens",
    "token_entropy": "nats per token",
    "avg_token_entropy": "nats per token",
    "kl": "nats per token",
    "step_time": "seconds",
    "timing": "seconds",
    "tokens_per_sec": "tokens per second",
    "peak_memory_gb": "GB",
}
"""Units by the part of a metric's name; shares and rewards have none.

A loss has none either: SFT's is in nats per token or per row, and those of DPO and GRPO are
neither, under the same name.
"""


@style()
def plot_curves(
    runs: Mapping[str, Path | Sequence[Path]],
    metric: str,
    output: Path,
    *,
    title: str | None = None,
    smoothing: int = 1,
    settings: Mapping[str, object] | None = None,
) -> list[Path]:
    """The files written: one line per label, with its interval as a band.

    A label stands for one metrics.jsonl, or for those of several seeds, whose mean is drawn with a
    band from the lowest to the highest. `smoothing` is the window of a centred moving mean; the raw
    values stay visible behind it. Values that are not finite are left out and counted in the
    caption.
    """
    figure, (axes,) = new_figure(width=6.4, height=4.0)
    every = {
        label: mean_of([finite_of(read_series(file, metric)) for file in _files(files)])
        for label, files in runs.items()
    }
    for index, (label, series) in enumerate(every.items()):
        _draw_curve(axes, series, label=label, index=index, smoothing=smoothing)
    if title:
        axes.set_title(title)
    axes.set_xlabel("Step")
    axes.set_ylabel(metric_label(metric))
    _whole_steps(axes)
    if len(runs) > 5:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        figure.set_figwidth(8.4)
    elif len(runs) > 1:
        axes.legend(loc="best")
    caption = f"{metric_label(metric)} by step ({metric}); {', '.join(runs)}. "
    caption += _bands(list(every.values()))
    if smoothing > 1:
        caption += f" Lines are centred means over {smoothing} steps; thin lines are raw values."
    caption += left_out(sum(one.num_not_finite for one in every.values()))
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
    colours = [stage_colour(name, ORANGE) for name in stages]
    places = list(range(len(stages)))
    draw_bars(left, places, list(stages.values()), colours=colours, width=0.62, numbers=True)
    left.set_xticks(places, [textwrap.fill(name, 14) for name in stages])
    percent_axis(left, "Accuracy (% of problems)")
    num_problems = next(iter(stages.values())).num_problems
    left.set_title(f"Held-out accuracy, {num_problems} problems")

    num_not_finite = _draw_training(
        right, metrics_file, reward_metric, validation_metric, smoothing
    )
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    caption = (
        f"Left: accuracy on {num_problems} held-out problems after each stage. "
        f"{intervals_note({'stages': stages})} Right: the mean reward of each GRPO step's samples "
        f"({reward_metric}; thin: raw, thick: centred mean over {smoothing} steps)"
    )
    if validation_metric:
        caption += f" and accuracy on the validation split ({validation_metric}, 95 % intervals)"
    caption += "." + left_out(num_not_finite)
    return save_figure(figure, output, caption=caption, settings=settings or {})


def metric_label(metric: str) -> str:
    """A metric's name as an axis label, with its unit where it has one.

    >>> metric_label("eval/sums/avg_response_length/total"), metric_label("train/reward")
    ('Avg response length, total (sums, tokens)', 'Reward')
    >>> metric_label("eval/avg_response_length/total")
    'Avg response length, total (tokens)'
    """
    kind, *parts = metric.split("/")
    unit = next((UNITS[part] for part in [kind, *parts] if part in UNITS), None)
    of_a_set = kind == "eval" and len(parts) > 1 and parts[0] not in UNITS
    data_set = parts.pop(0) if of_a_set else None
    name = ", ".join(part.replace("_", " ") for part in parts)
    notes = ", ".join(note for note in (data_set, unit) if note)
    label = name[:1].upper() + name[1:]
    return f"{label} ({notes})" if notes else label


def left_out(num_not_finite: int) -> str:
    """A sentence on values that are not drawn; nothing where all are."""
    if num_not_finite == 0:
        return ""
    values = "value is" if num_not_finite == 1 else "values are"
    return f" {num_not_finite} {values} NaN or infinite and not drawn."


def _draw_curve(axes: Axes, series: Series, *, label: str, index: int, smoothing: int) -> None:
    # Five line styles, six colours and seven markers: 30 lines before two look alike in greyscale.
    colour, line = COLOURS[index % len(COLOURS)], LINES[index % len(LINES)]
    marker = MARKERS[index % len(MARKERS)]
    every = max(1, len(series.steps) // 12)
    if smoothing > 1:
        axes.plot(series.steps, series.values, color=colour, alpha=0.3, linewidth=0.8)
    axes.plot(
        series.steps,
        moving_mean(series.values, smoothing),
        color=colour,
        linestyle=line,
        marker=marker,
        markevery=every,
        markersize=4.5,
        label=label,
        gid=f"line-{index}",
    )
    if series.lows:
        axes.fill_between(
            series.steps,
            series.lows,
            series.highs,
            color=colour,
            alpha=0.15,
            linewidth=0,
            gid=f"band-{index}",
        )


def _draw_training(
    axes: Axes,
    metrics_file: Path,
    reward_metric: str,
    validation_metric: str | None,
    smoothing: int,
) -> int:
    """The number of values that are not finite and so not drawn."""
    reward = finite_of(read_series(metrics_file, reward_metric))
    num_not_finite = reward.num_not_finite
    axes.plot(reward.steps, reward.values, color=BLUE, alpha=0.35, linewidth=0.9)
    smooth = moving_mean(reward.values, smoothing)
    axes.plot(reward.steps, smooth, color=BLUE, linewidth=2.2, label="sampled reward, training")
    if validation_metric is not None:
        points = finite_of(read_series(metrics_file, validation_metric))
        num_not_finite += points.num_not_finite
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
    legend_below(axes, columns=2, drop=-0.17)
    return num_not_finite


def _whole_steps(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _files(files: Path | Sequence[Path]) -> Sequence[Path]:
    return [files] if isinstance(files, Path) else files


def _bands(every: Sequence[Series]) -> str:
    """A sentence on what the bands are."""
    seeds = sorted({one.num_runs for one in every if one.num_runs > 1})
    if seeds:
        several = ", ".join(map(str, seeds))
        return f"Lines are means over {several} seeds, bands reach from the lowest to the highest."
    banded = [one for one in every if one.lows]
    if not banded:
        return "No interval is known, so there are no bands."
    sizes = sorted({one.num_problems for one in banded if one.num_problems})
    over = f" over {', '.join(map(str, sizes))} problems" if sizes else ""
    return f"Bands are 95 % intervals{over} where the run stored what they need."
