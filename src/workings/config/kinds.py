"""The kinds of run and the type of each: the one table that commands, files and docs read."""

from __future__ import annotations

from workings.config.dpo import DPOConfig
from workings.config.evaluation import EvalConfig
from workings.config.expert_iteration import ExpertIterationConfig
from workings.config.grpo import GRPOConfig
from workings.config.pipeline import PipelineConfig
from workings.config.sample import SampleConfig
from workings.config.serve import ServeConfig
from workings.config.sft import SFTConfig

AnyRun = (
    SFTConfig
    | DPOConfig
    | GRPOConfig
    | ExpertIterationConfig
    | PipelineConfig
    | EvalConfig
    | SampleConfig
    | ServeConfig
)
RUN_TYPES: dict[str, type[AnyRun]] = {
    "sft": SFTConfig,
    "dpo": DPOConfig,
    "grpo": GRPOConfig,
    "expert-iteration": ExpertIterationConfig,
    "pipeline": PipelineConfig,
    "eval": EvalConfig,
    "sample": SampleConfig,
    "serve": ServeConfig,
}

TrainingRun = SFTConfig | GRPOConfig | ExpertIterationConfig
"""Runs that change a model and measure it by grading what it samples."""
SamplingRun = GRPOConfig | ExpertIterationConfig
"""Runs that train on what their own model samples."""
RecordedRun = TrainingRun | DPOConfig | EvalConfig
"""Runs that keep their settings and metrics in a folder."""
