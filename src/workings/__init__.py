"""Workings: post-training for mathematical reasoning.

The public names are listed in `__all__` and loaded on first use, so that `import workings` takes
no time and the parts without torch stay without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> the module that it is defined in. `TYPE_CHECKING` below says the same to a type
# checker; a test compares the two, and `__all__`, and looks for every docstring.
_PUBLIC: dict[str, str] = {
    # records
    "Demonstration": "workings.types",
    "Grade": "workings.types",
    "Message": "workings.types",
    "PreferencePair": "workings.types",
    "Problem": "workings.types",
    "Prompt": "workings.types",
    "Rollout": "workings.types",
    "RolloutGroup": "workings.types",
    "Sample": "workings.types",
    "Verdict": "workings.types",
    # errors
    "AlreadyFinished": "workings.errors",
    "CheckpointError": "workings.errors",
    "ConfigError": "workings.errors",
    "DataError": "workings.errors",
    "EngineError": "workings.errors",
    "GradingError": "workings.errors",
    "ModelError": "workings.errors",
    "StoppedBySignal": "workings.errors",
    "TemplateError": "workings.errors",
    "TrainingError": "workings.errors",
    "WorkingsError": "workings.errors",
    # configuration
    "compose": "workings.config.compose",
    "dump_yaml": "workings.config.dump",
    # data
    "BatchSampler": "workings.data.sampler",
    "Loaded": "workings.data.loaded",
    "PromptSampler": "workings.data.sampler",
    "PromptTemplate": "workings.data.templates",
    "encode_demonstrations": "workings.data.encoding",
    "encode_preferences": "workings.data.encoding",
    "encode_prompts": "workings.data.encoding",
    "encode_traces": "workings.data.traces",
    "load_demonstrations": "workings.data.loading",
    "load_preferences": "workings.data.loading",
    "load_problems": "workings.data.loading",
    "load_template": "workings.data.templates",
    "teacher_traces": "workings.data.demonstrations",
    # models
    "LoadedModel": "workings.models.load",
    "add_lora": "workings.models.lora",
    "export_model": "workings.models.export",
    "load_model": "workings.models.load",
    "named_full_weights": "workings.models.weights",
    # sampling
    "Engine": "workings.rollout.engine",
    "PagedEngine": "workings.rollout.paged.engine",
    "ProcessEngine": "workings.rollout.process_engine",
    "ReplayBuffer": "workings.rollout.replay",
    "Request": "workings.rollout.engine",
    "SamplingParams": "workings.rollout.engine",
    "ScriptedEngine": "workings.rollout.scripted",
    "ServerEngine": "workings.rollout.server_engine",
    "TransformersEngine": "workings.rollout.transformers_engine",
    "VLLMEngine": "workings.rollout.vllm_engine",
    "collect_groups": "workings.rollout.collect",
    "mix_demonstrations": "workings.rollout.mix",
    # grading
    "Grader": "workings.grading.grader",
    "GradingPolicy": "workings.grading.policy",
    "grade": "workings.grading.grader",
    # rewards
    "Component": "workings.rewards.components",
    "Reward": "workings.rewards.reward",
    "TagRewards": "workings.rewards.tags",
    "build_reward": "workings.rewards.reward",
    "grade_groups": "workings.rewards.reward",
    "question_only_reward_fn": "workings.rewards.r1_zero",
    "r1_zero_reward_fn": "workings.rewards.r1_zero",
    # objectives
    "StepTotals": "workings.objectives.reductions",
    "correction_weights": "workings.objectives.corrections",
    "gdpo_advantages": "workings.objectives.component_advantages",
    "group_advantages": "workings.objectives.advantages",
    "kl_penalty": "workings.objectives.kl",
    "level_log_ratio": "workings.objectives.ratios",
    "mixed_loss": "workings.objectives.luffy",
    "preference_loss": "workings.objectives.preference",
    "sft_loss": "workings.objectives.supervised",
    "surrogate_loss": "workings.objectives.surrogates",
    "token_logprobs": "workings.objectives.logprobs",
    "token_weights": "workings.objectives.reductions",
    "weighted_loss": "workings.objectives.policy",
    # training
    "Checkpointer": "workings.training.checkpointer",
    "Guidance": "workings.training.source",
    "MicroBatch": "workings.training.packing",
    "Reference": "workings.training.reference",
    "Replay": "workings.training.source",
    "RunPaths": "workings.training.checkpointer",
    "StopRequest": "workings.training.stop",
    "TrainResult": "workings.training.progress",
    "TrainRow": "workings.training.packing",
    "assign_credit": "workings.training.credit",
    "build_adamw": "workings.training.optim",
    "pack": "workings.training.packing",
    "policy_gradient_loss": "workings.training.policy_loss",
    "policy_step": "workings.training.step",
    "score": "workings.training.step",
    "step_totals": "workings.training.packing",
    "supervised_loss": "workings.training.supervised_loss",
    "train_dpo": "workings.training.dpo",
    "train_expert_iteration": "workings.training.expert_iteration",
    "train_grpo": "workings.training.grpo",
    "train_one_step_off": "workings.training.one_step_off",
    "train_sft": "workings.training.sft",
    # evaluation
    "EvaluationResult": "workings.evaluation.result",
    "evaluate": "workings.evaluation.evaluate",
    "filter_correct": "workings.evaluation.filter_correct",
    "paired_difference": "workings.evaluation.metrics",
    "pass_at_k": "workings.evaluation.metrics",
    "wilson_interval": "workings.evaluation.intervals",
    # tracking
    "Recorder": "workings.tracking.recorder",
    "read_metrics": "workings.tracking.jsonl",
}

# Names of earlier programs and of the CS336 assignment -> "module" or "module:its name there".
# They are for who looks for them; what they lead to is documented in docs/reference/old-names.md.
_EARLIER: dict[str, str] = {
    # settings
    "DataConfig": "workings.config.sections",
    "EvaluationConfig": "workings.config.sections",
    "GRPOConfig": "workings.config.grpo",
    "GRPOTrainingConfig": "workings.config.grpo:GRPOConfig",
    "ModelConfig": "workings.config.sections",
    "PipelineConfig": "workings.config.pipeline",
    "PromptConfig": "workings.earlier.prompts",
    "RewardConfig": "workings.config.sections",
    "SFTConfig": "workings.config.sft",
    "SFTTrainingConfig": "workings.config.sft:SFTConfig",
    "VLLMSamplingConfig": "workings.config.sections:SamplingConfig",
    # components
    "DatasetLoader": "workings.earlier.managers",
    "DatasetProcessor": "workings.earlier.managers",
    "GRPOTrainingPipeline": "workings.earlier.pipelines",
    "MemoryEfficientAdamW": "workings.training.offloaded_adamw:OffloadedAdamW",
    "ModelManager": "workings.earlier.managers",
    "PromptTemplateManager": "workings.earlier.prompts",
    "SFTTrainingPipeline": "workings.earlier.pipelines",
    "create_dataset_loader": "workings.earlier.factories",
    "create_dataset_processor": "workings.earlier.factories",
    "create_grpo_trainer": "workings.earlier.factories",
    "create_model_manager": "workings.earlier.factories",
    "create_reward_manager": "workings.earlier.factories",
    "create_sft_trainer": "workings.earlier.factories",
    # the CS336 assignment
    "compute_entropy": "workings.training.course",
    "compute_group_normalized_rewards": "workings.training.course",
    "compute_grpo_clip_loss": "workings.training.course",
    "compute_naive_policy_gradient_loss": "workings.training.course",
    "compute_per_instance_dpo_loss": "workings.training.course",
    "compute_policy_gradient_loss": "workings.training.course",
    "evaluate_vllm": "workings.training.course_evaluation",
    "get_packed_sft_dataset": "workings.training.course_data",
    "get_response_log_probs": "workings.training.course",
    "grpo_microbatch_train_step": "workings.training.course",
    "init_vllm": "workings.training.course_vllm",
    "iterate_batches": "workings.training.course_data",
    "load_policy_into_vllm_instance": "workings.training.course_vllm",
    "log_generations": "workings.training.course_evaluation",
    "masked_mean": "workings.training.course",
    "masked_normalize": "workings.training.course",
    "parse_gsm8k_response": "workings.grading.text.course_answers",
    "parse_mmlu_response": "workings.grading.text.course_answers",
    "selective_log_softmax": "workings.objectives.logprobs",
    "sft_microbatch_train_step": "workings.training.course",
    "tokenize_prompt_and_output": "workings.training.course",
}

__all__ = [  # noqa: RUF022 - the order of the table above
    "Demonstration",
    "Grade",
    "Message",
    "PreferencePair",
    "Problem",
    "Prompt",
    "Rollout",
    "RolloutGroup",
    "Sample",
    "Verdict",
    "AlreadyFinished",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "EngineError",
    "GradingError",
    "ModelError",
    "StoppedBySignal",
    "TemplateError",
    "TrainingError",
    "WorkingsError",
    "compose",
    "dump_yaml",
    "BatchSampler",
    "Loaded",
    "PromptSampler",
    "PromptTemplate",
    "encode_demonstrations",
    "encode_preferences",
    "encode_prompts",
    "encode_traces",
    "load_demonstrations",
    "load_preferences",
    "load_problems",
    "load_template",
    "teacher_traces",
    "LoadedModel",
    "add_lora",
    "export_model",
    "load_model",
    "named_full_weights",
    "Engine",
    "PagedEngine",
    "ProcessEngine",
    "ReplayBuffer",
    "Request",
    "SamplingParams",
    "ScriptedEngine",
    "ServerEngine",
    "TransformersEngine",
    "VLLMEngine",
    "collect_groups",
    "mix_demonstrations",
    "Grader",
    "GradingPolicy",
    "grade",
    "Component",
    "Reward",
    "TagRewards",
    "build_reward",
    "grade_groups",
    "question_only_reward_fn",
    "r1_zero_reward_fn",
    "StepTotals",
    "correction_weights",
    "gdpo_advantages",
    "group_advantages",
    "kl_penalty",
    "level_log_ratio",
    "mixed_loss",
    "preference_loss",
    "sft_loss",
    "surrogate_loss",
    "token_logprobs",
    "token_weights",
    "weighted_loss",
    "Checkpointer",
    "Guidance",
    "MicroBatch",
    "Reference",
    "Replay",
    "RunPaths",
    "StopRequest",
    "TrainResult",
    "TrainRow",
    "assign_credit",
    "build_adamw",
    "pack",
    "policy_gradient_loss",
    "policy_step",
    "score",
    "step_totals",
    "supervised_loss",
    "train_dpo",
    "train_expert_iteration",
    "train_grpo",
    "train_one_step_off",
    "train_sft",
    "EvaluationResult",
    "evaluate",
    "filter_correct",
    "paired_difference",
    "pass_at_k",
    "wilson_interval",
    "Recorder",
    "read_metrics",
]

if TYPE_CHECKING:
    from workings.config.compose import compose
    from workings.config.dump import dump_yaml
    from workings.data.demonstrations import teacher_traces
    from workings.data.encoding import encode_demonstrations, encode_preferences, encode_prompts
    from workings.data.loaded import Loaded
    from workings.data.loading import load_demonstrations, load_preferences, load_problems
    from workings.data.sampler import BatchSampler, PromptSampler
    from workings.data.templates import PromptTemplate, load_template
    from workings.data.traces import encode_traces
    from workings.errors import (
        AlreadyFinished,
        CheckpointError,
        ConfigError,
        DataError,
        EngineError,
        GradingError,
        ModelError,
        StoppedBySignal,
        TemplateError,
        TrainingError,
        WorkingsError,
    )
    from workings.evaluation.evaluate import evaluate
    from workings.evaluation.filter_correct import filter_correct
    from workings.evaluation.intervals import wilson_interval
    from workings.evaluation.metrics import paired_difference, pass_at_k
    from workings.evaluation.result import EvaluationResult
    from workings.grading.grader import Grader, grade
    from workings.grading.policy import GradingPolicy
    from workings.models.export import export_model
    from workings.models.load import LoadedModel, load_model
    from workings.models.lora import add_lora
    from workings.models.weights import named_full_weights
    from workings.objectives.advantages import group_advantages
    from workings.objectives.component_advantages import gdpo_advantages
    from workings.objectives.corrections import correction_weights
    from workings.objectives.kl import kl_penalty
    from workings.objectives.logprobs import token_logprobs
    from workings.objectives.luffy import mixed_loss
    from workings.objectives.policy import weighted_loss
    from workings.objectives.preference import preference_loss
    from workings.objectives.ratios import level_log_ratio
    from workings.objectives.reductions import StepTotals, token_weights
    from workings.objectives.supervised import sft_loss
    from workings.objectives.surrogates import surrogate_loss
    from workings.rewards.components import Component
    from workings.rewards.r1_zero import question_only_reward_fn, r1_zero_reward_fn
    from workings.rewards.reward import Reward, build_reward, grade_groups
    from workings.rewards.tags import TagRewards
    from workings.rollout.collect import collect_groups
    from workings.rollout.engine import Engine, Request, SamplingParams
    from workings.rollout.mix import mix_demonstrations
    from workings.rollout.paged.engine import PagedEngine
    from workings.rollout.process_engine import ProcessEngine
    from workings.rollout.replay import ReplayBuffer
    from workings.rollout.scripted import ScriptedEngine
    from workings.rollout.server_engine import ServerEngine
    from workings.rollout.transformers_engine import TransformersEngine
    from workings.rollout.vllm_engine import VLLMEngine
    from workings.tracking.jsonl import read_metrics
    from workings.tracking.recorder import Recorder
    from workings.training.checkpointer import Checkpointer, RunPaths
    from workings.training.credit import assign_credit
    from workings.training.dpo import train_dpo
    from workings.training.expert_iteration import train_expert_iteration
    from workings.training.grpo import train_grpo
    from workings.training.one_step_off import train_one_step_off
    from workings.training.optim import build_adamw
    from workings.training.packing import MicroBatch, TrainRow, pack, step_totals
    from workings.training.policy_loss import policy_gradient_loss
    from workings.training.progress import TrainResult
    from workings.training.reference import Reference
    from workings.training.sft import train_sft
    from workings.training.source import Guidance, Replay
    from workings.training.step import policy_step, score
    from workings.training.stop import StopRequest
    from workings.training.supervised_loss import supervised_loss
    from workings.types import (
        Demonstration,
        Grade,
        Message,
        PreferencePair,
        Problem,
        Prompt,
        Rollout,
        RolloutGroup,
        Sample,
        Verdict,
    )


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
    elif name in _EARLIER:
        module, _, attribute = _EARLIER[name].partition(":")
        value = getattr(importlib.import_module(module), attribute or name)
    else:
        raise AttributeError(f"module 'workings' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
