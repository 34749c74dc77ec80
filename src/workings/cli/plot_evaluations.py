"""Figures of evaluations for `workings plot`: bars, panels of bars, before and after, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workings.cli.figures import line_labels
from workings.cli.plotted_runs import PlottedRun, flat_settings, shared_settings
from workings.errors import DataError
from workings.evaluation.metrics import Estimate
from workings.evaluation.plots_bars import plot_bar_panels, plot_bars
from workings.evaluation.plots_before_after import plot_before_after, read_before_after
from workings.evaluation.plots_memory import LARGEST, plot_memory, read_largest
from workings.evaluation.reports import SUMMARY_FILE, read_summary


def draw_bars(runs: Sequence[PlottedRun], target: Path) -> list[Path]:
    """Accuracy by data set, one bar per evaluation."""
    values = {run.label: _estimates(run) for run in runs}
    return plot_bars(values, target, settings=shared_settings(runs))


def draw_panels(runs: Sequence[PlottedRun], target: Path, *, by_model: bool) -> list[Path]:
    """Accuracy by data set; a panel for each sampling and bars for models, or the other way."""
    panels: dict[str, dict[str, dict[str, Estimate]]] = {}
    for run in runs:
        for summary in _summaries(run):
            model, sampling = _model_and_sampling(summary, run)
            panel, series = (model, sampling) if by_model else (sampling, model)
            bars = panels.setdefault(panel, {}).setdefault(series, {})
            if summary["dataset"] in bars:
                raise DataError(
                    f"two evaluations of {model} on {summary['dataset']} with {sampling}",
                    hint="plot one of them, or draw them by folder, without --figure",
                )
            bars[summary["dataset"]] = _estimate(summary)
    return plot_bar_panels(panels, target, settings=shared_settings(runs))


def draw_before_after(
    runs: Sequence[PlottedRun], target: Path, *, by: Sequence[str], title: str | None
) -> list[Path]:
    """Two bars for each run, or for each of its data sets where it has several."""
    names = line_labels(
        [flat_settings(run.folder) for run in runs], [run.label for run in runs], by=by
    )
    if len(set(names)) < len(names):
        names = [run.label for run in runs]
    found = {}
    for name, run in zip(names, runs, strict=True):
        by_set = read_before_after(run.folder)
        for dataset, one in by_set.items():
            label = dataset if len(runs) == 1 else name
            found[label if len(by_set) == 1 or len(runs) == 1 else f"{name}, {dataset}"] = one
    return plot_before_after(found, target, title=title, settings=shared_settings(runs))


def _summaries(run: PlottedRun) -> list[dict[str, Any]]:
    found = [read_summary(path) for path in sorted(run.folder.glob(f"*/{SUMMARY_FILE}"))]
    if not found:
        raise DataError(f"{run.folder} holds no finished evaluation")
    return found


def _estimates(run: PlottedRun) -> dict[str, Estimate]:
    return {summary["dataset"]: _estimate(summary) for summary in _summaries(run)}


def _estimate(summary: Mapping[str, Any]) -> Estimate:
    """The headline of an evaluation."""
    return Estimate(**next(iter(summary["estimates"].values())))


def _model_and_sampling(summary: Mapping[str, Any], run: PlottedRun) -> tuple[str, str]:
    """What an evaluation was of: the end of the model's path, and (T, top_p)."""
    settings = summary.get("settings") or {}
    sampling = settings.get("sampling") or {}
    model = str(settings.get("model") or run.label)
    temperature, top_p = sampling.get("temperature"), sampling.get("top_p")
    return "/".join(Path(model).parts[-2:]), f"T = {temperature}, top_p = {top_p}"


def draw_memory(places: Sequence[Path], target: Path, *, title: str | None) -> list[Path]:
    """The map of every profile found in the files and folders."""
    files = [
        file
        for place in places
        for file in ([place] if place.is_file() else sorted(place.rglob(LARGEST)))
    ]
    if not files:
        raise DataError(
            f"no {LARGEST} in {', '.join(map(str, places))}",
            hint="workings profile memory writes one; another file may be named itself",
        )
    return plot_memory([row for file in files for row in read_largest(file)], target, title=title)
