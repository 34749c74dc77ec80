"""`workings plot`: curves of runs, and bars of evaluations, from what they recorded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workings.cli.console import write_data, write_note
from workings.cli.folders import CONFIG, ENVIRONMENT
from workings.config.sources import kind_of, read_yaml
from workings.config.trees import leaves
from workings.errors import ConfigError, DataError, unknown_name
from workings.evaluation.metrics import Estimate
from workings.evaluation.plots import plot_bars, plot_curves
from workings.evaluation.reports import SUMMARY_FILE, read_summary
from workings.tracking.jsonl import FILE_NAME, read_metrics

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
CAPTION = (
    "kind",
    "model.name_or_path",
    "data.train.path",
    "data.template",
    "template",
    "objective.preset",
    "optimizer.learning_rate",
    "sampling.temperature",
    "seed",
    "commit",
)
"""Settings that a caption names also where all runs have them in common."""
OF_THE_FOLDER = ("name", "output_dir")
ACCURACY = "accuracy"
SMOOTH_FROM = 40
"""From so many points on, a training curve gets a moving mean over a tenth of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlottedRun:
    """A run's folder, the label of its line, its kind, and the names that it recorded."""

    folder: Path
    label: str
    kind: str
    recorded: Mapping[str, int]

    @property
    def file(self) -> Path:
        """The run's metrics."""
        return self.folder / FILE_NAME


def run(runs: Sequence[Path], *, metrics: Sequence[str], output: Path | None) -> int:
    """Draw every metric, one line per run; the files written go to stdout, one a line.

    Evaluations are drawn as bars, one group per data set, unless metrics are named.
    """
    folders = [folder.expanduser() for folder in runs]
    plotted = [
        read_run(folder, label) for folder, label in zip(folders, labels(folders), strict=True)
    ]
    kinds = {one.kind for one in plotted}
    target = folders[0] / "plots" if output is None else output.expanduser()
    if kinds == {"eval"} and not metrics:
        files = _draw_bars(plotted, _file(target, ACCURACY, num_figures=1))
    else:
        files = _draw_curves(plotted, metrics, target)
    write_data("\n".join(map(str, files)))
    return 0


def labels(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell the runs apart.

    >>> labels([Path("runs/a/grpo"), Path("runs/b/grpo")])
    ['a/grpo', 'b/grpo']
    """
    resolved = [folder.resolve().parts[1:] for folder in folders]
    length = 1
    while length < max(map(len, resolved)):
        if len({parts[-length:] for parts in resolved}) == len(set(resolved)):
            break
        length += 1
    return ["/".join(parts[-length:]) for parts in resolved]


def read_run(folder: Path, label: str) -> PlottedRun:
    """What is known about the run in `folder`; DataError where no run is there."""
    if not (folder / FILE_NAME).is_file():
        inside = sorted(path.parent.name for path in folder.glob(f"*/{FILE_NAME}"))
        raise DataError(
            f"{folder} is no run's folder: it holds no {FILE_NAME}",
            hint=f"it holds runs: {', '.join(inside)}" if inside else None,
        )
    counts = Counter(name for row in read_metrics(folder / FILE_NAME) for name in row)
    recorded = {name: count for name, count in counts.items() if "/" in name}
    kind = kind_of(str(folder)) if (folder / CONFIG).is_file() else ""
    return PlottedRun(folder=folder, label=label, kind=kind, recorded=recorded)


# ------------------------------------------------------------------------------------- curves


def _draw_curves(runs: Sequence[PlottedRun], metrics: Sequence[str], target: Path) -> list[Path]:
    chosen = [_full_name(name, runs) for name in metrics] or _default_metrics(runs)
    files = []
    for metric in chosen:
        having = [run for run in runs if metrics or metric in run.recorded]
        lacking = [run.label for run in runs if run not in having]
        if lacking:
            write_note(f"{metric} was not recorded by {', '.join(lacking)}")
        files += plot_curves(
            {run.label: run.file for run in having},
            metric,
            _file(target, metric, num_figures=len(chosen)),
            smoothing=_smoothing(metric, having),
            settings=_settings(having),
        )
    return files


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


# --------------------------------------------------------------------------------------- bars


def _draw_bars(runs: Sequence[PlottedRun], target: Path) -> list[Path]:
    """Accuracy by data set, one bar per evaluation."""
    values: dict[str, dict[str, Estimate]] = {}
    for run in runs:
        summaries = [read_summary(path) for path in sorted(run.folder.glob(f"*/{SUMMARY_FILE}"))]
        if not summaries:
            raise DataError(f"{run.folder} holds no finished evaluation")
        values[run.label] = {
            summary["dataset"]: Estimate(**next(iter(summary["estimates"].values())))
            for summary in summaries
        }
    return plot_bars(values, target, settings=_settings(runs))


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


def _settings(runs: Sequence[PlottedRun]) -> dict[str, object]:
    """For the caption: what the runs have in common, and in what each differs.

    Runs of two kinds differ in too much to list; of them only the usual settings are named.
    """
    trees = {run.label: _flat_settings(run.folder) for run in runs}
    one_kind = len({run.kind for run in runs}) == 1
    every = dict.fromkeys(path for tree in trees.values() for path in tree)
    every = every if one_kind else dict.fromkeys(CAPTION)
    differing = [path for path in every if len({str(t.get(path)) for t in trees.values()}) > 1]
    first = next(iter(trees.values()))
    common: dict[str, object] = {
        path: first[path] for path in CAPTION if path in first and path not in differing
    }
    for label, tree in trees.items():
        listed = ", ".join(f"{path}={tree[path]}" for path in differing if path in tree)
        if listed:
            common[label] = listed
    return common


def _flat_settings(folder: Path) -> dict[str, object]:
    """Dotted path to value, with the commit that ran; empty where the run has no record of it."""
    settings: dict[str, object] = {}
    if (folder / CONFIG).is_file():
        settings |= {k: v for k, v in leaves(read_yaml(folder / CONFIG)) if k not in OF_THE_FOLDER}
    if (folder / ENVIRONMENT).is_file():
        environment: Any = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))
        settings["commit"] = (environment.get("git") or {}).get("commit")
    return settings
