"""Small folders of runs, evaluations and rollouts, written as the package writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from workings.tracking.rollouts import write_groups
from workings.types import Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict


def results_row(problem: str, sample: int = 0, *, kind: str = "11", **more: Any) -> dict[str, Any]:
    """A row of results.jsonl; `kind` is its class, "11" right."""
    form, answer = (float(digit) for digit in kind)
    return {
        "prompt": f"What is {problem}?",
        "ground_truth": "4",
        "response": "It is 4.",
        "metrics": {"format_reward": form, "answer_reward": answer, "reward": form * answer},
        "id": problem,
        "sample": sample,
        "subject": "Algebra",
        "level": "1",
        "components": {"format": form, "answer": answer},
        "correct": kind == "11",
        "extracted": "4",
        "verdict": "equal" if answer else "different",
        "response_tokens": 5,
        "finish_reason": "stop",
    } | more


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """The file, written with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_evaluation(folder: Path, kinds: Sequence[str], **settings: Any) -> Path:
    """`results.jsonl` and `summary.json` in `folder`, one sample for each class in `kinds`."""
    write_jsonl(
        folder / "results.jsonl",
        [results_row(f"sums/{number}", kind=kind) for number, kind in enumerate(kinds)],
    )
    right = kinds.count("11") / len(kinds)
    estimate = {"value": right, "low": right - 0.1, "high": right + 0.1}
    counts = {"num_problems": len(kinds), "num_samples": 1, "interval": "wilson"}
    summary = {
        "total_examples": len(kinds),
        "aggregate_metrics": {"reward": right, "format_reward": 1.0, "answer_reward": right},
        "subject_breakdown": {"Algebra": {}},
        "level_breakdown": {"1": {}},
        "estimates": {"pass@1": estimate | counts},
        "metrics": {"format_accuracy": 1.0, "truncation_rate": 0.25},
        "dataset": folder.name,
        "settings": {"model": "runs/x/final", "sampling": {"temperature": 0.5}} | settings,
    }
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder / "results.jsonl"


def write_rollouts(path: Path, rewards: Sequence[Sequence[float]]) -> Path:
    """A file of rollouts, [groups][samples]; three tokens each, the last of them not trained."""
    groups = [
        RolloutGroup(
            prompt=Prompt(
                problem=Problem(
                    id=f"p/{number}", question=f"{number}+1", answer=str(number + 1), subject="+"
                ),
                ids=(1, 2),
                text=f"{number}+1\n<think>",
            ),
            rollouts=tuple(_rollout(number, reward) for reward in row),
        )
        for number, row in enumerate(rewards)
    ]
    advantages = [[reward - sum(row) / len(row) for reward in row] for row in rewards]
    write_groups(path, groups, step=3, advantages=advantages)
    return path


def _rollout(number: int, reward: float) -> Rollout:
    return Rollout(
        ids=(5, 6, 7),
        sampling_logprobs=(-0.1, -2.0, float("nan")),
        kept_mass=(1.0, 1.0, 1.0),
        mask=(True, True, False),
        off_policy=(False, False, False),
        text=f"so</think> {number + 1}",
        finish_reason="stop" if reward else "length",
        weight_version=1,
        reward=reward,
        components={"format": 1.0, "answer": reward},
        grade=Grade(
            verdict=Verdict.EQUAL if reward else Verdict.DIFFERENT, tier="string", extracted="1"
        ),
    )
