"""`workings plot`: curves of runs, and bars of evaluations, from what they recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workings.cli.console import write_data, write_note
from workings.cli.figures import CURVES, CurveFigure, check_figure, line_labels, recorded_names
from workings.cli.plot_evaluations import (
    draw_bars,
    draw_before_after,
    draw_memory,
    draw_panels,
)
from workings.cli.plotted_runs import (
    PlottedRun,
    flat_settings,
    labels,
    read_run,
    run_folders,
    shared_settings,
)
from workings.errors import ConfigError, DataError, unknown_name
from workings.evaluation.plots import plot_curves

DEFAULTS = {
    "sft": (
        "train/loss",
        "eval/accuracy",
        "train/mean_token_accuracy",
        "train/avg_token_entropy",
        "train/grad_norm",
    ),
    "dpo": (
        "train/loss",
        "eval/loss",
        "eval/rewards/accuracies",
        "train/rewards/margins",
        "train/rewards/accuracies",
        "train/logps/accuracies",
        "train/logps/chosen",
        "train/grad_norm",
    ),
    "grpo": (
        "train/reward",
        "eval/accuracy",
        "eval/format_reward",
        "train/policy_loss",
        "train/completion_length/mean",
        "train/truncated_fraction",
        "train/frac_reward_zero_std",
        "train/token_entropy",
        "train/clip_fraction",
        "train/grad_norm",
    ),
}
"""What is drawn of each kind of run unless metrics are named."""
EVERY = tuple(dict.fromkeys(name for names in DEFAULTS.values() for name in names))
ACCURACY = "accuracy"
SMOOTH_FROM = 40
"""From so many points on, a training curve gets a moving mean over a tenth of them."""


def run(
    runs: Sequence[Path],
    *,
    metrics: Sequence[str],
    output: Path | None,
    figure: str | None = None,
    by: Sequence[str] = (),
    smoothing: int | None = None,
    title: str | None = None,
) -> int:
    """Draw every metric, one line per run; the files written go to stdout, one a line.

    Evaluations are drawn as bars, one group per data set, unless metrics are named. `figure` is one
    of the known figures instead. A sweep's folder stands for its runs.
    """
    given = [folder.expanduser() for folder in runs]
    target = _target(given[0]) if output is None else output.expanduser()
    if figure is not None:
        check_figure(figure)
        if metrics and figure not in CURVES:
            raise ConfigError(f"--figure {figure} draws no metric that --metric could name")
    if figure == "memory":
        files = draw_memory(given, _file(target, figure, num_figures=1), title=title)
        write_data("\n".join(map(str, files)))
        return 0
    folders = [place for folder in given for place in run_folders(folder)]
    plotted = [
        read_run(folder, label) for folder, label in zip(folders, labels(folders), strict=True)
    ]
    look = Look(by=tuple(by), smoothing=smoothing, title=title)
    kinds = {one.kind for one in plotted}
    if figure in ("bars", "bars-by-model"):
        by_model = figure == "bars-by-model"
        files = draw_panels(plotted, _file(target, figure, num_figures=1), by_model=by_model)
    elif figure == "step0-final":
        files = draw_before_after(plotted, _file(target, figure, num_figures=1), by=by, title=title)
    elif figure is not None:
        files = _draw_figure(plotted, figure, metrics, target, look)
    elif kinds == {"eval"} and not metrics:
        files = draw_bars(plotted, _file(target, ACCURACY, num_figures=1))
    else:
        files = _draw_curves(plotted, metrics, target, look)
    write_data("\n".join(map(str, files)))
    return 0


# ------------------------------------------------------------------------------------- curves


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the command line says of every figure.

    Attributes:
        by: settings that lines are told apart by; empty leaves that to the figure.
        smoothing: window of the moving mean, None for one that fits the number of points.
        title: None takes the figure's own.
    """

    by: tuple[str, ...] = ()
    smoothing: int | None = None
    title: str | None = None


def _draw_figure(
    runs: Sequence[PlottedRun], name: str, metrics: Sequence[str], target: Path, look: Look
) -> list[Path]:
    """One of the known figures of curves, of every metric of it that was recorded."""
    figure = CURVES[name]
    wanted = [_full_name(metric, runs) for metric in metrics] or [
        found
        for metric in figure.metrics
        for found in recorded_names(metric, [n for run in runs for n in run.recorded])
    ]
    wanted = list(dict.fromkeys(wanted))
    if not wanted:
        raise DataError(
            f"--figure {name} draws {', '.join(figure.metrics)}, which none of these runs recorded",
            hint="other metrics are drawn with --metric",
        )
    files = []
    for metric in wanted:
        having = [run for run in runs if metric in run.recorded]
        _say_lacking(metric, having, runs)
        stem = name if len(wanted) == 1 else f"{name}_{metric.replace('/', '_')}"
        files += plot_curves(
            _lines(having, look.by or figure.by),
            metric,
            _file(target, stem, num_figures=len(wanted)),
            title=look.title or _title(figure, metric, several=len(wanted) > 1),
            smoothing=look.smoothing or _smoothing(metric, having),
            settings=shared_settings(having),
        )
    return files


def _title(figure: CurveFigure, metric: str, *, several: bool) -> str:
    """The figure's title; of several metrics each says where it was measured."""
    where = {"train": "in training", "eval": "in evaluation"}.get(metric.partition("/")[0])
    return f"{figure.title}, {where}" if several and where else figure.title


def _lines(runs: Sequence[PlottedRun], by: Sequence[str]) -> dict[str, list[Path]]:
    """{label: metrics files}; runs that differ in their seed alone share a line."""
    names = line_labels(
        [flat_settings(run.folder) for run in runs], [run.label for run in runs], by=by
    )
    lines: dict[str, list[Path]] = {}
    for name, run in zip(names, runs, strict=True):
        lines.setdefault(name, []).append(run.file)
    return lines


def _draw_curves(
    runs: Sequence[PlottedRun], metrics: Sequence[str], target: Path, look: Look
) -> list[Path]:
    chosen = [_full_name(name, runs) for name in metrics] or _default_metrics(runs)
    files = []
    for metric in chosen:
        having = [run for run in runs if metrics or metric in run.recorded]
        _say_lacking(metric, having, runs)
        files += plot_curves(
            _lines(having, look.by) if look.by else {run.label: run.file for run in having},
            metric,
            _file(target, metric, num_figures=len(chosen)),
            title=look.title,
            smoothing=look.smoothing or _smoothing(metric, having),
            settings=shared_settings(having),
        )
    return files


def _say_lacking(metric: str, having: Sequence[PlottedRun], runs: Sequence[PlottedRun]) -> None:
    lacking = [run.label for run in runs if run not in having]
    if lacking:
        write_note(f"{metric} was not recorded by {', '.join(lacking)}")


def _default_metrics(runs: Sequence[PlottedRun]) -> list[str]:
    """What shows how these runs went, as far as they recorded it at two steps or more."""
    wanted = dict.fromkeys(name for run in runs for name in DEFAULTS.get(run.kind, EVERY))
    found = [name for name in wanted if any(run.recorded.get(name, 0) > 1 for run in runs)]
    if not found:
        raise DataError(
            f"{', '.join(run.label for run in runs)}: no curve to draw yet, because nothing was "
            "recorded at two steps",
            hint="name what to draw with --metric",
        )
    return found


def _full_name(name: str, runs: Sequence[PlottedRun]) -> str:
    """The metric as it was recorded; "reward" may stand for "train/reward"."""
    known = {metric for run in runs for metric in run.recorded}
    for candidate in (name, f"train/{name}", f"eval/{name}"):
        if candidate in known:
            return candidate
    raise DataError(unknown_name("metric", name, known))


def _smoothing(metric: str, runs: Sequence[PlottedRun]) -> int:
    """The window of the moving mean; 1, which is none, for evaluations and short runs."""
    num_points = max((run.recorded.get(metric, 0) for run in runs), default=0)
    if not metric.startswith("train/") or num_points < SMOOTH_FROM:
        return 1
    return num_points // 20 * 2 + 1


# ------------------------------------------------------------------------------ files, captions


def _file(target: Path, metric: str, *, num_figures: int) -> Path:
    """Where a figure goes: the file that was named, or one in the folder, in every format."""
    if target.is_dir() or not target.suffix:
        return target / metric.replace("/", "_")
    if num_figures > 1:
        raise ConfigError(
            f"--output {target} is one file, and there are {num_figures} figures to draw",
            hint="give a folder, or one --metric",
        )
    return target


def _target(first: Path) -> Path:
    """Where figures go unless --output says: the folder `plots` of the first run."""
    return (first if first.is_dir() else first.parent) / "plots"
