"""SFT and GRPO under the names they had before: the runs of `workings sft` and `workings grpo`."""

from __future__ import annotations

from pathlib import Path

from workings.cli.folders import run_folder
from workings.cli.grpo_runs import run_grpo
from workings.cli.runs import run_sft
from workings.config.grpo import GRPOConfig
from workings.config.sft import SFTConfig
from workings.training.checkpointer import RunPaths
from workings.training.progress import TrainResult


class SFTTrainingPipeline:
    """One supervised run, from its settings to the model in its folder."""

    def __init__(self, config: SFTConfig) -> None:
        self.config = config

    @property
    def paths(self) -> RunPaths:
        """Where the run keeps checkpoints, the best and the final model."""
        return RunPaths(folder=run_folder(self.config), layout=self.config.layout)

    @property
    def final(self) -> Path:
        """The folder of the final model, there once `train` has returned."""
        return self.paths.final

    def train(self, *, resume: str | None = None) -> TrainResult:
        """Run it; `resume` is "latest" or a checkpoint to go on from."""
        return run_sft(self.config, resume=resume)[0]


class GRPOTrainingPipeline:
    """One GRPO run, from its settings to the model in its folder."""

    def __init__(self, config: GRPOConfig) -> None:
        self.config = config

    @property
    def paths(self) -> RunPaths:
        """Where the run keeps checkpoints, the best and the final model."""
        return RunPaths(folder=run_folder(self.config), layout=self.config.layout)

    @property
    def final(self) -> Path:
        """The folder of the final model, there once `train` has returned."""
        return self.paths.final

    def train(self, *, resume: str | None = None) -> TrainResult:
        """Run it; `resume` is "latest" or a checkpoint to go on from."""
        return run_grpo(self.config, resume=resume)[0]
