"""Files of an evaluation: `{folder}/{dataset}/results.jsonl` and `summary.json`, and their summary.

Earlier readers know results.jsonl by prompt, ground_truth, response and metrics, and summary.json
by total_examples, aggregate_metrics and category_breakdown; the other fields are additions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workings.errors import DataError
from workings.evaluation.breakdowns import (
    breakdown,
    category_breakdown,
    finish_breakdown,
    shares,
    subject_average,
)
from workings.evaluation.other_rows import (
    NO_DATA_SET,
    artefact_rows,
    as_result_row,
    data_set_of,
)
from workings.evaluation.result import EvaluationResult
from workings.evaluation.sample_metrics import answer_reward, format_reward, is_right, usable_groups
from workings.tracking.whole_file import write_whole
from workings.types import Rollout, RolloutGroup

RESULTS_FILE, SUMMARY_FILE = "results.jsonl", "summary.json"
REWARD_NAMES = ("format_reward", "answer_reward", "reward")


def write_results(
    folder: Path, result: EvaluationResult, *, settings: Mapping[str, object]
) -> Path:
    """The folder of the data set, which now holds `results.jsonl` and `summary.json`.

    `settings` says what the numbers depend on: model, template, backend, sampling, seed, grader
    mode and speed, versions. Rows have `token_entropy` where the result has entropies.
    """
    target = folder / result.dataset
    target.mkdir(parents=True, exist_ok=True)
    rows = [
        result_row(group, sample, rollout)
        for group in result.groups
        for sample, rollout in enumerate(group.rollouts)
    ]
    entropies = [value for values in result.entropies for value in values]
    for row, entropy in zip(rows, entropies, strict=bool(entropies)):
        row["token_entropy"] = None if math.isnan(entropy) else entropy
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    write_whole(target / RESULTS_FILE, "".join(f"{line}\n" for line in lines))
    summary = summarise_results(result, settings=settings)
    write_whole(target / SUMMARY_FILE, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return target


def result_row(group: RolloutGroup, sample: int, rollout: Rollout) -> dict[str, Any]:
    """One row of results.jsonl. A sample whose gold is unusable has null rewards."""
    problem, grade = group.problem, rollout.grade
    unusable = rollout.reward is None
    return {
        "prompt": group.prompt.text,
        "ground_truth": problem.answer,
        "response": rollout.text,
        "metrics": {
            "format_reward": None if unusable else format_reward(rollout),
            "answer_reward": None if unusable else answer_reward(rollout),
            "reward": rollout.reward,
        },
        "id": problem.id,
        "sample": sample,
        "subject": problem.subject,
        "level": problem.level,
        "components": dict(rollout.components),
        "correct": None if unusable else is_right(rollout),
        "extracted": None if grade is None else grade.extracted,
        "verdict": None if grade is None else grade.verdict.value,
        "response_tokens": len(rollout.ids),
        "finish_reason": rollout.finish_reason,
    }


def summarise_results(
    result: EvaluationResult, *, settings: Mapping[str, object]
) -> dict[str, Any]:
    """The content of summary.json. Means and shares leave samples with unusable golds out.

    "estimates" count a sample as right where format and answer are (strict), "lenient_estimates"
    where the answer is; these are null where the reward read no answer outside of the format.
    "subject_average" is the unweighted mean over subjects, null where there are not two of them.
    """
    groups = usable_groups(result.groups)
    lenient = {name: one.to_dict() for name, one in result.lenient_estimates.items()}
    return {
        "total_examples": sum(len(group.rollouts) for group in result.groups),
        "aggregate_metrics": {name: result.metrics[name] for name in REWARD_NAMES},
        "category_breakdown": category_breakdown(groups),
        "subject_breakdown": breakdown(groups, by=lambda problem: problem.subject),
        "level_breakdown": breakdown(groups, by=lambda problem: problem.level),
        "subject_average": subject_average(groups),
        "estimates": {name: one.to_dict() for name, one in result.estimates.items()},
        "lenient_estimates": lenient if grades_outside_of_the_format(settings) else None,
        "shares": shares(groups),
        "finish_reasons": finish_breakdown(groups),
        "metrics": dict(result.metrics),
        "dataset": result.dataset,
        "seconds": result.seconds,
        "settings": dict(settings),
    }


def grades_outside_of_the_format(settings: Mapping[str, Any]) -> bool:
    """Whether an answer counts whatever its format; the strict r1_zero rewards do not look."""
    grader = settings.get("grader") or {}
    return bool(grader.get("mode", "four_class") == "four_class")


def read_summary(path: Path) -> dict[str, Any]:
    """The summary in `path`, a summary.json or the folder that holds one."""
    file = path / SUMMARY_FILE if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"no evaluation summary at {file}", hint="workings eval writes it")
    summary = _parse(file, file.read_bytes())
    missing = [name for name in ("total_examples", "aggregate_metrics") if name not in summary]
    if missing:
        raise DataError(f"{file} is no evaluation summary: it has no {' and no '.join(missing)}")
    return summary


def read_results(path: Path) -> list[dict[str, Any]]:
    """The rows in `path`, a results.jsonl or the folder that holds one.

    The rows of an `eval_runs` file (.json) and of a flat results file have the same fields here.
    Where rows are of several data sets, ids have theirs before them.
    """
    rows = _read_rows(path)
    names = [data_set_of(row) or NO_DATA_SET for row in rows]
    if len(set(names)) < 2:
        return rows
    return [
        {**row, "id": f"{name}/{row['id']}"} if "id" in row else row
        for name, row in zip(names, rows, strict=True)
    ]


def read_by_data_set(path: Path) -> dict[str, list[dict[str, Any]]]:
    """{data set: its rows} of such a file; "" stands for the one of a file that names none."""
    rows = _read_rows(path)
    names = [data_set_of(row) for row in rows]
    unnamed = NO_DATA_SET if any(names) else ""
    by_set: dict[str, list[dict[str, Any]]] = {}
    for name, row in zip(names, rows, strict=True):
        by_set.setdefault(name or unnamed, []).append(row)
    return by_set


def _read_rows(path: Path) -> list[dict[str, Any]]:
    file = path / RESULTS_FILE if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"no evaluation results at {file}", hint="workings eval writes them")
    if file.suffix == ".json":
        return artefact_rows(_parse(file, file.read_bytes()), where=str(file), own_ids=True)
    with file.open("rb") as lines:
        return [
            as_result_row(_parse(file, line, number))
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ]


def _parse(file: Path, text: bytes, number: int | None = None) -> dict[str, Any]:
    where = f"{file}" if number is None else f"{file} line {number}"
    try:
        value = json.loads(text.decode())
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{where} holds {type(value).__name__}; expected a JSON object")
    return value
