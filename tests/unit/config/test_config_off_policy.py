"""Teacher rows and replay: the rules between the objective, the group and their own sections."""

from __future__ import annotations

from typing import Any

import pytest

from workings.config.grpo import GRPOConfig
from workings.config.off_policy import OffPolicyConfig, ReplayConfig
from workings.errors import ConfigError


def _run(
    preset: str = "luffy", objective: dict[str, Any] | None = None, **values: Any
) -> GRPOConfig:
    return GRPOConfig.model_validate(
        {
            "name": "g",
            "model": {"name_or_path": "m"},
            "data": {"train": {"path": "p"}},
            "objective": {"preset": preset, **(objective or {})},
            **values,
        }
    )


def _error(*given: Any, **values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        _run(*given, **values)
    return str(caught.value)


def test_a_group_counts_the_rows_of_the_teacher() -> None:
    run = _run()
    assert (run.num_generations, run.num_sampled) == (8, 7)
    assert run.rollout_batch_size == 32 * 8
    assert _run("on_policy").num_sampled == 8
    assert _error(num_generations=2, objective={"num_off": 2}) == (
        "objective.num_off=2 leaves nothing of num_generations=2 to sample\n\n"
        "hint: num_generations counts the teacher's rows too: 8 with num_off=1 samples 7"
    )


def test_every_row_may_be_guided_by_a_part_of_a_trace_only() -> None:
    assert _error(objective={"num_off": -1}) == (
        "objective.num_off=-1 guides every row of a group; with whole traces there is nothing "
        "left to sample\n\n"
        "hint: set off_policy.prefix_min_ratio and prefix_max_ratio below 1, or num_off=1"
    )
    run = _run(
        objective={"num_off": -1}, off_policy={"prefix_min_ratio": 0.0, "prefix_max_ratio": 0.5}
    )
    assert run.num_sampled == 0
    assert not run.off_policy.whole_traces


def test_settings_of_teacher_rows_need_teacher_rows() -> None:
    assert _error("grpo", off_policy={"keep_prob": 0.5}) == (
        "off_policy is set, but the objective has no teacher rows\n\n"
        "hint: set objective.preset=luffy, or objective.num_off=1"
    )
    assert _run("grpo", {"num_off": 1}, off_policy={"keep_prob": 0.5}).num_sampled == 7


def test_an_on_policy_pool_compares_two_rows() -> None:
    assert _error("rl_sft_loss", num_generations=2) == (
        "objective.advantage_pool=on_policy compares the sampled rows of a group, and there are 1"
        "\n\nhint: raise num_generations, or set objective.advantage_pool=union"
    )
    assert _run("rl_sft_loss", num_generations=3).num_sampled == 2
    assert _error("exgrpo", {"advantage_pool": "on_policy"}, num_generations=2).startswith(
        "objective.advantage_pool=on_policy compares the sampled rows of a group, and there are 1"
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"prefix_schedule": "linear_variance"},
            "off_policy.prefix_schedule=linear_variance was never defined: LUFFY declares the "
            "name and gives it no body\n\n"
            "hint: choose random, fixed, linear, linear_max or reverse_linear",
        ),
        (
            {"prefix_min_ratio": 0.8, "prefix_max_ratio": 0.5},
            "off_policy.prefix_min_ratio=0.8 is above off_policy.prefix_max_ratio=0.5",
        ),
        (
            {"prefix_schedule": "linear"},
            "off_policy.prefix_schedule=linear gives all guided rows of a prompt one share\n\n"
            "hint: set off_policy.prefix_share_across_samples=true",
        ),
        (
            {"prefix_schedule": "fixed", "prefix_share_across_samples": True},
            "off_policy.prefix_schedule=fixed gives every guided row of a prompt another share\n\n"
            "hint: set off_policy.prefix_share_across_samples=false",
        ),
    ],
)
def test_prefix_schedules(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OffPolicyConfig(**values)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("values", "whole"),
    [
        ({}, True),
        ({"prefix_schedule": "fixed"}, True),
        ({"prefix_min_ratio": 0.5}, False),
        ({"prefix_schedule": "linear_max"}, False),
        ({"prefix_schedule": "linear", "prefix_share_across_samples": True}, False),
    ],
)
def test_whole_traces_never_go_to_the_engine(values: dict[str, Any], whole: bool) -> None:
    assert OffPolicyConfig(**values).whole_traces is whole


def test_bounds_of_what_is_replayed() -> None:
    assert _run("exgrpo", replay={"lower": 1, "upper": 6}).replay.upper == 6
    assert _error("exgrpo", replay={"lower": 3, "upper": 3}) == (
        "replay.lower=3 and replay.upper=3; expected lower < upper <= num_generations=8"
    )
    assert _error("exgrpo", replay={"upper": 9}) == (
        "replay.lower=0 and replay.upper=9; expected lower < upper <= num_generations=8"
    )
    assert _error("exgrpo", replay={"lower": 7}) == (
        "replay.lower=7 and replay.upper=7; expected lower < upper <= num_generations=8"
    )
    assert _error("exgrpo", replay={"weighting": "sqrt", "sigma": 2.0}) == (
        "replay.sigma=2 has no effect with replay.weighting=sqrt\n\n"
        "hint: it is the width of replay.weighting=normal"
    )


def test_settings_of_a_replay_need_a_replay() -> None:
    assert _error("luffy", replay={"max_age": 100}) == (
        "replay is set, but the objective does not replay\n\n"
        "hint: set objective.preset=exgrpo, or objective.replay=true"
    )
    assert _run("grpo", {"replay": True}, replay={"max_age": 100}).replay.max_age == 100


def test_the_published_settings_are_the_defaults() -> None:
    replay = ReplayConfig()
    assert (replay.experience_ratio, replay.lower, replay.upper) == (0.5, 0, None)
    assert (replay.weighting, replay.sigma, replay.select) == ("normal", 1.0, "entropy")
    assert replay.start_solve_rate == 0.35
    off = OffPolicyConfig()
    assert (off.prefix_min_ratio, off.prefix_max_ratio, off.max_trace_length) == (1.0, 1.0, 8192)


@pytest.mark.parametrize("preset", ["luffy", "exgrpo"])
def test_whole_groups_are_not_drawn_anew_around_foreign_rows(preset: str) -> None:
    assert _error(preset, {"dynamic_sampling": "filter"}) == (
        "objective.dynamic_sampling=filter draws whole groups anew; it does not go with teacher "
        "rows or replay\n\nhint: set objective.dynamic_sampling=none"
    )


def test_overlong_tokens_come_from_the_objective_or_the_reward() -> None:
    def tokens(preset: str, **reward: int) -> int:
        run = _run(preset, sampling={"max_tokens": 1000}, reward=reward)
        return run.paid_reward.overlong_buffer

    assert tokens("dapo") == 200
    assert tokens("dapo", overlong_buffer=50) == 50
    assert tokens("grpo") == 0
