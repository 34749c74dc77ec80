"""Expert iteration: the settings of `workings expert-iteration`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from workings.config.sections import (
    BatchConfig,
    CheckpointConfig,
    DataConfig,
    EngineConfig,
    EvaluationConfig,
    GraderConfig,
    OptimizerConfig,
    RewardConfig,
    Run,
    SamplingConfig,
)
from workings.config.sft import check_normalize_constant
from workings.errors import ConfigError


class ExpertSamplingConfig(SamplingConfig):
    """As `SamplingConfig`, with at least four tokens, so that no response to train on is empty."""

    min_tokens: int = Field(4, ge=0, description="No end and no stop string before so many.")


class ExpertIterationConfig(Run):
    """Expert iteration: sample, keep what is right, fine-tune on it, repeat."""

    kind: Literal["expert-iteration"] = "expert-iteration"
    data: DataConfig
    engine: EngineConfig = EngineConfig()
    sampling: ExpertSamplingConfig = ExpertSamplingConfig()
    reward: RewardConfig = RewardConfig()
    grader: GraderConfig = GraderConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    batch: BatchConfig = BatchConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    iterations: int = Field(5, ge=1, description="Rounds of sampling and fine-tuning.")
    questions_per_iteration: int = Field(512, ge=1, description="Questions sampled in a round.")
    num_generations: int = Field(4, ge=1, description="Samples per question.")
    keep_above: float = Field(0.0, description="A sample is trained if its reward is above this.")
    max_kept_per_question: int | None = Field(
        None, ge=1, description="Of a question's right samples, the first so many."
    )
    drop_duplicates: bool = Field(True, description="Train equal samples of a question once.")
    epochs: int = Field(1, ge=1, description="Passes over the kept samples of a round.")
    batch_size: int = Field(32, ge=1, description="Rows in one optimizer step.")
    loss: Literal["nll", "seq_sum", "dft"] = Field(
        "nll",
        description="nll: mean over the step's tokens; seq_sum: sum per row, mean over rows; dft: "
        "nll weighed by each token's own probability.",
    )
    normalize_constant: float = Field(1.0, gt=0, description="seq_sum divides each row by it.")

    @property
    def rollout_batch_size(self) -> int:
        """Completions sampled in a round."""
        return self.questions_per_iteration * self.num_generations

    @property
    def rows_per_update(self) -> int:
        """Rows in one optimizer step."""
        return self.batch_size

    @model_validator(mode="after")
    def _nothing_unread(self) -> ExpertIterationConfig:
        check_normalize_constant(self.loss, self.normalize_constant)
        if self.data.max_response_length is not None:
            raise ConfigError(
                f"data.max_response_length={self.data.max_response_length} limits demonstrations "
                "and has no effect here",
                hint="sampling.max_tokens limits what is sampled, and so what is trained",
            )
        if self.evaluation.stop_metric is not None:
            raise ConfigError("evaluation.stop_metric ends SFT early and has no effect here")
        if self.evaluation.every_steps:
            raise ConfigError(
                f"evaluation.every_steps={self.evaluation.every_steps} has no effect here: every "
                "round ends with an evaluation",
                hint="leave it at 0; evaluation.at_end=false leaves the last one out",
            )
        if self.tracking.save_rollouts_every > 1:
            raise ConfigError(
                f"tracking.save_rollouts_every={self.tracking.save_rollouts_every}; a round's "
                "samples are stored (1) or not (0)"
            )
        return self

    @model_validator(mode="after")
    def _samples_differ(self) -> ExpertIterationConfig:
        if self.sampling.temperature == 0 and self.num_generations > 1:
            raise ConfigError(
                f"sampling.temperature=0 makes all num_generations={self.num_generations} samples "
                "of a question the same",
                hint="1.0 is usual",
            )
        return self
