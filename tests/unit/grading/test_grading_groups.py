"""Groups of rollouts, and batches that are decided in part while workers are at work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workings.grading.grader import Grader
from workings.grading.workers.batch import Batch
from workings.types import Problem, Prompt, Rollout, RolloutGroup, Verdict


def rollout(text: str) -> Rollout:
    return Rollout(
        ids=[1],
        sampling_logprobs=[-0.1],
        kept_mass=[1.0],
        mask=[True],
        off_policy=[False],
        text=text,
        finish_reason="eos",
        weight_version=0,
        reward=0.5,
    )


def group(answer: str, *texts: str) -> RolloutGroup:
    problem = Problem(id=answer, question="?", answer=answer)
    prompt = Prompt(problem=problem, text="?", ids=(1,))
    return RolloutGroup(prompt=prompt, rollouts=tuple(map(rollout, texts)))


def test_rollouts_of_one_problem_share_its_gold() -> None:
    groups = [
        group("1/2", r"\boxed{0.5}", r"\boxed{0.6}", "no box"),
        group("1+x", r"\boxed{x+1}"),
        group("", r"\boxed{1}"),
        group("7"),
    ]
    with Grader() as grader:
        graded = grader.grade_groups(groups)
        verdicts = [[one.grade.verdict for one in of.rollouts if one.grade] for of in graded]
        assert verdicts == [
            [Verdict.EQUAL, Verdict.DIFFERENT, Verdict.NO_ANSWER],
            [Verdict.EQUAL],
            [Verdict.BAD_GOLD],
            [],
        ]
        assert grader.grade_groups([]) == []
    without = [
        replace(of, rollouts=tuple(replace(one, grade=None) for one in of.rollouts))
        for of in graded
    ]
    assert without == groups  # nothing else is touched, the reward included


def test_workers_are_given_work_before_all_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    submit = Batch.submit
    decide = Grader._decide

    def submitting(batch: Batch, task: dict[str, object]) -> None:
        order.append(f"ask {task['answer']}")
        submit(batch, task)

    def deciding(grader: Grader, answer: str, gold: str) -> object:
        order.append(f"decide {answer}")
        return decide(grader, answer, gold)

    monkeypatch.setattr(Batch, "submit", submitting)
    monkeypatch.setattr(Grader, "_decide", deciding)
    with Grader() as grader:
        grader.compare_batch(["x+1", "5", "x+2"], ["1+x", "5", "2+x"])
    assert order == ["decide x+1", "ask x+1", "decide 5", "decide x+2", "ask x+2"]


def test_starting_ahead_of_need_and_after_closing() -> None:
    grader = Grader()
    grader.start()
    assert grader.compare("x+1", "1+x").correct
    grader.close()
    grader.close()
    assert grader.compare("5", "5").correct  # needs no worker
