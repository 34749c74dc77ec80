"""What an evaluation is."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from workings.config.section import Section
from workings.config.sections import (
    DatasetConfig,
    EngineConfig,
    GraderConfig,
    GreedySamplingConfig,
    RewardConfig,
    Run,
)
from workings.errors import ConfigError

ALL_CARDS = "all"
CLASSIC_FOLDER = "eval_results"


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
    limit: int | None = Field(
        None, ge=1, description="At most so many problems of each data set, a seeded subset."
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
    num_samples: int | None = Field(
        None, ge=1, description="Completions of each problem; null is the data set's own rule."
    )
    devices: tuple[str, ...] = Field(
        (),
        description="A process on each of them samples a share: numbers of cards, cuda:1, cpu, or "
        "all cards. Empty samples in this process, on model.device.",
    )
    part_rows: int | None = Field(
        None,
        ge=1,
        description="Rows that are sampled and stored together, and lost when a run is killed; "
        "null is 128 on a CPU and 1024 on a card, and never more than a process's share.",
    )
    artefact: Literal["none", "eval_runs", "here"] = Field(
        "none",
        description="One JSON file of the whole evaluation besides: in "
        "OUTPUT_DIR/eval_runs/NAME/step_N, or in OUTPUT_DIR itself.",
    )
    reward: RewardConfig = RewardConfig()
    grader: GraderConfig = GraderConfig()
    held_out: HeldOutConfig | None = Field(
        None, description="Only what a training run validates on; -c RUN fills it in."
    )

    @model_validator(mode="before")
    @classmethod
    def _limit_is_that_of_each_data_set(cls, values: Any) -> Any:
        """Put `limit` where rows are taken: into the data sets, or into what a run held out."""
        limit = values.get("limit") if isinstance(values, dict) else None
        if not isinstance(limit, int) or limit < 1:
            return values
        if values.get("held_out") is not None:
            return {**values, "held_out": _limited(values["held_out"], limit)}
        datasets = values.get("datasets")
        if not isinstance(datasets, (list, tuple)):
            return values
        return {**values, "datasets": [_limited(one, limit) for one in datasets]}

    @property
    def most_samples(self) -> int:
        """The most completions that a problem of its data sets may get."""
        return self.num_samples or max(dataset.num_samples for dataset in self.datasets)

    @field_validator("devices", mode="before")
    @classmethod
    def _numbers_are_cards(cls, value: Any) -> Any:
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            value = [value]
        if not isinstance(value, (list, tuple)):
            return value
        return [
            f"cuda:{one}" if isinstance(one, int) or str(one).isdecimal() else one for one in value
        ]

    @model_validator(mode="before")
    @classmethod
    def _classic_has_its_own_folder(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("layout") == "classic":
            return {"output_dir": CLASSIC_FOLDER, **values}
        return values

    @model_validator(mode="after")
    def _devices_can_be_used(self) -> EvalConfig:
        if not self.devices:
            return self
        for name in self.devices:
            kind, _, number = name.partition(":")
            if not (name == ALL_CARDS or kind in ("cpu", "cuda")) or (number and kind == "cpu"):
                raise ConfigError(
                    f"devices={list(self.devices)}: {name!r} is no device",
                    hint="devices=[0,1] or [cuda:0,cuda:1], devices=all, or devices=[cpu,cpu]",
                )
        if ALL_CARDS in self.devices and len(self.devices) > 1:
            raise ConfigError(f"devices={list(self.devices)}: all stands alone")
        cards = [name for name in self.devices if name.startswith("cuda")]
        if len(set(cards)) < len(cards):
            raise ConfigError(f"devices={list(self.devices)} names a card twice")
        if self.engine.name == "server" or self.engine.own_process:
            raise ConfigError(
                f"devices={list(self.devices)} starts a process on each, and engine.name="
                f"{self.engine.name} with own_process={self.engine.own_process} samples elsewhere",
                hint="leave one of them out",
            )
        return self


def _limited(section: Any, limit: int) -> Any:
    """The section with a limit of its own, the smaller of the two."""
    if isinstance(section, Section):
        own = getattr(section, "limit", None)
        return section.model_copy(update={"limit": min(own or limit, limit)})
    if not isinstance(section, dict):
        return section
    own = section.get("limit")
    return {**section, "limit": min(own, limit) if isinstance(own, int) else limit}
