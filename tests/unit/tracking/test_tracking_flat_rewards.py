"""Fault A13b: all groups flat for N steps gives one plain warning with the cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from workings.rewards.four_classes import answer_right, format_right
from workings.tracking.flat_rewards import FlatRewardWarner, likely_cause
from workings.tracking.rollout_statistics import RolloutStatistics, rollout_statistics
from workings.types import Verdict


def cause(groups: Sequence[Any]) -> str:
    return likely_cause(
        rollout_statistics(groups, format_right=format_right, answer_right=answer_right)
    )


def test_nothing_sampled() -> None:
    assert cause([]).startswith("there are no sampled completions at all")


def test_unusable_golds(make_group) -> None:
    assert "every gold answer is unusable" in cause([make_group(rewards=[None, None])])


def test_one_sample_per_prompt(make_group) -> None:
    assert "set num_generations to 2 or more" in cause([make_group(texts=["a"], rewards=[1.0])])


def test_identical_completions(make_group) -> None:
    text = cause([make_group(texts=["a", "a"], rewards=[0.0, 0.0])])
    assert "identical" in text
    assert "sampling.temperature" in text


def test_everything_truncated(make_group) -> None:
    group = make_group(rewards=[0.0, 0.0], finish_reasons=["length", "length"])
    assert "100% of the completions stopped at the token limit" in cause([group])
    assert "sampling.max_tokens" in cause([group])


def test_no_tags_yet(make_group) -> None:
    """M-183: a constant reward of -6.5 is explained."""
    text = cause([make_group(rewards=[-6.5, -6.5], formats=[0.0, 0.0])])
    assert text.startswith("every reward is -6.5, the score of a text without any tag")
    assert "up to about step 20" in text


def test_too_easy(make_group) -> None:
    group = make_group(rewards=[1.0, 1.0], formats=[1.0, 1.0])
    assert "the problems are too easy" in cause([group])


def test_format_not_learnt(make_group) -> None:
    group = make_group(rewards=[0.0, 0.0], formats=[0.0, 0.0])
    assert "no completion has the format" in cause([group])


def test_too_hard(make_group) -> None:
    group = make_group(rewards=[0.0, 0.0], formats=[1.0, 0.0])
    assert "the problems are too hard" in cause([group])


def test_a_reward_that_does_not_look(make_group) -> None:
    verdicts = [Verdict.EQUAL, Verdict.DIFFERENT]
    group = make_group(rewards=[0.5, 0.5], verdicts=verdicts)
    assert "every reward is 0.5 whatever the answer" in cause([group])


def test_always_or_never_solved(make_group) -> None:
    groups = [
        make_group(rewards=[1.0, 1.0], formats=[1.0, 1.0]),
        make_group(rewards=[0.0, 0.0], formats=[1.0, 1.0]),
    ]
    assert "every group agrees with itself" in cause(groups)


def test_a_batch_that_teaches_is_not_blamed(make_group) -> None:
    groups = [make_group(), make_group(rewards=[0.0, 0.0])]
    assert "1 of 2 groups are flat, the others teach" in cause(groups)


def statistics(*, num_flat_groups: int) -> RolloutStatistics:
    return RolloutStatistics(
        num_groups=4,
        num_samples=16,
        num_unusable=0,
        num_flat_groups=num_flat_groups,
        num_identical_groups=0,
        lowest_reward=0.0,
        highest_reward=0.0 if num_flat_groups == 4 else 1.0,
        format_rate=0.5,
        correct_rate=0.0,
        distinct_rate=1.0,
        truncated_rate=0.0,
    )


def test_one_warning_after_so_many_flat_steps() -> None:
    said: list[str] = []
    warner = FlatRewardWarner(said.append, patience=3)
    answers = [warner.update(step, statistics(num_flat_groups=4)) for step in range(1, 20)]
    assert [answer is not None for answer in answers].index(True) == 2
    assert said == [answers[2]]
    assert said[0] == (
        "all 4 groups were flat in the last 3 steps (up to step 3): equal rewards give no "
        "gradient, so nothing is learnt (a policy loss near 0 alone would be normal). Likely "
        "cause: no completion is right: the problems are too hard for this model, or the gold "
        "answers do not match what is extracted (workings inspect rollouts shows both); use "
        "easier problems, more samples per prompt, or SFT first."
    )


@pytest.mark.parametrize(
    ("pattern", "num_warnings"), [("ffuffuff", 0), ("fffffu", 1), ("fffufff", 2)]
)
def test_a_useful_step_ends_the_stretch(pattern: str, num_warnings: int) -> None:
    said: list[str] = []
    warner = FlatRewardWarner(said.append, patience=3)
    for step, letter in enumerate(pattern):
        warner.update(step, statistics(num_flat_groups=4 if letter == "f" else 3))
    assert len(said) == num_warnings
