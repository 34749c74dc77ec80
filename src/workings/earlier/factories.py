"""One factory for each component, under the names they had before."""

from __future__ import annotations

from typing import Any

from workings.config.grpo import GRPOConfig
from workings.config.sections import DataConfig, ModelConfig, RewardConfig
from workings.config.sft import SFTConfig
from workings.earlier.managers import DatasetLoader, DatasetProcessor, ModelManager
from workings.earlier.pipelines import GRPOTrainingPipeline, SFTTrainingPipeline
from workings.earlier.prompts import PromptConfig
from workings.grading.grader import Grader
from workings.rewards.reward import Reward, build_reward


def create_model_manager(
    config: ModelConfig, *, seed: int = 0, use_unsloth: bool = False
) -> ModelManager:
    """The manager of one model; nothing is loaded until it is asked for."""
    return ModelManager(config, seed=seed, use_unsloth=use_unsloth)


def create_dataset_loader(
    config: DataConfig, *, seed: int = 0, grader: Grader | None = None
) -> DatasetLoader:
    """The loader of a data set's rows."""
    return DatasetLoader(config, seed=seed, grader=grader)


def create_dataset_processor(config: DataConfig, tokenizer: Any) -> DatasetProcessor:
    """What turns rows into token ids; a template may put its chat template on the tokenizer."""
    return DatasetProcessor(config, tokenizer)


def create_reward_manager(
    config: RewardConfig | None = None,
    *,
    prompt: PromptConfig | None = None,
    eos_token: str | None = None,
    max_tokens: int | None = None,
    grader: Grader | None = None,
) -> Reward:
    """The reward that `grade_groups` applies.

    `prompt` gives the tags of the tag rewards, `eos_token` what a response may end with behind
    them, and `max_tokens` is the sampling limit that length terms count from.
    """
    settings: dict[str, Any] = dict(config or RewardConfig())
    strict = settings.pop("equality") == "strict"
    return build_reward(
        **settings,
        strict_compat=strict,
        tags=None if prompt is None else prompt.tags,
        eos_token=eos_token,
        max_tokens=max_tokens,
        grader=grader,
    )


def create_sft_trainer(config: SFTConfig) -> SFTTrainingPipeline:
    """The supervised run with these settings."""
    return SFTTrainingPipeline(config)


def create_grpo_trainer(config: GRPOConfig) -> GRPOTrainingPipeline:
    """The GRPO run with these settings."""
    return GRPOTrainingPipeline(config)
