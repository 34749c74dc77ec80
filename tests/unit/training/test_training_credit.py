"""Hop 4: rewards to advantages, by row and by token, for groups as the loop has them."""

from __future__ import annotations

import math

import pytest

from workings.config.objective_settings import ObjectiveConfig
from workings.errors import TrainingError
from workings.training.credit import assign_credit, reward_table
from workings.types import Problem, Prompt, Rollout, RolloutGroup

OFF = 3
"""Tokens of a teacher row, and of every other."""


def rollout(reward, *, off=0, length=OFF, finish="eos", components=None):
    own = length - off
    return Rollout(
        ids=range(length),
        sampling_logprobs=[math.nan] * off + [-1.0] * own,
        kept_mass=[1.0] * length,
        mask=[True] * length,
        off_policy=[True] * off + [False] * own,
        text="",
        finish_reason=finish,
        weight_version=0,
        source="demonstration" if off else "policy",
        reward=reward,
        components=components or {},
    )


def group(*rollouts, source=""):
    problem = Problem(id="p", question="?", answer="1", source=source)
    return RolloutGroup(prompt=Prompt(problem=problem, ids=(1,), text="?"), rollouts=rollouts)


def credit(groups, **settings):
    parts = ("penalties", "baselines", "weights", "controllers")
    given = {name: settings.pop(name) for name in parts if name in settings}
    return assign_credit(ObjectiveConfig(**settings).resolve(), groups, **given)


def luffy_group(num_right):
    own = [rollout(float(n < num_right)) for n in range(7)]
    return group(*own, rollout(1.0, off=OFF))


@pytest.mark.parametrize("num_right", range(8))
def test_luffy_closed_forms_of_a_group_with_a_right_teacher(num_right):
    """Teacher right, k of 7 own rows right: (7 - k)/8 and -(k + 1)/8 over the union; the sampled
    rows alone have the mean k/7."""
    groups, k = [luffy_group(num_right)], num_right
    (union,) = credit(groups, preset="luffy").advantages
    assert union[-1] == pytest.approx((7 - k) / 8)
    assert union[:k] == pytest.approx([(7 - k) / 8] * k)
    assert union[k:7] == pytest.approx([-(k + 1) / 8] * (7 - k))
    (split,) = credit(groups, preset="luffy", advantage_pool="on_policy").advantages
    assert split[-1] == pytest.approx(1 - k / 7)
    own = [0.0] * 7 if k in (0, 7) else [1 - k / 7] * k + [-k / 7] * (7 - k)
    assert split[:7] == pytest.approx(own)


def test_luffy_with_std_as_the_paper_writes_it():
    (line,) = credit([luffy_group(0)], preset="luffy", advantage="group").advantages
    assert line == pytest.approx([-0.353552] * 7 + [2.474867], abs=1e-5)


def test_luffy_scales_weigh_teacher_tokens_and_own_ones():
    half = rollout(1.0, off=1)
    groups = [group(rollout(0.0), half, rollout(0.0), rollout(1.0, off=OFF))]
    settings = {"preset": "luffy", "off_advantage_scale": 3.0, "on_advantage_scale": 0.5}
    result = credit(groups, **settings)
    (line,) = result.advantages
    assert line == [[-0.25] * 3, [1.5, 0.25, 0.25], [-0.25] * 3, [1.5] * 3]
    assert result.by_row == [[-0.25, pytest.approx(2 / 3), -0.25, 1.5]]
    # At 1 and 1 nothing is spread over tokens.
    assert credit(groups, preset="luffy").advantages == [[-0.5, 0.5, -0.5, 0.5]]


def test_grpo_rows_without_a_reward_leave_the_statistics():
    groups = [group(rollout(1.0), rollout(None), rollout(0.0)), group(*[rollout(None)] * 3)]
    rewards, valid = reward_table(groups)
    assert rewards.tolist() == [[1.0, 0.0, 0.0], [0.0] * 3]
    assert valid.tolist() == [[True, False, True], [False] * 3]
    result = credit(groups, preset="dr_grpo")
    assert result.advantages == [[0.5, 0.0, -0.5], [0.0] * 3]
    assert result.metrics["groups_without_reward"] == 1.0


def test_grpo_penalties_are_taken_from_the_reward_of_their_row():
    groups = [group(rollout(1.0), rollout(1.0))]
    penalties = [[[0.1, 0.2, 0.3], [0.0, 0.0, -0.2]]]
    (line,) = credit(groups, preset="dr_grpo", penalties=penalties).advantages
    assert line == pytest.approx([-0.4, 0.4])
    # What is counted as solved are the rewards as they were graded.
    assert credit(groups, preset="dr_grpo", penalties=penalties).metrics["solve_all"] == 1.0


def test_grpo_reinforce_pp_returns_by_hand():
    """Costs at their tokens, the reward at the end, undiscounted: returns, then whitened."""
    groups = [group(rollout(1.0), rollout(0.0, length=2))]
    penalties = [[[0.0, 0.5, 0.0], [0.25, 0.0]]]
    first, second = credit(groups, preset="reinforce++", penalties=penalties).advantages[0]
    returns = [0.5, 0.5, 1.0, -0.25, 0.0]
    mean = sum(returns) / 5
    var = sum((r - mean) ** 2 for r in returns) / 4
    wanted = [(r - mean) / math.sqrt(var + 1e-8) for r in returns]
    assert first == pytest.approx(wanted[:3], abs=1e-6)
    assert second == pytest.approx(wanted[3:], abs=1e-6)


def test_grpo_remax_and_rae_subtract_what_they_are_given():
    groups = [group(rollout(1.0), rollout(0.0), source="a"), group(rollout(1.0), rollout(1.0))]
    result = credit(groups, preset="remax", baselines=[1.0, 0.25])
    assert result.advantages == [[0.0, -1.0], [0.75, 0.75]]
    assert result.controllers == {}
    settings = {"advantage": "rae", "rae_decay": 0.5, "controllers": {"rae/a": 0.5, "beta": 9.0}}
    result = credit(groups, **settings)
    assert result.advantages == [[0.5, -0.5], [1.0, 1.0]]
    # The averages that the next step takes: a half of the old and a half of the new mean.
    assert result.controllers == {"rae/a": 0.5, "rae/": 0.5}


def test_grpo_rae_on_several_ranks_is_refused():
    class Two:
        size = 2

        def all_sum(self, values):
            return values

    objective = ObjectiveConfig(advantage="rae").resolve()
    with pytest.raises(TrainingError, match="rae runs on one process"):
        assign_credit(objective, [group(rollout(1.0), rollout(0.0))], ranks=Two())


def test_e18_grpo_gdpo_reads_the_components_by_name():
    rows = [{"one": a, "two": b, "unpaid": 9.0} for a, b in ((1, 0), (0, 0), (0, 1), (0, 1))]
    groups = [group(*[rollout(sum(c.values()), components=c) for c in rows])]
    result = credit(groups, preset="gdpo", weights={"two": 1.0, "one": 1.0})
    before = [0.633973, -1.366023, 0.366025, 0.366025]
    std = math.sqrt(sum(value**2 for value in before) / 3)
    assert result.advantages[0] == pytest.approx([value / std for value in before], abs=1e-5)


def test_grpo_truncated_rows_may_count_and_be_worth_nothing():
    groups = [group(rollout(1.0), rollout(0.0, finish="length"), rollout(0.0))]
    settings = {"preset": "dr_grpo", "zero_truncated_advantage": True}
    assert credit(groups, **settings).advantages[0] == pytest.approx([2 / 3, 0.0, -1 / 3])


@pytest.mark.parametrize("preset", ["grpo", "reinforce++", "gdpo", "opo", "remax", "luffy", "gpg"])
def test_grpo_a_rank_without_a_group_has_nothing_to_assign(preset):
    given = {"penalties": []} if preset == "reinforce++" else {}
    given |= {"baselines": []} if preset == "remax" else {}
    result = credit([], preset=preset, weights={"answer": 1.0}, **given)
    assert result.advantages == []
    assert result.by_row == []
