"""Points with intervals, one line each: what runs ended at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from workings.evaluation.plot_style import (
    COLOURS,
    INK,
    MARKERS,
    new_figure,
    save_figure,
    style,
)
from workings.evaluation.plots import left_out, metric_label

Point = tuple[float, float | None, float | None]
"""A value, and the ends of its interval or None."""


@style()
def plot_points(
    points: Mapping[str, Sequence[Point]],
    metric: str,
    output: Path,
    *,
    settings: Mapping[str, object] | None = None,
) -> list[Path]:
    """The files written: a line for each label, with its points and their whiskers.

    Several points of a label are several seeds.
    """
    figure, (axes,) = new_figure(width=6.4, height=1.2 + 0.36 * len(points))
    names = list(points)
    for place, (label, some) in enumerate(points.items()):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        for number, (value, low, high) in enumerate(some):
            height = place + 0.16 * (number - (len(some) - 1) / 2)
            spread = None
            if low is not None and high is not None:
                spread = [[value - low], [high - value]]
            axes.errorbar(
                value,
                height,
                xerr=spread,
                fmt=marker,
                color=colour,
                ecolor=INK,
                elinewidth=1.1,
                capsize=3,
                markersize=6,
                label=label if number == 0 else None,
            )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x")
    axes.set_xlabel(metric_label(metric))
    has_intervals = any(low is not None for some in points.values() for _, low, _ in some)
    caption = f"{metric_label(metric)} ({metric}) at the end; {', '.join(names)}. "
    caption += "Whiskers are 95 % intervals." if has_intervals else "No interval is known."
    values = [value for some in points.values() for value, _, _ in some]
    caption += left_out(sum(not math.isfinite(value) for value in values))
    return save_figure(figure, output, caption=caption, settings=settings or {})
