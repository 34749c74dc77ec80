"""Rows that the policy did not sample: a teacher's traces, and own past successes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from workings.config.section import Section
from workings.config.sections import DatasetConfig
from workings.errors import ConfigError


class OffPolicyConfig(Section):
    """Where a teacher's traces come from and how they enter a group; see objective.num_off."""

    traces: DatasetConfig | None = Field(
        None, description="Demonstrations, found by their question; null reads data.train's target."
    )
    choice: Literal["first", "random"] = Field("first", description="Which of several traces.")
    max_trace_length: int = Field(8192, ge=1, description="In tokens, EOS included.")
    cut_traces: Literal["drop", "error"] = Field(
        "drop", description="What becomes of a trace that is too long or was cut off; counted."
    )
    keep_prob: float = Field(1.0, ge=0, le=1, description="Share of prompts that use their trace.")
    wrong_traces: Literal["keep", "drop"] = Field(
        "keep", description="Traces that the reward finds wrong: kept, they get its low reward."
    )
    min_right: float = Field(
        0.9, ge=0, le=1, description="Least share of traces that must be right before step 0."
    )
    prompt_ending: str | None = Field(
        None, description="Text that every prompt has to end in, e.g. <think> and a line break."
    )
    prefix_schedule: Literal[
        "random", "fixed", "linear", "linear_max", "reverse_linear", "linear_variance"
    ] = Field("random", description="How much of a trace a guided row begins with.")
    prefix_min_ratio: float = Field(1.0, ge=0, le=1, description="Least share of a trace.")
    prefix_max_ratio: float = Field(1.0, ge=0, le=1, description="Largest share; 1, 1 is all.")
    prefix_steps: int = Field(1000, ge=1, description="Steps of a schedule that changes.")
    prefix_linear_max_ratio: float = Field(0.8, ge=0, le=1, description="Where linear begins.")
    prefix_share_across_samples: bool = Field(False, description="One share for all guided rows.")

    @model_validator(mode="after")
    def _schedule_is_defined(self) -> OffPolicyConfig:
        name = self.prefix_schedule
        if name == "linear_variance":
            raise ConfigError(
                "off_policy.prefix_schedule=linear_variance was never defined: LUFFY declares the "
                "name and gives it no body",
                hint="choose random, fixed, linear, linear_max or reverse_linear",
            )
        if self.prefix_min_ratio > self.prefix_max_ratio:
            raise ConfigError(
                f"off_policy.prefix_min_ratio={self.prefix_min_ratio:g} is above "
                f"off_policy.prefix_max_ratio={self.prefix_max_ratio:g}"
            )
        if name == "linear" and not self.prefix_share_across_samples:
            raise ConfigError(
                "off_policy.prefix_schedule=linear gives all guided rows of a prompt one share",
                hint="set off_policy.prefix_share_across_samples=true",
            )
        if name == "fixed" and self.prefix_share_across_samples:
            raise ConfigError(
                "off_policy.prefix_schedule=fixed gives every guided row of a prompt another share",
                hint="set off_policy.prefix_share_across_samples=false",
            )
        return self

    @property
    def whole_traces(self) -> bool:
        """True when guided rows are whole traces, which never go to the engine."""
        return (
            self.prefix_schedule in ("random", "fixed")
            and self.prefix_min_ratio == self.prefix_max_ratio == 1
        )


class ReplayConfig(Section):
    """The replay of own past successes (ExGRPO, 2510.02245); see objective.replay."""

    experience_ratio: float = Field(
        0.5, gt=0, lt=1, description="Share of a batch's prompts that replay a rollout."
    )
    lower: int = Field(0, ge=0, description="A problem enters with more right rollouts than this.")
    upper: int | None = Field(
        None, ge=1, description="... and at most so many; null is num_generations - 1."
    )
    weighting: Literal["normal", "linear", "sqrt", "linear_clip"] = Field(
        "normal", description="How problems are drawn by their number of right rollouts."
    )
    sigma: float = Field(1.0, gt=0, description="Width of normal, in rollouts.")
    select: Literal["entropy", "perplexity", "random"] = Field(
        "entropy", description="Which rollout of a problem: the lowest under the current policy."
    )
    start_solve_rate: float = Field(
        0.35, ge=0, le=1, description="Replay begins once a batch is solved so often."
    )
    max_age: int | None = Field(None, ge=1, description="Steps after which a rollout is dropped.")
    max_rollouts: int | None = Field(None, ge=1, description="Most rollouts kept.")
