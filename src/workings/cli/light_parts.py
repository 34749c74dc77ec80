"""What an evaluation needs besides a model: sampling settings, grader, reward. Imports no torch.

Stored responses are graded again from here alone.
"""

from __future__ import annotations

from pathlib import Path

from workings.config.sections import DatasetConfig, GraderConfig, RewardConfig, SamplingConfig
from workings.data.templates import PromptTemplate
from workings.errors import ConfigError
from workings.grading.grader import Grader
from workings.grading.policy import GradingPolicy
from workings.rewards.reward import Reward, build_reward
from workings.rollout.engine import SamplingParams


def build_sampling(
    config: SamplingConfig, template: PromptTemplate, *, logprobs: bool = True
) -> SamplingParams:
    """How to draw; the template's stop strings are used where the run gives none.

    Evaluation has no use for the log-probabilities of what it samples and leaves them out.
    """
    return SamplingParams(
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        min_p=config.min_p,
        max_tokens=config.max_tokens,
        min_tokens=config.min_tokens,
        stop=config.stop or template.stop,
        logprobs=logprobs,
    )


def build_grader(config: GraderConfig) -> Grader:
    """The grader; its workers start on first need."""
    policy = GradingPolicy(deadline_seconds=config.deadline_seconds)
    return Grader(policy, num_workers=config.num_workers, store=config.store)


def build_run_reward(
    config: RewardConfig, grader: Grader, *, eos_token: str | None, max_tokens: int
) -> Reward:
    """The reward of a run."""
    return build_reward(
        config.name,
        grader=grader,
        mode=config.mode,
        fast=config.fast,
        strict_compat=config.equality == "strict",
        profile=config.profile,
        eos_token=eos_token,
        weights=config.weights,
        use_format_exact=config.use_format_exact,
        use_format_approximate=config.use_format_approximate,
        use_answer_check=config.use_answer_check,
        use_number_check=config.use_number_check,
        max_tokens=max_tokens,
        overlong_buffer=config.overlong_buffer,
    )


def evaluation_settings(
    *,
    model: str,
    template: str,
    engine: str,
    sampling: SamplingParams,
    num_samples: int,
    seed: int,
    reward: Reward,
) -> dict[str, object]:
    """What the numbers of an evaluation depend on, for summary.json."""
    return {
        "model": model,
        "template": template,
        "backend": engine,
        "sampling": {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "max_tokens": sampling.max_tokens,
            "min_tokens": sampling.min_tokens,
            "stop": list(sampling.stop),
        },
        "num_samples": num_samples,
        "seed": seed,
        "grader": dict(reward.settings),
    }


def dataset_name(config: DatasetConfig) -> str:
    """The name that metrics and folders carry."""
    name = config.name or Path(config.path).stem
    if not name or "/" in name:
        raise ConfigError(f"data set name {name!r}; expected a plain name without '/'")
    return name
