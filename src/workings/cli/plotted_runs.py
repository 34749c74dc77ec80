"""Runs as `workings plot` sees them: folders, labels, what was recorded, what captions say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workings.cli.folders import CONFIG, ENVIRONMENT
from workings.config.sources import kind_of, read_yaml
from workings.config.trees import leaves
from workings.errors import DataError
from workings.evaluation.summary_tables import SUMMARY_CSV
from workings.launch.sweep import SWEEP_FILE, read_sweep_runs
from workings.tracking.jsonl import FILE_NAME, read_metrics

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


def run_folders(folder: Path) -> list[Path]:
    """The folder itself, of a sweep those of its finished runs, of a grid those of its cells."""
    if (folder / SUMMARY_CSV).is_file() and not (folder / FILE_NAME).is_file():
        cells = sorted(path.parent for path in folder.rglob(FILE_NAME))
        if not cells:
            raise DataError(f"no evaluation of the grid {folder} has stored its metrics")
        return cells
    if not (folder / SWEEP_FILE).is_file():
        return [folder]
    finished = [run for run in read_sweep_runs(folder) if run.status == "finished"]
    if not finished:
        raise DataError(f"no run of the sweep {folder} is finished")
    return [run.metrics_file.parent for run in finished]


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


def shared_settings(runs: Sequence[PlottedRun]) -> dict[str, object]:
    """For the caption: what the runs have in common, and in what each differs.

    Runs of two kinds differ in too much to list; of them only the usual settings are named.
    """
    trees = {run.label: flat_settings(run.folder) for run in runs}
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


def flat_settings(folder: Path) -> dict[str, object]:
    """Dotted path to value, with the commit that ran; empty where the run has no record of it."""
    settings: dict[str, object] = {}
    if (folder / CONFIG).is_file():
        settings |= {k: v for k, v in leaves(read_yaml(folder / CONFIG)) if k not in OF_THE_FOLDER}
    if (folder / ENVIRONMENT).is_file():
        settings["commit"] = _commit(folder / ENVIRONMENT)
    return settings


def _commit(file: Path) -> object:
    try:
        environment: Any = json.loads(file.read_bytes())
        return (environment.get("git") or {}).get("commit")
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(
            f"{file} is no record of a run's environment: {error}",
            hint="captions take the commit from it; restore it, or remove it to plot without",
        ) from error
