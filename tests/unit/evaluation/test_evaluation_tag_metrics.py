"""The tag pipeline's numbers against counts by hand."""

from __future__ import annotations

import pytest

from workings.evaluation.tag_metrics import describe_tag_metrics, tag_metrics
from workings.rewards.reward import build_reward, grade_groups
from workings.types import Problem, Prompt, Rollout, RolloutGroup

END, SOLUTION = "<end_working_out>", "<SOLUTION>{}</SOLUTION>"
TEXTS = [
    "ab" + END + SOLUTION.format(34),  # all right, two characters
    "<start_working_out>abcd " + END + SOLUTION.format("34"),  # the start tag does not count
    "   " + END + SOLUTION.format(35),  # blank reasoning, wrong answer
    "no tag at all 34",
    "abcdef" + END + "and then nothing",
]


def groups() -> list[RolloutGroup]:
    problem = Problem(id="p", question="30 + 4?", answer="34")
    prompt = Prompt(problem=problem, ids=(1,), text="Q")
    rollouts = tuple(
        Rollout(
            ids=(1,),
            sampling_logprobs=(-1.0,),
            kept_mass=(1.0,),
            mask=(True,),
            off_policy=(False,),
            text=text,
            finish_reason="eos",
            weight_version=0,
        )
        for text in TEXTS
    )
    return [RolloutGroup(prompt=prompt, rollouts=rollouts)]


def test_shares_are_in_per_cent_and_lengths_over_all_samples() -> None:
    graded = grade_groups(groups(), build_reward("tags"))
    rewards = [rollout.reward or 0.0 for rollout in graded[0].rollouts]
    found = tag_metrics(graded)
    assert found["tags/format_percent"] == pytest.approx(60)
    assert found["tags/answer_percent"] == pytest.approx(40)
    assert found["tags/reasoning_present"] == pytest.approx(60)
    assert found["tags/avg_reasoning_length"] == pytest.approx((2 + 4 + 0 + 0 + 6) / 5)
    assert found["tags/avg_total_reward"] == pytest.approx(sum(rewards) / 5)
    assert found["tags/num_samples"] == 5
    told = describe_tag_metrics(found)
    assert told is not None
    assert "format 60.0 %, answer 40.0 %" in told


def test_ungraded_samples_have_none() -> None:
    assert tag_metrics(groups()) == {}
    assert describe_tag_metrics({}) is None
