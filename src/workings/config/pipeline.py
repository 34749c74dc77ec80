"""SFT and GRPO as one run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from workings.config.grpo import GRPOConfig
from workings.config.section import RunSection
from workings.config.sections import DatasetConfig
from workings.config.sft import SFTConfig
from workings.errors import ConfigError


class PipelineConfig(RunSection):
    """SFT, then GRPO from its result; either phase may be skipped."""

    kind: Literal["pipeline"] = "pipeline"
    sft: SFTConfig
    grpo: GRPOConfig
    skip_sft: bool = Field(False, description="Load the adapter or model that SFT saved before.")
    skip_grpo: bool = Field(False, description="End with the result of SFT.")
    test: DatasetConfig | None = Field(
        None, description="Held-out problems, measured before, between and after the phases."
    )
    control: bool = Field(
        False, description="Also continue SFT for the time that GRPO took, and measure that."
    )

    @model_validator(mode="after")
    def _something_to_do(self) -> PipelineConfig:
        if self.skip_sft and self.skip_grpo:
            raise ConfigError("skip_sft and skip_grpo are both set, so there is nothing to do")
        if self.control and (self.skip_sft or self.skip_grpo or self.test is None):
            raise ConfigError(
                "control compares GRPO with SFT of the same length, so it needs both phases and "
                "test"
            )
        return self

    @model_validator(mode="after")
    def _test_can_be_graded(self) -> PipelineConfig:
        if self.test is not None and self.test.is_judged:
            raise ConfigError(
                f"test is {self.test.name or self.test.path}, which has no gold answers",
                hint="evaluate it with workings eval, and let workings judge decide",
            )
        return self

    @model_validator(mode="after")
    def _two_folders(self) -> PipelineConfig:
        if (self.sft.output_dir, self.sft.name) == (self.grpo.output_dir, self.grpo.name):
            raise ConfigError(
                f"sft and grpo would both write to {self.sft.output_dir}/{self.sft.name}",
                hint="give one of them another name, e.g. grpo.name=grpo",
            )
        return self
