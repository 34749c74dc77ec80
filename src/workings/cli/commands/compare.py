"""`workings compare`: evaluations paired by problem, and training runs by their final metrics."""

from __future__ import annotations

import glob
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workings.cli.comparison_text import Cell, comparison_report, final_metrics_table
from workings.cli.console import write_data, write_note
from workings.cli.plotted_runs import labels
from workings.errors import ConfigError, DataError, unknown_name
from workings.evaluation.comparison import Comparison, Side, compare_sides
from workings.evaluation.stored_evaluations import differing_settings, find_evaluation
from workings.tracking.jsonl import FILE_NAME, read_metrics

SHOWN = (
    "train/reward",
    "train/loss",
    "train/policy_loss",
    "train/completion_length/mean",
    "train/truncated_fraction",
    "train/token_entropy",
    "train/avg_token_entropy",
    "train/kl",
    "train/grad_norm",
)
"""Training metrics that are shown where nothing is named, besides what was evaluated."""
EVALUATED = (
    "accuracy",
    "answer_accuracy",
    "format_accuracy",
    "reward",
    "avg_response_length/total",
    "loss",
    "rewards/accuracies",
)
"""Ends of the names of evaluation metrics that are shown; their intervals come along."""


def run(
    folders: Sequence[str],
    *,
    pool: bool,
    datasets: Sequence[str],
    step: int | None,
    metrics: Sequence[str],
    as_json: bool,
) -> int:
    """Compare everything with the first; the tables, or JSON, go to stdout."""
    paths = [_paths(given, pool=pool) for given in folders]
    if len(paths) < 2:
        raise ConfigError(
            "one folder has nothing to be compared with",
            hint="name two or more: workings compare runs/before runs/after",
        )
    labels = _labels(folders, paths, pool=pool)
    sides = [
        Side(label=label, evaluations=found)
        for label, group in zip(labels, paths, strict=True)
        if len(found := _evaluations(group, step)) == len(group)
    ]
    curves = {} if pool else _final_metrics(labels, [group[0] for group in paths], metrics)
    comparisons: list[Comparison] = []
    if len(sides) == len(paths):
        common = _data_sets(sides, datasets, needed=not curves)
        comparisons = compare_sides(sides[0], sides[1:], data_sets=common)
        _note_settings(sides, common)
    elif not curves or datasets or step is not None:
        _refuse(labels, paths, step)
    _write(curves, comparisons, as_json=as_json)
    return 0


def _write(
    curves: Mapping[str, Mapping[str, Cell]], comparisons: Sequence[Comparison], *, as_json: bool
) -> None:
    if as_json:
        content: dict[str, Any] = {
            "comparisons": [one.to_dict() for one in comparisons],
            "final_metrics": {
                label: {name: {"value": cell[0], "step": cell[1]} for name, cell in cells.items()}
                for label, cells in curves.items()
            },
        }
        write_data(json.dumps(content, indent=2, ensure_ascii=False))
        return
    parts = [final_metrics_table(curves)] if curves else []
    parts += [comparison_report(comparisons)] if comparisons else []
    write_data("\n\n".join(parts))


# ---------------------------------------------------------------------------- what is compared


def _paths(given: str, *, pool: bool) -> list[Path]:
    """The folders that one argument names: itself, or with `pool` all of a list or a pattern."""
    if not pool:
        return [Path(given).expanduser()]
    found: list[Path] = []
    for part in given.split(","):
        matches = sorted(glob.glob(str(Path(part).expanduser())))
        if not matches:
            raise DataError(f"no folder {part}", hint="--pool takes A,B,C or a quoted pattern")
        found += map(Path, matches)
    twice = [path for path, count in Counter(path.resolve() for path in found).items() if count > 1]
    if twice:
        raise ConfigError(f"{given} pools {twice[0]} twice")
    return found


def _labels(folders: Sequence[str], paths: Sequence[Sequence[Path]], *, pool: bool) -> list[str]:
    """What every side is called: the end of its path that tells it apart, or the pattern."""
    if pool:
        return list(folders)
    parts = [group[0].resolve().parts for group in paths]
    if len(set(parts)) < len(parts):
        twice = next(one for one in parts if parts.count(one) > 1)
        raise ConfigError(f"{Path(*twice)} is given twice")
    return labels([group[0] for group in paths])


def _evaluations(group: Sequence[Path], step: int | None) -> tuple[Any, ...]:
    found = [find_evaluation(path, step=step) for path in group]
    for path, one in zip(group, found, strict=True):
        if one is not None and one.step is not None and step is None:
            write_note(f"{path}: its last evaluation is taken, of step {one.step}; --step N others")
    return tuple(one for one in found if one is not None)


def _data_sets(sides: Sequence[Side], asked: Sequence[str], *, needed: bool) -> list[str]:
    """The data sets to compare on: those that were asked for, or all that every side has."""
    having = {name for side in sides for name in side.data_sets}
    common = [name for name in sides[0].data_sets if all(name in s.data_sets for s in sides)]
    for name in asked:
        if name not in having:
            raise DataError(unknown_name("data set", name, having))
        if name not in common:
            lacking = [side.label for side in sides if name not in side.data_sets]
            raise DataError(f"{name} was not evaluated by {', '.join(lacking)}")
    if asked:
        return list(dict.fromkeys(asked))
    if not common and needed:
        listed = "; ".join(f"{one.label}: {', '.join(one.data_sets)}" for one in sides)
        raise DataError(f"no data set was evaluated by all ({listed})")
    for name in sorted(having - set(common)):
        owners = [side.label for side in sides if name in side.data_sets]
        write_note(f"{name} is left out: only {', '.join(owners)} has it")
    return common


def _note_settings(sides: Sequence[Side], data_sets: Sequence[str]) -> None:
    """Say where evaluations were not measured alike: their difference is not the model's alone."""
    reference = sides[0].evaluations[0]
    for side in sides:
        for dataset in data_sets:
            for one in side.evaluations:
                differing = differing_settings(reference.data_sets[dataset], one.data_sets[dataset])
                if differing:
                    write_note(
                        f"{dataset}: {sides[0].label} and {side.label} were measured with other "
                        f"settings: {'; '.join(differing)}"
                    )


def _refuse(labels: Sequence[str], paths: Sequence[Sequence[Path]], step: int | None) -> None:
    """Raise DataError for sides without stored evaluations."""
    lacking = [
        label
        for label, group in zip(labels, paths, strict=True)
        if any(find_evaluation(path, step=step) is None for path in group)
    ]
    raise DataError(
        f"{', '.join(lacking)}: no evaluation results there",
        hint="workings eval -c RUN writes them, and a run's own evaluations lie in RUN/eval",
    )


# ------------------------------------------------------------------------------- final metrics


def _final_metrics(
    labels: Sequence[str], folders: Sequence[Path], asked: Sequence[str]
) -> dict[str, dict[str, Cell]]:
    """{run: {metric: last value}}, empty unless all are training runs or metrics are named."""
    files = [folder / FILE_NAME for folder in folders]
    if not all(file.is_file() for file in files):
        if asked:
            lacking = [str(file) for file in files if not file.is_file()]
            raise DataError(f"--metric needs runs with metrics; there is no {lacking[0]}")
        return {}
    last = [_last_values(file) for file in files]
    if not asked and not all(any(n.startswith("train/") for n in one) for one in last):
        return {}
    known = list(dict.fromkeys(name for one in last for name in one))
    chosen = [_full_name(name, known) for name in asked] or _usual(known)
    kept = {name for one in chosen for name in (one, f"{one}_low", f"{one}_high")}
    return {
        label: {name: one[name] for name in known if name in kept and name in one}
        for label, one in zip(labels, last, strict=True)
    }


def _last_values(file: Path) -> dict[str, Cell]:
    """Metric to its last value and the step of that."""
    values: dict[str, Cell] = {}
    for row in read_metrics(file):
        values |= {name: (value, row["step"]) for name, value in row.items() if "/" in name}
    return values


def _usual(known: Sequence[str]) -> list[str]:
    evaluated = [
        name
        for name in known
        if name.startswith("eval/") and any(name.endswith(f"/{end}") for end in EVALUATED)
    ]
    return [*(name for name in SHOWN if name in known), *evaluated]


def _full_name(name: str, known: Sequence[str]) -> str:
    """The metric as it was recorded; "reward" may stand for "train/reward"."""
    for candidate in (name, f"train/{name}", f"eval/{name}"):
        if candidate in known:
            return candidate
    raise DataError(unknown_name("metric", name, known))
