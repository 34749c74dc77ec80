"""The kinds of run and the type of each: the one table that commands, files and docs read."""

from __future__ import annotations

from workings.config.run import (
    EvalConfig,
    GRPOConfig,
    PipelineConfig,
    SampleConfig,
    SFTConfig,
)

AnyRun = SFTConfig | GRPOConfig | PipelineConfig | EvalConfig | SampleConfig
RUN_TYPES: dict[str, type[AnyRun]] = {
    "sft": SFTConfig,
    "grpo": GRPOConfig,
    "pipeline": PipelineConfig,
    "eval": EvalConfig,
    "sample": SampleConfig,
}

TrainingRun = SFTConfig | GRPOConfig
"""Runs that change a model, with data, batches, evaluation and checkpoints."""
SamplingRun = GRPOConfig
"""Runs that train on what their own model samples."""
