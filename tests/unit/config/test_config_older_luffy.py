"""Whole scripts of LUFFY and ExGRPO, by their own names, lead to the presets of theirs."""

from __future__ import annotations

from typing import Any

import pytest

from workings.config.compose import compose
from workings.config.grpo import GRPOConfig
from workings.config.older_luffy import EARLIER_KEYS, REWARDS
from workings.errors import ConfigError

# What the scripts share, without paths, machines and the sampling engine's own memory settings.
SHARED = """
algorithm.adv_estimator=grpo
algorithm.grpo_use_std=False
algorithm.kl_ctrl.kl_coef=0.000
data.train_batch_size=128
data.val_batch_size=512
data.max_prompt_length=1024
data.max_response_length=8192
data.reward_impl_version=3
data.shuffle=True
actor_rollout_ref.actor.optim.lr=1e-6
actor_rollout_ref.actor.ppo_mini_batch_size=64
actor_rollout_ref.actor.ppo_micro_batch_size=64
actor_rollout_ref.actor.use_dynamic_bsz=True
actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768
actor_rollout_ref.actor.kl_loss_coef=0.00
actor_rollout_ref.actor.kl_loss_type=low_var_kl
actor_rollout_ref.actor.use_kl_loss=False
actor_rollout_ref.actor.entropy_coeff=0.001
actor_rollout_ref.actor.ulysses_sequence_parallel_size=1
actor_rollout_ref.actor.fsdp_config.param_offload=False
actor_rollout_ref.actor.fsdp_config.grad_offload=False
actor_rollout_ref.actor.fsdp_config.optimizer_offload=False
actor_rollout_ref.actor.use_sft_prefix_reward=False
actor_rollout_ref.actor.loss_remove_token_mean=True
actor_rollout_ref.actor.off_policy_normalize=False
actor_rollout_ref.actor.off_policy_loss_impl=token
actor_rollout_ref.model.use_remove_padding=True
actor_rollout_ref.model.enable_gradient_checkpointing=True
actor_rollout_ref.rollout.tensor_model_parallel_size=2
actor_rollout_ref.rollout.temperature=1.0
actor_rollout_ref.rollout.val_temperature=0.6
actor_rollout_ref.rollout.n=8
actor_rollout_ref.rollout.n_val=1
actor_rollout_ref.rollout.n_prefix=1
actor_rollout_ref.rollout.max_prefix_len=8192
actor_rollout_ref.rollout.prefix_share_across_samples=False
actor_rollout_ref.rollout.prefix_strategy=random
actor_rollout_ref.rollout.prefix_reward_weight_alpha=1.0
actor_rollout_ref.ref.use_ref=False
actor_rollout_ref.ref.fsdp_config.param_offload=True
trainer.critic_warmup=0
trainer.logger=['console','wandb']
trainer.project_name=luffy
trainer.experiment_name=again
+trainer.val_before_train=False
trainer.n_gpus_per_node=8
trainer.nnodes=1
trainer.save_freq=50
trainer.test_freq=10
trainer.max_optim_to_keep=2
trainer.default_hdfs_dir=null
trainer.total_training_steps=500
"""
WHOLE = ["min_prefix_ratio=1.0", "max_prefix_ratio=1.0"]
NONE = ["min_prefix_ratio=0.0", "max_prefix_ratio=0.0"]
SCRIPTS: dict[str, list[str]] = {
    "luffy": [
        *("actor.use_off_policy_loss=True", "actor.off_policy_reshape=p_div_p_0.1"),
        *("actor.loss_remove_clip=True", *WHOLE),
    ],
    "on_policy": [
        *("actor.use_off_policy_loss=True", "actor.off_policy_reshape=no_reshape"),
        *("actor.loss_remove_clip=False", *NONE),
    ],
    "rl_sft_loss": [
        *("actor.use_off_policy_loss=False", "actor.off_policy_reshape=no_reshape"),
        *("actor.loss_remove_clip=True", "algorithm.adv_estimator=grpo_split", *WHOLE),
        *("actor.use_sft_multitask_loss=True", "actor.sft_loss_coef=1.0"),
    ],
    "exgrpo": [
        *("actor.use_off_policy_loss=True", "actor.off_policy_reshape=p_div_p_0.1"),
        *("actor.loss_remove_clip=True", *WHOLE),
        *("trainer.experience=True", "trainer.exp_metric=ent", "trainer.exp_select_mode=argmin"),
        *("trainer.exp_sample_range=all", "trainer.exp_bucket_manager=normal"),
        *("trainer.experience_ratio=0.5", "trainer.experience_start_sratio=0.35"),
        *("trainer.exp_is_correct=True", "trainer.experience_lbound=0"),
        *("trainer.experience_rbound=7", "+actor_rollout_ref.actor.skip_grad_bound=500"),
    ],
}


def _compose(base: str, *overrides: str) -> GRPOConfig:
    return compose([base], overrides, kind="grpo")


def _error(*overrides: str, base: str = "grpo") -> str:
    with pytest.raises(ConfigError) as caught:
        _compose(base, *overrides)
    return str(caught.value)


@pytest.mark.parametrize("preset", list(SCRIPTS))
def test_a_script_by_its_own_names_is_the_preset(preset: str) -> None:
    run = _compose("grpo", *SHARED.split(), *SCRIPTS[preset])
    published = dict(_compose("grpo", f"objective={preset}").objective.resolve())
    found = dict(run.objective.resolve())
    differing = {name: found[name] for name in found if found[name] != published[name]}
    # The likelihood term of rl_sft_loss keeps no shaping to differ in: nothing reads it.
    differing.pop("off_shaping", None)
    assert differing == {"preset": "grpo"}


def test_the_sizes_of_a_script() -> None:
    run = _compose("grpo", *SHARED.split(), *SCRIPTS["luffy"])
    assert (run.prompts_per_step, run.num_generations, run.num_sampled) == (128, 8, 7)
    assert (run.rows_per_update, run.updates_per_rollout, run.max_steps) == (512, 2, 500)
    assert (run.data.max_prompt_length, run.sampling.max_tokens) == (1024, 8192)
    assert (run.optimizer.learning_rate, run.sampling.temperature) == (1e-6, 1.0)
    assert (run.evaluation.sampling.temperature, run.evaluation.every_steps) == (0.6, 10)
    assert (run.reward.name, run.reward.fast) == ("think_boxed", False)
    assert (run.checkpoint.every_steps, run.checkpoint.save_total_limit) == (50, 2)
    assert run.off_policy.whole_traces
    assert (run.name, run.tracking.wandb) == ("again", True)


def test_the_switches_of_exgrpo() -> None:
    run = _compose("grpo", *SHARED.split(), *SCRIPTS["exgrpo"])
    assert run.num_sampled == 8  # how many are sampled for a replayed prompt is the loop's
    assert (run.replay.experience_ratio, run.replay.start_solve_rate) == (0.5, 0.35)
    assert (run.replay.lower, run.replay.upper, run.replay.weighting) == (0, 7, "normal")
    assert run.optimizer.skip_above_grad_norm == 500


def test_a_script_on_top_of_the_run_that_is_shipped_for_it() -> None:
    """All of it is said already, except what a script names and a shipped run leaves alone."""
    shipped = _compose("luffy")
    run = _compose("luffy", *SHARED.split(), *SCRIPTS["luffy"])
    assert run.objective.resolve() == shipped.objective.resolve()
    for section in ("reward", "sampling", "off_policy"):
        assert getattr(run, section) == getattr(shipped, section)
    for size in ("prompts_per_step", "num_generations", "train_batch_size"):
        assert getattr(run, size) == getattr(shipped, size)


# ----------------------------------------------------------------------------- the odd corners


def test_a_name_about_teacher_rows_needs_teacher_rows() -> None:
    assert _error("off_policy_reshape=p_div_p_0.1") == (
        "off_policy_reshape=p_div_p_0.1 is about the rows of a teacher, and a group has none\n\n"
        "hint: set n_prefix=1, or start from -c luffy"
    )
    assert _error("sample_target_ratio=0.5").startswith("sample_target_ratio=0.5 is about the rows")
    run = _compose("grpo", "off_policy_reshape=no_reshape", "use_off_policy_probs=false")
    assert run.objective.resolve().num_off == 0


def test_names_that_disagree() -> None:
    base = ["n_prefix=1"]
    assert "disagrees with off_policy_reshape=p_div_p_0.1, which is objective.gamma=0.1" in _error(
        *base, "off_policy_reshape=p_div_p_0.1", "objective.gamma=0.3"
    )
    assert "disagrees with n_prefix=1, which is objective.num_off=1" in _error(
        *base, "objective.num_off=2"
    )
    assert _error("loss_remove_token_mean=true", "loss_agg_mode=token-mean") == (
        "loss_remove_token_mean=seq_mean_token_sum_norm and loss_agg_mode=token_mean both set "
        "objective.reduction\n\nhint: give one of them"
    )
    assert _error("grpo_use_std=true", "scale_rewards=none") == (
        "grpo_use_std=true and scale_rewards=false both set one thing\n\nhint: give one of them"
    )


@pytest.mark.parametrize("name", ["p_div_p_0", "p_div_p_-1", "p_div_p_x", "cube_root"])
def test_shapings_without_counterpart(name: str) -> None:
    assert _error("n_prefix=1", f"off_policy_reshape={name}") == (
        f"off_policy_reshape='{name}'; expected one of no_reshape, square_root, pow, logp, "
        "p_logp, or p_div_p_X with a number above 0 for X"
    )


def test_own_tokens_may_be_shaped_with_and_without_a_teacher() -> None:
    plain = ["loss_remove_clip=true", "on_policy_reshape=logp", "on_policy_reshape_weight=0.2"]
    for teacher in ([], ["n_prefix=1"]):
        found = _compose("grpo", *plain, *teacher).objective.resolve()
        assert (found.on_shaping, found.off_shaping_weight) == ("logp", 0.2)


def test_a_schedule_that_ignores_the_largest_ratio() -> None:
    run = _compose(
        "grpo", "n_prefix=1", "prefix_strategy=linear_max", "max_prefix_ratio=0", "prefix_steps=10"
    )
    assert run.objective.num_off == 1
    assert run.off_policy.prefix_schedule == "linear_max"
    assert "was never defined" in _error("n_prefix=1", "prefix_strategy=linear_variance")


def test_a_group_replays_one_rollout() -> None:
    assert _error("experience=true", "n_prefix=2") == (
        "n_prefix=2 with experience=true: a group replays one rollout\n\nhint: set n_prefix=1"
    )


def test_graders_by_number() -> None:
    assert _error("reward_impl_version=1").startswith(
        "reward_impl_version=1 pays -1 and -0.5 for a wrong format, which no reward here does"
    )
    assert _error("reward_impl_version=7") == (
        "reward_impl_version=7; expected one of 0, 1, 2, 3, 4"
    )
    assert set(REWARDS) == set(range(5))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["n_prefix=1.5"], "n_prefix=1.5; expected a whole number, or -1 for every row"),
        (["exp_metric=len", "experience=true"], "exp_metric='len'; expected one of ent,"),
        (["exp_select_mode=argmax"], "exp_select_mode='argmax'; expected argmin or random"),
        (["n_prefix=1", "sft_loss_coef=x"], "sft_loss_coef='x'; expected a number"),
    ],
)
def test_wrong_values(overrides: list[str], expected: str) -> None:
    assert _error(*overrides).startswith(expected)


def test_keys_of_the_rules_are_unique() -> None:
    keys: list[Any] = list(EARLIER_KEYS.values())
    assert len(keys) == len(set(keys))
