"""A whole evaluation in one JSON file, as earlier programs kept it in `eval_runs/`.

eval_runs/{run}/step_{n}/{run}_step_{n}_eval_{YYYYmmdd_HHMMSS}.json

    metadata            model_name, timestamp, total_samples, prompt_template, sampling_params,
                        overall_metrics
    subject_breakdown   {subject: {correct, total, accuracy}}
    results             [{id, subject, level, question, ground_truth, r1_format_extracted, correct,
                        rewards, full_response}], with sample and dataset besides

Samples whose gold is unusable are listed with null, and left out of every number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from workings.errors import DataError
from workings.evaluation.reports import result_row
from workings.tracking.whole_file import write_whole
from workings.types import RolloutGroup

ARTEFACT_FOLDER = "eval_runs"
Groups = Mapping[str, Sequence[RolloutGroup]]
"""Data set to its graded groups."""


def artefact(
    groups: Groups,
    *,
    model: str,
    template: str,
    sampling: Mapping[str, Any],
    timestamp: datetime,
) -> dict[str, Any]:
    """The content of the file."""
    results = [
        _result(dataset, group, sample)
        for dataset, members in groups.items()
        for group in members
        for sample in range(len(group.rollouts))
    ]
    graded = [row for row in results if row["correct"] is not None]
    if not graded:
        raise DataError("no graded sample to write an evaluation of")
    return {
        "metadata": {
            "model_name": model,
            "timestamp": timestamp.isoformat(timespec="seconds"),
            "total_samples": len(graded),
            "prompt_template": template,
            "sampling_params": dict(sampling),
            "overall_metrics": _overall(graded),
        },
        "subject_breakdown": _by_subject(graded),
        "results": results,
    }


def write_artefact(
    folder: Path, content: Mapping[str, Any], *, run: str, step: int, timestamp: datetime
) -> Path:
    """The file, written to the side and renamed; its folder is made."""
    stem = run.replace("/", "_")
    path = folder / f"{stem}_step_{step}_eval_{timestamp:%Y%m%d_%H%M%S}.json"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return path


def artefact_folder(output_dir: Path, *, run: str, step: int) -> Path:
    """Where the evaluations of a run's step lie.

    >>> artefact_folder(Path("."), run="grpo", step=100).as_posix()
    'eval_runs/grpo/step_100'
    """
    return output_dir / ARTEFACT_FOLDER / run / f"step_{step}"


def _result(dataset: str, group: RolloutGroup, sample: int) -> dict[str, Any]:
    row = result_row(group, sample, group.rollouts[sample])
    return {
        "id": row["id"],
        "subject": row["subject"],
        "level": row["level"],
        "question": group.problem.question,
        "ground_truth": row["ground_truth"],
        "r1_format_extracted": row["extracted"],
        "correct": row["correct"],
        "rewards": row["metrics"],
        "full_response": row["response"],
        "sample": sample,
        "dataset": dataset,
    }


def _overall(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Shares of samples, and how many are right and wrong, of answer, format and both."""
    right = {
        "answer": [row["rewards"]["answer_reward"] > 0 for row in rows],
        "format": [row["rewards"]["format_reward"] > 0 for row in rows],
        "overall": [bool(row["correct"]) for row in rows],
    }
    metrics: dict[str, Any] = {
        f"{name}_accuracy": sum(marks) / len(marks) for name, marks in right.items()
    }
    for name, marks in right.items():
        metrics[f"num_{name}_correct"] = sum(marks)
        metrics[f"num_{name}_incorrect"] = len(marks) - sum(marks)
    return metrics


def _by_subject(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    marks: dict[str, list[bool]] = {}
    for row in rows:
        marks.setdefault(row["subject"] or "unknown", []).append(bool(row["correct"]))
    return {
        subject: {"correct": sum(one), "total": len(one), "accuracy": sum(one) / len(one)}
        for subject, one in sorted(marks.items())
    }
