"""Numbers about a batch, checked on batches small enough to count by hand."""

from __future__ import annotations

import dataclasses

import pytest

from workings.rewards.four_classes import answer_right, format_right
from workings.tracking.rollout_statistics import rollout_statistics
from workings.types import RolloutGroup, Verdict


def test_a_batch_counted_by_hand(make_group) -> None:
    groups = [
        make_group(
            texts=["a", "b", "b", "c"],
            rewards=[1.0, 0.0, 0.0, None],
            formats=[1.0, 1.0, 0.0, 0.0],
            verdicts=[Verdict.EQUAL, Verdict.DIFFERENT, Verdict.NO_ANSWER, Verdict.BAD_GOLD],
            finish_reasons=["eos", "stop", "length", "length"],
        ),
        make_group(texts=["x", "x"], rewards=[0.0, 0.0], formats=[0.0, 1.0]),
    ]
    found = rollout_statistics(groups, format_right=format_right, answer_right=answer_right)
    assert (found.num_groups, found.num_samples, found.num_unusable) == (2, 6, 1)
    assert (found.num_flat_groups, found.num_identical_groups) == (1, 1)
    assert (found.lowest_reward, found.highest_reward) == (0.0, 1.0)
    assert found.format_rate == pytest.approx(3 / 6)
    assert found.correct_rate == pytest.approx(1 / 6)
    assert found.distinct_rate == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert found.truncated_rate == pytest.approx(2 / 6)
    assert not found.all_flat


def test_demonstrations_do_not_count(make_group) -> None:
    group = make_group(texts=["a", "b", "c"], rewards=[0.0, 0.0, 1.0])
    trace = dataclasses.replace(group.rollouts[2], source="demonstration")
    mixed = dataclasses.replace(group, rollouts=(*group.rollouts[:2], trace))
    only = dataclasses.replace(group, rollouts=(trace,))
    found = rollout_statistics([mixed, only], format_right=format_right, answer_right=answer_right)
    assert (found.num_groups, found.num_samples, found.num_flat_groups) == (1, 2, 1)
    assert found.all_flat


def test_an_empty_batch() -> None:
    nothing: list[RolloutGroup] = []
    found = rollout_statistics(nothing, format_right=format_right, answer_right=answer_right)
    assert (found.num_samples, found.lowest_reward, found.all_flat) == (0, None, False)
