"""Accuracies as bars with intervals: by data set, by model and by sampling."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workings.evaluation.metrics import Estimate
from workings.evaluation.plot_style import (
    BLUE,
    COLOURS,
    GREY,
    HATCHES,
    INK,
    SKY,
    new_figure,
    save_figure,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@style()
def plot_bars(
    values: Mapping[str, Mapping[str, Estimate]],
    output: Path,
    *,
    title: str | None = None,
    settings: Mapping[str, object] | None = None,
    notes: str = "",
) -> list[Path]:
    """The files written: {series: {data set: estimate}} as paired bars with 95 % intervals.

    A series that lacks a data set leaves its place empty. `notes` ends the caption.
    """
    figure, (axes,) = new_figure(width=bars_width(values), height=4.0)
    data_sets = draw_bar_groups(axes, values)
    legend_below(axes, columns=len(values))
    if title:
        axes.set_title(title)
    caption = f"Accuracy of {', '.join(values)} on {', '.join(data_sets)}. {intervals_note(values)}"
    return save_figure(
        figure, output, caption=f"{caption} {notes}".rstrip(), settings=settings or {}
    )


@style()
def plot_bar_panels(
    panels: Mapping[str, Mapping[str, Mapping[str, Estimate]]],
    output: Path,
    *,
    settings: Mapping[str, object] | None = None,
) -> list[Path]:
    """The files written: {panel: {series: {data set: estimate}}}, panels side by side.

    A series has the same colour and hatching in every panel.
    """
    series = list(dict.fromkeys(name for values in panels.values() for name in values))
    width = sum(bars_width(values) for values in panels.values())
    figure, every = new_figure(width=min(width, 18.0), height=4.2, columns=len(panels))
    for axes, (panel, values) in zip(every, panels.items(), strict=True):
        draw_bar_groups(axes, values, series=series)
        axes.set_title(panel)
        if axes is not every[0]:
            axes.set_ylabel("")
    handles = {
        label: handle
        for axes in every
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(len(handles), 4),
    )
    pooled = {f"{p}, {name}": row for p, values in panels.items() for name, row in values.items()}
    caption = f"Accuracy of {', '.join(series)}; panels: {', '.join(panels)}. "
    return save_figure(
        figure, output, caption=caption + intervals_note(pooled), settings=settings or {}
    )


def bars_width(values: Mapping[str, Mapping[str, Estimate]]) -> float:
    """Inches for a plot of these bars."""
    num_sets = len(dict.fromkeys(name for row in values.values() for name in row))
    return min(max(4.8, 1.2 + 0.45 * len(values) * num_sets + 0.4 * num_sets), 14.0)


def draw_bar_groups(
    axes: Axes,
    values: Mapping[str, Mapping[str, Estimate]],
    *,
    series: Sequence[str] = (),
) -> list[str]:
    """The data sets, in whose order {series: {data set: estimate}} was drawn as groups of bars.

    `series` are the names that colours and hatching follow; by default those of `values`.
    """
    data_sets = list(dict.fromkeys(name for row in values.values() for name in row))
    order = list(series or values)
    bar = 0.8 / len(values)
    for index, (label, row) in enumerate(values.items()):
        offset = (index - (len(values) - 1) / 2) * bar
        places = [place + offset for place, name in enumerate(data_sets) if name in row]
        estimates = [row[name] for name in data_sets if name in row]
        number = order.index(label)
        colour = stage_colour(label, COLOURS[(number + 1) % len(COLOURS)])
        hatch = HATCHES[number % len(HATCHES)]
        draw_bars(axes, places, estimates, colours=[colour], width=bar, label=label, hatch=hatch)
    shown = [textwrap.fill(name.replace("_", " "), 14) for name in data_sets]
    axes.set_xticks(range(len(data_sets)), shown)
    percent_axis(axes, "Accuracy (% of problems)")
    return data_sets


def draw_bars(
    axes: Axes,
    places: Sequence[float],
    estimates: Sequence[Estimate],
    *,
    colours: Sequence[str],
    width: float,
    label: str | None = None,
    numbers: bool = False,
    hatch: str = "",
) -> None:
    """Draw a bar at each place, in percent, with its interval; with `numbers` the value above."""
    heights = [100 * one.value for one in estimates]
    below = [100 * (one.value - one.low) for one in estimates]
    above = [100 * (one.high - one.value) for one in estimates]
    container = axes.bar(
        places,
        heights,
        width=0.9 * width,
        color=colours,
        hatch=hatch,
        edgecolor="white",
        linewidth=0.0,
        yerr=[below, above],
        error_kw={"ecolor": INK, "elinewidth": 1.1, "capsize": 3},
        label=label,
    )
    for number, rectangle in enumerate(container):
        rectangle.set_gid(f"bar-{label or 'all'}-{number}")
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


def stage_colour(name: str, other: str) -> str:
    """One colour for a stage in every figure; `other` where the name is no stage."""
    return {"base": GREY, "sft": SKY, "grpo": BLUE}.get(name.lower(), other)


def legend_below(axes: Axes, *, columns: int, drop: float = -0.1) -> None:
    """A legend under the plot, where it can hide no data."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, drop), ncols=min(columns, 5))


def percent_axis(axes: Axes, label: str) -> None:
    """Make the vertical axis one of percent, from 0 to 100."""
    axes.set_ylim(0, 100)
    axes.set_ylabel(label)
    axes.tick_params(axis="x", length=0)


def intervals_note(values: Mapping[str, Mapping[str, Estimate]]) -> str:
    """A sentence on what the whiskers are; D16: no accuracy without n and interval."""
    every = [one for row in values.values() for one in row.values()]
    methods: dict[str, Any] = {
        "wilson": "Wilson",
        "effective": "Wilson on the effective sample size",
        "bootstrap": "bootstrap over problems",
    }
    used = " or ".join(methods[name] for name in sorted({one.interval for one in every}))
    sizes = ", ".join(str(n) for n in sorted({one.num_problems for one in every}))
    samples = ", ".join(str(n) for n in sorted({one.num_samples for one in every}))
    return f"Whiskers are 95 % intervals ({used}); n = {sizes} problems, {samples} sample(s) each."
