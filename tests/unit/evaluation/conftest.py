"""Graded groups and metrics made by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from workings.evaluation.result import EvaluationResult, summarise
from workings.tracking.jsonl import MetricsFile
from workings.types import FinishReason, Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict

CLASSES = {"11": (1.0, 1.0), "10": (1.0, 0.0), "00": (0.0, 0.0), "01": (0.0, 1.0)}


@pytest.fixture(scope="session")
def make_group() -> Callable[..., RolloutGroup]:
    """A function: problem id and one class ("11", "10", "00", "01" or "bad gold") per sample."""

    def build(
        problem_id: str,
        *classes: str,
        subject: str | None = None,
        level: str | None = None,
        extracted: Sequence[str | None] | None = None,
        lengths: Sequence[int] | None = None,
        finish_reasons: Sequence[FinishReason] | None = None,
    ) -> RolloutGroup:
        problem = Problem(
            id=problem_id, question="2 + 2?", answer="4", subject=subject, level=level
        )
        rollouts = []
        for index, name in enumerate(classes):
            length = 4 if lengths is None else lengths[index]
            common: dict[str, Any] = {
                "ids": tuple(range(length)),
                "sampling_logprobs": (-0.5,) * length,
                "kept_mass": (1.0,) * length,
                "mask": (True,) * length,
                "off_policy": (False,) * length,
                "text": f"{problem_id} says {name}",
                "finish_reason": "eos" if finish_reasons is None else finish_reasons[index],
                "weight_version": 0,
            }
            if name == "bad gold":
                rollouts.append(Rollout(**common, grade=Grade(verdict=Verdict.BAD_GOLD)))
                continue
            format_reward, answer_reward = CLASSES[name]
            said = ("4" if answer_reward else "5") if extracted is None else extracted[index]
            verdict = Verdict.EQUAL if answer_reward else Verdict.DIFFERENT
            if said is None:
                verdict = Verdict.NO_ANSWER
            rollouts.append(
                Rollout(
                    **common,
                    reward=format_reward * answer_reward,
                    components={"format": format_reward, "answer": answer_reward},
                    grade=Grade(verdict=verdict, extracted=said),
                )
            )
        prompt = Prompt(problem=problem, ids=(1, 2), text="Q: 2 + 2?")
        return RolloutGroup(prompt=prompt, rollouts=tuple(rollouts))

    return build


@pytest.fixture(scope="session")
def make_result(make_group: Callable[..., RolloutGroup]) -> Callable[..., EvaluationResult]:
    """A function: a result of single samples, `right` of `total` in class 11, the rest in 10."""

    def build(right: int, total: int, *, dataset: str = "sums") -> EvaluationResult:
        groups = [
            make_group(f"{dataset}/{index}", "11" if index < right else "10")
            for index in range(total)
        ]
        return summarise(groups, dataset=dataset, seed=0, seconds=12.0)

    return build


@pytest.fixture
def metrics_file(tmp_path: Path) -> Path:
    """Twelve training steps, and an evaluation with an interval every fourth."""
    path = tmp_path / "run" / "metrics.jsonl"
    sink = MetricsFile(path)
    for step in range(13):
        if step:
            row = {"train/reward": step / 20, "train/loss": 0.001}
            sink.record(step, "train", row, time=0.0)
        if step % 4 == 0:
            accuracy = 0.4 + step / 40
            row = {
                "eval/sums/accuracy": accuracy,
                "eval/sums/accuracy_low": accuracy - 0.05,
                "eval/sums/accuracy_high": accuracy + 0.05,
            }
            sink.record(step, "eval", row, time=0.0)
    sink.close()
    return path
