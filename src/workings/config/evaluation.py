"""What an evaluation is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workings.config.section import Section
from workings.config.sections import (
    DatasetConfig,
    EngineConfig,
    GraderConfig,
    GreedySamplingConfig,
    RewardConfig,
    Run,
)


class HeldOutConfig(Section):
    """Which rows of its data set a training run validates on."""

    fraction: float = Field(
        0.0, ge=0, lt=1, description="Share of the rows that the run holds out; 0 takes them all."
    )
    rows: Literal["problems", "demonstrations"] = Field(
        "problems", description="What the rows are read as: demonstrations by an SFT run."
    )
    limit: int | None = Field(None, ge=1, description="The run's subset of so many of them.")
    prompt_length_percentile: float | None = Field(
        None, gt=0, le=100, description="The run's limit on prompts, as a percentile of lengths."
    )
    reward_max_tokens: int | None = Field(
        None, ge=1, description="The run's sampling.max_tokens, which its length terms count from."
    )


class EvalConfig(Run):
    """Evaluation of one model on one or more data sets."""

    kind: Literal["eval"] = "eval"
    datasets: tuple[DatasetConfig, ...] = Field(
        min_length=1, description="Names of the group benchmark, or data sets in full."
    )
    template: str = Field("r1_zero", description="Name of a prompt template, or a file.")
    system_prompt: str | None = Field(
        None, description="Of a chat; null leaves it to template and data set."
    )
    max_prompt_length: int | None = Field(None, ge=1, description="In tokens.")
    overlong: Literal["error", "drop", "truncate"] = Field(
        "error", description="What becomes of a prompt over the limit; it is counted."
    )
    bad_gold: Literal["error", "drop"] = Field(
        "error", description="What becomes of a row whose answer cannot be graded against."
    )
    engine: EngineConfig = EngineConfig()
    sampling: GreedySamplingConfig = GreedySamplingConfig()
    num_samples: int = Field(1, ge=1, description="Completions of each problem.")
    reward: RewardConfig = RewardConfig()
    grader: GraderConfig = GraderConfig()
    held_out: HeldOutConfig | None = Field(
        None, description="Only what a training run validates on; -c RUN fills it in."
    )
