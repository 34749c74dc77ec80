"""Names of trl and verl that say something about an objective only together."""

from __future__ import annotations

from typing import Any

import pytest

from workings.config.compose import compose
from workings.config.objective_settings import ResolvedObjective
from workings.config.older import settle
from workings.errors import ConfigError


def _settle(older: dict[str, Any], **objective: Any) -> dict[str, Any]:
    found = settle(older, {"objective": objective}, "grpo")
    return {each.path.removeprefix("objective."): each.value for each in found}


def _compose(*overrides: str, base: str = "grpo") -> ResolvedObjective:
    return compose([base], overrides, kind="grpo").objective.resolve()


def _error(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        _compose(*overrides)
    return str(caught.value)


# -------------------------------------------------------------------------------- advantage


@pytest.mark.parametrize(
    ("older", "expected"),
    [
        ({"estimator": "grpo", "divide_by_std": False}, "group_mean"),
        ({"estimator": "grpo", "divide_by_std": True}, "group"),
        ({"divide_by_std": "batch"}, "group_mean_batch_std"),
        ({"estimator": "rloo", "divide_by_std": False}, "rloo"),
    ],
)
def test_estimator_and_std(older: dict[str, Any], expected: str) -> None:
    assert _settle(older)["advantage"] == expected


def test_a_std_says_nothing_to_an_advantage_that_has_none() -> None:
    assert _settle({"divide_by_std": False}, preset="rloo") == {}
    assert _settle({"divide_by_std": False}, preset="no_baseline") == {}
    assert _settle({"divide_by_std": True}, preset="dr_grpo") == {"advantage": "group"}


def test_the_pool_of_a_split_group() -> None:
    assert _settle({"estimator": "grpo_split"}, num_off=1) == {
        "advantage": "group",
        "advantage_pool": "on_policy",
    }
    assert _settle({"estimator": "grpo"}, preset="rl_sft_loss") == {
        "advantage": "group",
        "advantage_pool": "union",
    }


def test_estimators_without_counterpart() -> None:
    assert _error("adv_estimator=gae") == (
        "adv_estimator='gae' needs a value model, which this package does not train\n\n"
        "hint: compare samples instead: adv_estimator=grpo, rloo or reinforce_plus_plus"
    )
    assert _error("adv_estimator=vine").startswith("adv_estimator='vine'; expected one of grpo, ")


# ------------------------------------------------------------------------------- clip bounds


def test_bounds_of_a_clip_and_of_a_cap() -> None:
    """verl clamps CISPO's weight on both sides of 1; TRL's epsilon_high is the cap itself."""
    bounds = {"clip_ratio": 0.2, "clip_low": 0.1, "clip_high": 0.28}
    assert _settle(bounds) == {"epsilon": 0.1, "epsilon_high": 0.28}
    assert _settle({"clip_ratio": 0.2}) == {"epsilon": 0.2}
    assert _settle(bounds, preset="cispo") == {"cap_low": 0.9, "cap_high": 1.28}
    assert _settle({"clip_ratio": 0.2}, preset="cispo") == {"cap_low": 0.8, "cap_high": 1.2}
    assert _settle({"epsilon_high": 5.0}, preset="cispo") == {"cap_high": 5.0}
    assert _settle({"loss_mode": "cispo", "clip_high": 1.0}) == {
        "surrogate": "cispo",
        "ratio": "token",
        "cap_high": 2.0,
    }


def test_a_bound_of_one_is_no_bound_where_nothing_is_clipped() -> None:
    assert _settle({"ratio_upper_bound": 1.0}, surrogate="ratio") == {}
    assert _settle({"ratio_upper_bound": 1.28}) == {"epsilon_high": 0.28}


def test_the_names_of_a_trl_script() -> None:
    found = _compose(
        *("loss_type=cispo", "epsilon_high=4", "beta=0.04", "scale_rewards=batch"),
        *("vllm_importance_sampling_mode=token_mask", "vllm_importance_sampling_clip_max=4"),
        *("vllm_importance_sampling_clip_min=0.25", "use_bias_correction_kl=true"),
        *("mask_truncated_completions=true", "top_entropy_quantile=0.2"),
    )
    assert (found.preset, found.cap_high, found.beta) == ("cispo", 4, 0.04)
    assert (found.advantage, found.reduction) == ("group_mean_batch_std", "token_mean")
    assert (found.correction, found.correction_low, found.correction_high) == ("icepop", 0.25, 4)
    assert (found.kl_estimator, found.kl_in) == ("k3_is", "loss")
    assert found.mask_truncated
    assert found.top_entropy_quantile == 0.2


def test_a_preset_by_its_trl_name_leaves_set_axes_alone() -> None:
    found = _compose("objective.reduction=token_mean", "loss_type=dr_grpo")
    assert (found.preset, found.reduction, found.advantage) == (
        "dr_grpo",
        "token_mean",
        "group_mean",
    )


def test_delta_and_dual_clip_are_one_thing() -> None:
    assert _compose("delta=3").dual_clip == _compose("clip_ratio_c=3").dual_clip == 3
    assert _error("delta=3", "clip_ratio_c=4") == (
        "delta=3 and clip_ratio_c=4 both set objective.dual_clip\n\nhint: give one of them"
    )


# ---------------------------------------------------------------------------------------- KL


@pytest.mark.parametrize(
    ("older", "expected"),
    [
        ({"use_kl_loss": False, "kl_loss_coef": 0.01, "kl_type": "low_var_kl"}, {"beta": 0.0}),
        (
            {"use_kl_loss": True, "kl_loss_coef": 0.01, "kl_type": "low_var_kl"},
            {"beta": 0.01, "kl_in": "loss", "kl_estimator": "k3"},
        ),
        ({"kl_loss_coef": 0.0, "kl_type": "low_var_kl", "kl_coef": 0.0}, {"beta": 0.0}),
        (
            {"use_kl_in_reward": True, "kl_coef": 0.01, "use_kl_loss": False},
            {"beta": 0.01, "kl_in": "reward"},
        ),
        ({"use_kl_in_reward": False, "kl_coef": 0.001}, {"beta": 0.0}),
    ],
)
def test_switch_factor_and_estimator_of_a_kl(
    older: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert _settle(older) == expected


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        *(("low_var_kl", "k3"), ("k3", "k3"), ("kl", "k1"), ("k1", "k1"), ("mse", "k2")),
        *(("k2", "k2"), ("abs", "abs"), ("kl+", "k1_plus"), ("k3+", "k3_plus")),
    ],
)
def test_estimators_of_a_kl(theirs: str, ours: str) -> None:
    assert _settle({"kl_type": theirs}, beta=0.1) == {"kl_estimator": ours}


def test_two_kl_terms_are_refused() -> None:
    assert _error("use_kl_loss=true", "kl_loss_coef=0.01", "kl_coef=0.02") == (
        "kl_loss_coef=0.01 and kl_coef=0.02 ask for two KL terms; there is one, in the loss or in "
        "the reward\n\nhint: set one of them to 0"
    )
    assert _error("kl_loss_type=full", "kl_loss_coef=0.1").startswith(
        "kl_loss_type='full'; expected one of kl, k1, abs, mse, k2, low_var_kl"
    )
    assert _error("kl_loss_coef=0.01", "beta=0.02") == (
        "beta=0.02 disagrees with kl_loss_coef=0.01, which is objective.beta=0.01\n\n"
        "hint: give one of them"
    )


# ----------------------------------------------------------------------------- verl's scripts


def test_the_names_of_a_dapo_script() -> None:
    run = compose(
        ["grpo"],
        [
            *("algorithm.adv_estimator=grpo", "algorithm.use_kl_in_reward=False"),
            *("algorithm.kl_ctrl.kl_coef=0.0", "actor_rollout_ref.actor.use_kl_loss=False"),
            *("actor_rollout_ref.actor.kl_loss_coef=0.0", "data.train_batch_size=512"),
            *("actor_rollout_ref.actor.clip_ratio_low=0.2", "data.max_prompt_length=2048"),
            *("actor_rollout_ref.actor.clip_ratio_high=0.28", "data.max_response_length=20480"),
            *("actor_rollout_ref.actor.clip_ratio_c=10.0", "actor_rollout_ref.rollout.n=16"),
            *("actor_rollout_ref.actor.loss_agg_mode=token-mean",),
            *("actor_rollout_ref.actor.ppo_mini_batch_size=32",),
            *("algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=acc"),
            *("algorithm.filter_groups.max_num_gen_batches=10",),
            *("reward_model.overlong_buffer.enable=True", "reward_model.overlong_buffer.len=4096"),
            *("reward_model.overlong_buffer.penalty_factor=1.0",),
        ],
        kind="grpo",
    )
    found, published = dict(run.objective.resolve()), dict(_compose("objective=dapo"))
    differing = {name for name in found if found[name] != published[name]}
    assert differing == {"preset", "dual_clip", "overlong_share"}
    assert found["dual_clip"] == 10
    assert run.paid_reward.overlong_buffer == 4096 == round(0.2 * 20480)
    assert (run.prompts_per_step, run.num_generations, run.rows_per_update) == (512, 16, 512)


def test_overlong_shaping_without_its_tokens() -> None:
    assert _error("overlong_buffer.enable=true") == (
        "overlong_buffer.enable=true needs overlong_buffer.len"
    )
