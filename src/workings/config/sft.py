"""What a supervised run is."""

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
)
from workings.errors import ConfigError


class SFTConfig(Run):
    """Supervised fine-tuning on demonstrations."""

    kind: Literal["sft"] = "sft"
    data: DataConfig
    engine: EngineConfig = EngineConfig()
    reward: RewardConfig = RewardConfig()
    grader: GraderConfig = GraderConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    batch: BatchConfig = BatchConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    batch_size: int = Field(32, ge=1, description="Rows in one optimizer step.")
    loss: Literal["nll", "seq_sum", "dft"] = Field(
        "nll",
        description="nll: mean over the step's tokens; seq_sum: sum per row, mean over rows; dft: "
        "nll weighed by each token's own probability.",
    )
    normalize_constant: float = Field(1.0, gt=0, description="seq_sum divides each row by it.")
    trained_tokens: Literal["completion", "assistant", "all"] = Field(
        "completion",
        description="completion: the last turn; assistant: every turn of the assistant; all: "
        "prompt tokens too.",
    )
    epochs: float = Field(1.0, gt=0, description="Passes over the rows.")
    max_steps: int | None = Field(None, ge=0, description="Overrides epochs.")
    max_seconds: float | None = Field(None, gt=0, description="Stop after so much training time.")

    @model_validator(mode="after")
    def _constant_is_read(self) -> SFTConfig:
        check_normalize_constant(self.loss, self.normalize_constant)
        return self


def check_normalize_constant(loss: str, constant: float) -> None:
    """Raise ConfigError for a constant that the SFT loss does not read."""
    if loss != "seq_sum" and constant != 1:
        raise ConfigError(
            f"normalize_constant={constant:g} has no effect with loss={loss}",
            hint="it divides the sum of a row under loss=seq_sum",
        )
