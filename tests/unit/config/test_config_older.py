"""Earlier values that mean something only together with others."""

from __future__ import annotations

from typing import Any

import pytest

from workings.config.older import settle
from workings.errors import ConfigError


def _settle(older: dict[str, Any], values: dict[str, Any], kind: str) -> dict[str, Any]:
    return {each.path: each.value for each in settle(older, values, kind)}


def _error(older: dict[str, Any], values: dict[str, Any], kind: str) -> str:
    with pytest.raises(ConfigError) as caught:
        settle(older, values, kind)
    return str(caught.value)


def test_sft_rows_of_a_step_are_rows_of_a_forward_pass_times_accumulation() -> None:
    both = {"rows_per_forward": 4, "accumulation": 8}
    assert _settle(both, {}, "sft") == {"batch_size": 32, "batch.microbatch_rows": 4}
    assert _settle({"accumulation": 8}, {"batch_size": 4}, "sft") == {
        "batch_size": 32,
        "batch.microbatch_rows": 4,
    }
    assert _settle({"rows_per_forward": 2}, {}, "sft") == {
        "batch_size": 2,
        "batch.microbatch_rows": 2,
    }


def test_grpo_rows_of_a_forward_pass_times_accumulation_are_the_rollout_batch() -> None:
    older = {"rows_per_forward": 1, "accumulation": 2}
    assert _settle(older, {"num_generations": 2}, "grpo") == {
        "prompts_per_step": 1,
        "batch.microbatch_rows": 1,
    }
    assert _error(older, {"num_generations": 4}, "grpo") == (
        "per_device_train_batch_size * gradient_accumulation_steps = 1 * 2 = 2 must be a multiple "
        "of num_generations=4, so that no group is split over two updates"
    )


def test_grpo_accumulation_alone_cuts_the_update() -> None:
    """The course's defaults: 256 rows in 128 microbatches of 2."""
    values = {"prompts_per_step": 32, "num_generations": 8, "train_batch_size": 256}
    assert _settle({"accumulation": 128}, values, "grpo") == {"batch.microbatch_rows": 2}
    values["train_batch_size"] = 128
    assert _settle({"accumulation": 8}, values, "grpo") == {"batch.microbatch_rows": 16}
    assert _error({"accumulation": 3}, values, "grpo") == (
        "gradient_accumulation_steps=3 does not divide the 128 rows of an update\n\n"
        "hint: the rows of an update are train_batch_size, or prompts_per_step * num_generations "
        "if that is not set"
    )


def test_a_rule_sees_what_the_rules_before_it_found() -> None:
    older = {"rollout_rows": 512, "accumulation": 128}
    assert _settle(older, {"num_generations": 8}, "grpo") == {
        "prompts_per_step": 64,
        "batch.microbatch_rows": 4,
    }


def test_rollout_rows_are_whole_groups() -> None:
    assert _error({"rollout_rows": 100}, {}, "grpo") == (
        "rollout_batch_size=100 must be a multiple of num_generations=8"
    )


@pytest.mark.parametrize(
    ("bound", "objective", "expected"),
    [
        (1.28, {}, 0.28),
        (1.0, {}, 0.2),
        (1.28, {"epsilon": 0.3}, 0.3),
        (1.1, {"preset": "no_baseline"}, 0.2),
    ],
)
def test_the_upper_bound_is_on_the_ratio_and_never_below_epsilon(
    bound: float, objective: dict[str, Any], expected: float
) -> None:
    found = _settle({"ratio_upper_bound": bound}, {"objective": objective}, "grpo")
    assert found == {"objective.epsilon_high": expected}


def test_normalising_by_std_says_nothing_to_an_objective_without_groups() -> None:
    values = {"objective": {"preset": "no_baseline"}}
    assert _settle({"divide_by_std": True}, values, "grpo") == {}
    values = {"objective": {"preset": "reinforce_with_baseline"}}
    assert _settle({"divide_by_std": False}, values, "grpo") == {
        "objective.advantage": "group_mean"
    }


def test_a_total_length_needs_the_prompts_length() -> None:
    assert _error({"max_length": 2048}, {}, "sft") == (
        "max_seq_length=2048 limits prompt and response together, which are two limits here\n\n"
        "hint: set data.max_prompt_length as well, or set data.max_response_length instead"
    )
    assert _error({"max_length": 512}, {"data": {"max_prompt_length": 512}}, "grpo") == (
        "max_seq_length=512 leaves no room for a response after data.max_prompt_length=512"
    )


@pytest.mark.parametrize("value", [0, -1, 1.5, "4", True, None])
def test_a_count_is_a_whole_number(value: object) -> None:
    assert _error({"accumulation": value}, {}, "sft") == (
        f"gradient_accumulation_steps={value!r}; expected a whole number, at least 1"
    )


def test_other_wrong_values() -> None:
    assert _error({"train_share": 1.2}, {}, "sft") == (
        "train_validation_split=1.2; expected a number, above 0, at most 1"
    )
    assert _error({"ratio_upper_bound": "high"}, {}, "grpo") == (
        "clip_upper_bound='high'; expected a number, e.g. 1.28"
    )
    assert _error({"divide_by_std": "step"}, {}, "grpo") == (
        "dividing advantages by the group's std: 'step' came; expected true or false "
        "(scale_rewards: group, batch or none)"
    )


def test_each_result_says_where_it_comes_from() -> None:
    (batch, rows) = settle({"accumulation": 4}, {"batch_size": 8}, "sft")
    assert (batch.source, batch.names) == ("batch_size=8 x 4 accumulation steps", ("accumulation",))
    assert batch.scales
    assert not rows.scales
