"""A few answers to one question."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workings.config.section import RunSection
from workings.config.sections import EngineConfig, ModelConfig, SamplingConfig


class SampleConfig(RunSection):
    """A few answers of one model to one question."""

    kind: Literal["sample"] = "sample"
    seed: int = Field(0, ge=0, description="Every random draw follows from it.")
    num_threads: int = Field(0, ge=0, description="CPU threads for torch; 0 leaves it alone.")
    model: ModelConfig
    template: str = Field("own", description="own is the model's chat template.")
    system_prompt: str | None = Field(
        None, description="Of a chat; null leaves it to the template."
    )
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig()
    num_samples: int = Field(1, ge=1, description="Answers to the question.")
