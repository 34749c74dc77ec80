"""Names of earlier programs and what they are called here: the one table, tested row by row.

An alias is read on the command line and in a run's YAML file, for the kinds of run that have it.
A row leads to a dotted path, or to `__older__.X`: such a value means something only together with
other settings (accumulation steps, a total length), and `config.older` works it out once
everything is composed. A pipeline reads the rows of its two phases. A leading section that belongs
to an earlier program (`actor.clip_ratio`, `sft_training.lr`) is dropped, see `FOREIGN_SECTIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workings.config.older_luffy import EARLIER_KEYS

OLDER = "__older__"
ANY = "*"
"""Among an alias's values: whatever the value, it is about machines and changes no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """One row: where a name of an earlier program leads.

    Attributes:
        target: our dotted path, or `__older__.X`; empty where `values` alone decides.
        values: our value by theirs where they differ; a pair is (path, value), None is no setting.
    """

    name: str
    target: str
    values: Mapping[str, Any] | None = None

    @property
    def is_flag(self) -> bool:
        """True where the earlier name stood for a switch."""
        return self.values is not None and bool(self.values.keys() & {"true", "false"})

    def assign(self, value: Any) -> tuple[str, Any] | None:
        """(path, value) in our terms; None where the value asks for what happens here anyway.

        Raises ValueError for a value that has no counterpart.
        """
        spelled = spell(value)
        if self.values is not None and ANY in self.values:
            return None
        if self.values is None or spelled not in self.values:
            if not self.target:
                raise ValueError(f"expected one of {', '.join(self.values or {})}")
            return self.target, value
        ours = self.values[spelled]
        if ours is None or isinstance(ours, tuple):
            return ours
        return self.target, None if ours == "null" else ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A known name without a counterpart in this version, and what to do instead."""

    name: str
    reason: str
    harmless: tuple[str, ...] = ()

    def allows(self, value: Any) -> bool:
        """True for a value that asks for what happens here anyway."""
        return spell(value) in self.harmless


def spell(value: Any) -> str:
    """A value as the tables write it: lower case, `true`, `null`, 0.0 as 0.

    >>> spell(True), spell(None), spell(0.0), spell("Adam")
    ('true', 'null', '0', 'adam')
    """
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower()


_SWITCH = {"true": True, "false": False}
_CHECKPOINTING = (
    "gradient_checkpointing use_gradient_checkpointing enable_gradient_checkpointing "
    "model.gradient_checkpointing model.use_gradient_checkpointing "
    "model.enable_gradient_checkpointing"
)
_LUFFY_SWITCHES = (
    *("use_off_policy_loss", "use_off_policy_probs", "prefix_share_across_samples"),
    *("use_sft_multitask_loss", "experience"),
)


def _rows(names: str, target: str, values: Mapping[str, Any] | None = None) -> dict[str, Alias]:
    return {name: Alias(name=name, target=target, values=values) for name in names.split()}


_OPTIMIZERS = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf"), "adamw"),
    "adamw_bnb_8bit": "adamw_8bit",
}
"""Optimizers by the names of `transformers`; `adamw` and `adamw_8bit` are our own as well."""

_EVERY_RUN = {
    **_rows("model_name_or_path model_name model_path model_id pretrain", "model.name_or_path"),
    **_rows("model.path", "model.name_or_path"),
    **_rows("adapter_path adapter_name_or_path lora_path", "model.adapter"),
    **_rows("torch_dtype dtype", "model.dtype", {"fp32": "float32", "bf16": "bfloat16"}),
    **_rows("bf16", "model.dtype", {"true": "bfloat16", "false": "float32"}),
    **_rows("attn_implementation", "model.attention"),
    **_rows("load_in_4bit", "model.quantization", {"true": "4bit", "false": None}),
    **_rows("load_in_8bit", "model.quantization", {"true": "8bit", "false": None}),
    **_rows("lora_r lora_rank", "model.lora.rank"),
    **_rows("lora_alpha", "model.lora.alpha"),
    **_rows("lora_dropout", "model.lora.dropout"),
    **_rows("target_modules lora_target_modules", "model.lora.targets"),
    **_rows(
        "backend inference_backend rollout.name",
        "engine.name",
        {"hf": "transformers", "huggingface": "transformers"},
    ),
    **_rows("use_vllm", "engine.name", {"true": "vllm", "false": "transformers"}),
    **_rows("max_num_seqs", "engine.max_batch_size"),
    **_rows("gpu_memory_utilization", "engine.gpu_memory_utilization"),
    **_rows("run_name experiment_name", "name"),
    **_rows("project_name wandb_project_name", "tracking.wandb_project"),
    **_rows(
        "report_to",
        "",
        {
            "wandb": ("tracking.wandb", True),
            "tensorboard": ("tracking.tensorboard", True),
            "none": None,
        },
    ),
    **_rows("reward_name reward_fn", "reward.name"),
    **_rows("max_seq_length max_length", f"{OLDER}.max_length"),
}

_TRAINING = {
    **_EVERY_RUN,
    **_rows("lr optim.lr", "optimizer.learning_rate"),
    **_rows("grad_clip max_gradient_norm gradient_clip", "optimizer.max_grad_norm"),
    **_rows("lr_scheduler_type", "optimizer.schedule", {"constant_with_warmup": "constant"}),
    **_rows("num_warmup_steps", "optimizer.warmup_steps"),
    **_rows("lr_warmup_steps_ratio", "optimizer.warmup_ratio"),
    **_rows("adam_epsilon", "optimizer.eps"),
    **_rows("optim", "optimizer.name", _OPTIMIZERS),
    **_rows(
        "train_path train_file train_files train_data_path dataset dataset_name dataset_path",
        "data.train.path",
    ),
    **_rows("dataset_config subset", "data.train.subset"),
    **_rows("train_split dataset_split", "data.train.split"),
    **_rows(
        "unique_train_examples num_train_examples max_train_samples",
        "data.train.limit",
        {"all": "null", "-1": "null"},
    ),
    **_rows("val_path val_file val_files val_data_path validation_path", "data.validation.path"),
    **_rows("train_validation_split", f"{OLDER}.train_share"),
    **_rows("prompt_template prompt_name", "data.template"),
    **_rows("length_percentile", "data.prompt_length_percentile"),
    **_rows("val_every_steps eval_steps eval_every test_freq", "evaluation.every_steps", {"-1": 0}),
    **_rows("eval_strategy", "evaluation.every_steps", {"no": 0, "steps": None}),
    **_rows("eval_on_start val_before_train", "evaluation.at_start", _SWITCH),
    **_rows("max_eval_samples num_eval_examples num_val_examples", "evaluation.limit"),
    **_rows("eval_temperature val_temperature", "evaluation.sampling.temperature"),
    **_rows("eval_n n_val", "evaluation.num_samples"),
    **_rows("save_steps save_every_steps save_freq", "checkpoint.every_steps", {"-1": 0}),
    **_rows("max_checkpoints max_optim_to_keep", "checkpoint.save_total_limit"),
    **_rows("load_best_model_at_end", "checkpoint.keep_best", _SWITCH),
    **_rows("micro_batch_size microbatch_size", "batch.microbatch_rows"),
    **_rows(
        _CHECKPOINTING,
        "batch.activation_checkpointing",
        {"true": "full", "false": "none", "unsloth": "offloaded"},
    ),
    **_rows("packing", "batch.layout", {"true": "packed", "false": "padded"}),
    **_rows("ppo_max_token_len_per_gpu", "batch.microbatch_tokens"),
    **_rows("per_device_train_batch_size", f"{OLDER}.rows_per_forward"),
    **_rows("gradient_accumulation_steps", f"{OLDER}.accumulation"),
}

_SFT = {
    **_TRAINING,
    **_rows("num_train_epochs num_epochs n_epochs total_epochs", "epochs"),
    **_rows("num_train_steps total_training_steps", "max_steps", {"-1": "null"}),
    **_rows("sft_data_path sft_dataset_name", "data.train.path"),
    **_rows("train_batch_size global_batch_size", "batch_size"),
    **_rows(
        "completion_only completion_only_loss",
        "trained_tokens",
        {"true": "completion", "false": "all"},
    ),
    **_rows("train_on_prompt", "trained_tokens", {"true": "all", "false": "completion"}),
    **_rows("assistant_only_loss", "trained_tokens", {"true": "assistant", "false": None}),
}

_DPO = {
    **{
        name: alias
        for name, alias in _TRAINING.items()
        if not alias.target.startswith(
            ("engine.", "reward.", "evaluation.sampling", "evaluation.n")
        )
    },
    **_rows("num_train_epochs num_epochs n_epochs total_epochs", "epochs"),
    **_rows("num_train_steps total_training_steps", "max_steps", {"-1": "null"}),
    **_rows("train_batch_size global_batch_size", "batch_size"),
    **_rows("loss_type", "loss"),
    **_rows("dpo_beta", "beta"),
    **_rows("precompute_ref_log_probs", "reference", {"true": "precomputed", "false": "live"}),
    **_rows("max_completion_length max_target_length", "data.max_response_length"),
    **_rows("num_val_pairs num_eval_pairs", "validation_pairs"),
    **_rows(
        "metric_for_best_model",
        "evaluation.best",
        {"eval_loss": "loss", "eval_rewards/accuracies": "accuracy"},
    ),
}

_GRPO = {
    **_TRAINING,
    **_rows("group_size n rollout.n num_rollouts n_rollouts", "num_generations"),
    **_rows("data.train_batch_size n_prompts_per_rollout_batch", "prompts_per_step"),
    **_rows("rollout_batch_size", f"{OLDER}.rollout_rows"),
    **_rows("ppo_mini_batch_size minibatch_prompts", f"{OLDER}.prompts_per_update"),
    **_rows("epochs_per_rollout_batch num_iterations ppo_epochs", "epochs_per_rollout"),
    **_rows("n_grpo_steps num_train_steps total_training_steps", "max_steps"),
    **_rows("temperature sampling_temperature", "sampling.temperature"),
    **_rows("top_p sampling_top_p", "sampling.top_p"),
    **_rows("top_k sampling_top_k", "sampling.top_k"),
    **_rows("min_p sampling_min_p", "sampling.min_p"),
    **_rows(
        "max_tokens sampling_max_tokens max_new_tokens max_completion_length max_response_length",
        "sampling.max_tokens",
    ),
    **_rows("min_tokens sampling_min_tokens min_new_tokens", "sampling.min_tokens"),
    **_rows("stop stop_strings", "sampling.stop"),
    **_rows("loss_type", "objective.preset"),
    **_rows("importance_sampling_level", "objective.ratio"),
    **_rows("cliprange clip_range", "objective.epsilon"),
    **_rows("clip_ratio", f"{OLDER}.clip_ratio"),
    **_rows("clip_ratio_low", f"{OLDER}.clip_low"),
    **_rows("clip_ratio_high", f"{OLDER}.clip_high"),
    **_rows("epsilon_high", f"{OLDER}.epsilon_high"),
    **_rows("clip_ratio_c delta", "objective.dual_clip"),
    **_rows("clip_upper_bound", f"{OLDER}.ratio_upper_bound"),
    **_rows(
        "loss_agg_mode",
        "objective.reduction",
        {
            "token-mean": "token_mean",
            "seq-mean-token-mean": "seq_mean_token_mean",
            "seq-mean-token-sum": "seq_mean_token_sum",
            "seq-mean-token-sum-norm": "seq_mean_token_sum_norm",
        },
    ),
    **_rows(
        "length_norm",
        "objective.reduction",
        {"mean": "seq_mean_token_mean", "constant": "seq_mean_token_sum_norm"},
    ),
    **_rows(
        "loss_remove_token_mean",
        "objective.reduction",
        {"true": "seq_mean_token_sum_norm", "false": "token_mean"},
    ),
    **_rows("loss_remove_clip", "objective.surrogate", {"true": "ratio", "false": "ppo_clip"}),
    **_rows(
        "use_std_normalization normalize_by_std grpo_use_std norm_adv_by_std_in_grpo",
        f"{OLDER}.divide_by_std",
        _SWITCH,
    ),
    **_rows(
        "scale_rewards",
        f"{OLDER}.divide_by_std",
        {"group": True, "none": False},
    ),
    **_rows("adv_estimator", f"{OLDER}.estimator"),
    **_rows("loss_mode", f"{OLDER}.loss_mode"),
    **_rows("mask_truncated_completions", "objective.mask_truncated", _SWITCH),
    **_rows("use_bias_correction_kl", "objective.kl_estimator", {"true": "k3_is", "false": None}),
    **_rows("use_kl_loss", f"{OLDER}.use_kl_loss", _SWITCH),
    **_rows("kl_loss_coef", f"{OLDER}.kl_loss_coef"),
    **_rows("kl_loss_type", f"{OLDER}.kl_type"),
    **_rows("kl_coef", f"{OLDER}.kl_coef"),
    **_rows("use_kl_in_reward", f"{OLDER}.use_kl_in_reward", _SWITCH),
    **_rows("entropy_coeff", "objective.entropy_coef"),
    **_rows(
        "vllm_importance_sampling_mode",
        "objective.correction",
        {
            "token_truncate": "tis_token",
            "token_mask": "icepop",
            "sequence_truncate": "seq_product_truncate",
            "sequence_mask": "seq_product_mask",
        },
    ),
    **_rows(
        "vllm_importance_sampling_correction",
        "",
        {"true": None, "false": ("objective.correction", "none")},
    ),
    **_rows("vllm_importance_sampling_clip_max vllm_importance_sampling_cap", f"{OLDER}.is_max"),
    **_rows("vllm_importance_sampling_clip_min", f"{OLDER}.is_min"),
    **_rows("disable_truncation_advantage", "objective.zero_truncated_advantage", _SWITCH),
    **_rows("overlong_buffer.enable", f"{OLDER}.overlong_on", _SWITCH),
    **_rows("overlong_buffer.len", f"{OLDER}.overlong_tokens"),
    **_rows("overlong_buffer.penalty_factor", f"{OLDER}.overlong_factor"),
    **_rows(
        "filter_groups.enable", "objective.dynamic_sampling", {"true": "filter", "false": "none"}
    ),
    **_rows("filter_groups.max_num_gen_batches", "objective.max_gen_batches"),
    **_rows(
        "filter_groups.metric",
        "",
        {"acc": None, "score": None, "seq_reward": None, "seq_final_reward": None},
    ),
    **{
        name: Alias(
            name=name,
            target=f"{OLDER}.{key}",
            values=_SWITCH if name in _LUFFY_SWITCHES else None,
        )
        for name, key in EARLIER_KEYS.items()
    },
    **_rows("data.max_response_length", "sampling.max_tokens"),
    **_rows("data.disable_truncation_advantage", "objective.zero_truncated_advantage", _SWITCH),
    **_rows("data.shuffle", "", {"true": None}),
    **_rows("use_ref", "", {"false": None}),
    **_rows("critic_warmup", "", {"0": None}),
    **_rows("optimizer_offload", "optimizer.offload", _SWITCH),
    **_rows("default_local_dir", "output_dir"),
    **_rows(
        "logger",
        "",
        {
            "['console', 'wandb']": ("tracking.wandb", True),
            "wandb": ("tracking.wandb", True),
            "['console']": None,
            "console": None,
        },
    ),
    **_rows(
        "use_remove_padding model.use_remove_padding use_dynamic_bsz ppo_micro_batch_size "
        "data.val_batch_size "
        "ulysses_sequence_parallel_size tensor_model_parallel_size param_offload grad_offload "
        "n_gpus_per_node nnodes default_hdfs_dir",
        "",
        {ANY: None},
    ),
    **_rows("all_max_clip", "objective.prob_clip_max", {"-1": "null"}),
    **_rows("prefix_reward_weight_beta", "objective.on_advantage_scale"),
    **_rows("skip_grad_bound", "optimizer.skip_above_grad_norm"),
    **_rows("experience_ratio", "replay.experience_ratio"),
    **_rows("experience_lbound", "replay.lower"),
    **_rows("experience_rbound", "replay.upper"),
    **_rows("experience_start_sratio", "replay.start_solve_rate"),
    **_rows("exp_bucket_manager", "replay.weighting"),
    **_rows("exp_is_correct", "", {"true": None}),
    **_rows("exp_sample_range", "", {"all": None}),
}

_EXPERT = {
    **_TRAINING,
    **{
        name: alias
        for name, alias in _GRPO.items()
        if alias.target.startswith("sampling.") and not name.startswith("data.")
    },
    **_rows("group_size n rollout.n num_rollouts n_rollouts", "num_generations"),
    **_rows("n_ei_steps ei_steps n_expert_iterations expert_iterations", "iterations"),
    **_rows("ei_batch_size expert_batch_size questions_per_step", "questions_per_iteration"),
    **_rows("num_train_epochs num_epochs n_epochs sft_epochs epochs_per_iteration", "epochs"),
    **_rows("train_batch_size global_batch_size", "batch_size"),
}

_EVAL = {
    **_EVERY_RUN,
    **_rows("n n_samples num_return_sequences", "num_samples"),
    **_rows("max_new_tokens", "sampling.max_tokens"),
    **_rows("stop_strings", "sampling.stop"),
    **_rows("prompt_template prompt_name data.template", "template"),
    **_rows("benchmark benchmarks dataset dataset_name val_datasets", "datasets"),
    **_rows("max_problems num_examples num_eval_examples", "limit"),
    **_rows(_CHECKPOINTING, "", {ANY: None}),
}

_SAMPLE = {
    name: _EVAL[name]
    for name in _EVAL
    if _EVAL[name].target.startswith(("model.", "engine.", "sampling.", "num_samples", "template"))
}

_SERVE = {
    name: _EVAL[name] for name in _EVAL if _EVAL[name].target.startswith(("model.", "engine."))
}

ALIASES: dict[str, dict[str, Alias]] = {
    "sft": _SFT,
    "dpo": _DPO,
    "grpo": _GRPO,
    "expert-iteration": _EXPERT,
    "eval": _EVAL,
    "sample": _SAMPLE,
    "serve": _SERVE,
}

# Leading sections of earlier programs that say nothing here: `actor.clip_ratio` is `clip_ratio`.
FOREIGN_SECTIONS: dict[str, frozenset[str]] = {
    "sft": frozenset({"training", "trainer", "sft_training"}),
    "dpo": frozenset({"training", "trainer", "dpo_training", "dpo"}),
    "grpo": frozenset(
        {"training", "trainer", "grpo_training", "actor_rollout_ref", "actor", "rollout"}
        | {"algorithm", "generation", "policy_loss", "kl_ctrl", "reward_model"}
        | {"ref", "fsdp_config"}
    ),
    "expert-iteration": frozenset({"training", "trainer", "generation", "rollout"}),
    "eval": frozenset({"generation", "rollout"}),
    "sample": frozenset({"generation"}),
    "serve": frozenset({"rollout"}),
}


def _refusals(names: str, reason: str, harmless: str = "") -> dict[str, Refusal]:
    allowed = tuple(harmless.split())
    return {name: Refusal(name=name, reason=reason, harmless=allowed) for name in names.split()}


_DEAD = (
    "LUFFY accepts this name and never reads it; what limits off-policy tokens is "
    "objective.off_clip_max and off_clip_min, and their shape is objective.off_shaping"
)

REFUSALS: dict[str, Refusal] = {
    **_refusals(
        "use_unsloth unsloth",
        "Unsloth is not supported: it replaces model code that this package has to know; "
        "model.lora, batch.activation_checkpointing and model.attention=sdpa save memory",
        "false",
    ),
    **_refusals("fp16", "float16 overflows in training; use model.dtype=bfloat16", "false"),
    **_refusals("off_policy_cliprange", _DEAD, "0.2 -1 null"),
    **_refusals("off_policy_normalize use_off_policy_clip", _DEAD, "false"),
    **_refusals("off_abs_cliprange", _DEAD, "false -1 null"),
    **_refusals("off_policy_loss_impl", _DEAD, "token"),
    **_refusals(
        "use_sft_prefix_reward sft_prefix_reward_weight",
        "an advantage that is the same for every token of a teacher is a likelihood term: set "
        "objective.sft_loss_coef with objective.off_policy_loss=false",
        "false 0",
    ),
    **_refusals(
        "print_every_steps",
        "completions are saved instead of printed; see tracking.save_rollouts_every and "
        "`workings inspect rollouts`",
        "0",
    ),
}

CONFIG_NAMES: dict[str, str] = {
    "default_config": "tags_pipeline",
    "sft_config": "sft",
    "grpo_train": "grpo",
    "eval_math": "eval",
    "expert_iteration": "expert-iteration",
}
"""Names of earlier configuration files and the shipped run that takes their place."""
