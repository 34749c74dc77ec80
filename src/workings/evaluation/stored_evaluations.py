"""Evaluations in a folder: what `workings eval` or a training run left, by data set.

eval run        NAME/DATASET/results.jsonl
training run    NAME/eval/step_000100/DATASET/results.jsonl
one data set    DATASET/results.jsonl, or that file itself
several         a whole-run file, or a flat results file, whose rows say which one they are of
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workings.config.trees import leaves
from workings.errors import DataError
from workings.evaluation.reports import (
    RESULTS_FILE,
    SUMMARY_FILE,
    read_by_data_set,
    read_summary,
)

IN_A_RUN = "eval"
STEP_FOLDER = re.compile(r"step_(\d+)")
WHAT_IS_MEASURED = ("template", "sampling", "num_samples", "grader", "system_prompt")
"""Settings in which two evaluations should agree when they are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvaluation:
    """The results files of one evaluation.

    Attributes:
        path: the folder that was named.
        step: of the training run that it belongs to, None outside of one.
        data_sets: name to the file with its rows.
        by_row: the rows say their data set, and one file may be that of several.
    """

    path: Path
    step: int | None
    data_sets: Mapping[str, Path]
    by_row: bool = False


def find_evaluation(path: Path, *, step: int | None = None) -> StoredEvaluation | None:
    """What `path` holds; of a training run the evaluation at `step`, by default the last one.

    None where there are no results. DataError where nothing is at `path`, or not that step.
    """
    if path.is_file():
        return _in_file(path, path)
    if not path.is_dir():
        raise DataError(f"no folder {path}", hint="workings eval writes runs/NAME")
    own = path / RESULTS_FILE
    if own.is_file():
        return _in_file(path, own)
    steps = _steps(path / IN_A_RUN)
    if steps:
        chosen = max(steps) if step is None else step
        if chosen not in steps:
            raise DataError(
                f"{path} has no evaluation at step {chosen}; it has {', '.join(map(str, steps))}"
            )
        return StoredEvaluation(path=path, step=chosen, data_sets=_data_sets(steps[chosen]))
    if step is not None:
        raise DataError(f"{path} is no training run with evaluations, so it has no step {step}")
    found = _data_sets(path)
    return StoredEvaluation(path=path, step=None, data_sets=found) if found else None


def differing_settings(first: Path, second: Path) -> list[str]:
    """What two results files were measured with differently: "sampling.temperature 0.0 and 1.0".

    Empty where one of them has no summary beside it, or one of an earlier program.
    """
    sides = [_settings(path.parent / SUMMARY_FILE) for path in (first, second)]
    if not all(sides):
        return []
    names = dict.fromkeys([*sides[0], *sides[1]])
    return [
        f"{name} {sides[0].get(name)} and {sides[1].get(name)}"
        for name in names
        if sides[0].get(name) != sides[1].get(name)
    ]


def _in_file(path: Path, file: Path) -> StoredEvaluation:
    """What one file holds; its data set is called by its folder where the rows name none."""
    own = file.name == RESULTS_FILE and (file.parent / SUMMARY_FILE).is_file()
    names = [] if own else [name for name in read_by_data_set(file) if name]
    found = dict.fromkeys(names, file) or {file.resolve().parent.name: file}
    return StoredEvaluation(path=path, step=None, data_sets=found, by_row=bool(names))


def _steps(folder: Path) -> dict[int, Path]:
    """Step to its folder, in order, of those that hold results."""
    found = {}
    for path in folder.glob("step_*"):
        match = STEP_FOLDER.fullmatch(path.name)
        if match is not None and _data_sets(path):
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def _data_sets(folder: Path) -> dict[str, Path]:
    return {path.parent.name: path for path in sorted(folder.glob(f"*/{RESULTS_FILE}"))}


def _settings(summary: Path) -> dict[str, Any]:
    if not summary.is_file():
        return {}
    settings = read_summary(summary).get("settings", {})
    kept = {name: settings[name] for name in WHAT_IS_MEASURED if name in settings}
    return dict(leaves(kept))
