"""Learning from preference pairs: the settings of `workings dpo`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from workings.config.section import Section
from workings.config.sections import BatchConfig, CheckpointConfig, DataConfig, OptimizerConfig, Run
from workings.errors import ConfigError, unknown_name

SFT_TERM = "sft"
PREFERENCE_LOSSES = (
    "sigmoid",
    "cdpo",
    "robust",
    "hinge",
    "ipo",
    "sigmoid_norm",
    "exo_pair",
    "nca_pair",
    "bco_pair",
    "sppo_hard",
    "apo_zero",
    "apo_down",
    "aot",
    "aot_unpaired",
    "discopop",
    SFT_TERM,
)
SMOOTHED_LOSSES = ("cdpo", "robust", "exo_pair", "aot", "aot_unpaired")
SORTED_LOSSES = ("aot", "aot_unpaired")


class PairEvaluationConfig(Section):
    """Evaluation inside training, on validation pairs."""

    every_steps: int = Field(0, ge=0, description="0 is off.")
    at_start: bool = Field(True, description="Before the first step.")
    at_end: bool = Field(True, description="After the last step.")
    limit: int | None = Field(None, ge=1, description="A seeded subset of so many pairs.")
    best: Literal["accuracy", "loss"] = Field(
        "accuracy",
        description="What makes a model the best: most pairs right by the implicit reward, or the "
        "lowest loss.",
    )


class DPOConfig(Run):
    """Direct preference optimization and its relatives, on pairs of responses."""

    kind: Literal["dpo"] = "dpo"
    data: DataConfig
    optimizer: OptimizerConfig = OptimizerConfig()
    batch: BatchConfig = BatchConfig()
    evaluation: PairEvaluationConfig = PairEvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    loss: tuple[str, ...] = Field(
        ("sigmoid",), min_length=1, description=f"One or several of {', '.join(PREFERENCE_LOSSES)}."
    )
    loss_weights: tuple[float, ...] = Field(
        (), description="One factor for each of several losses; empty adds them up."
    )
    beta: float = Field(0.1, gt=0, description="How strongly log-ratios to the reference count.")
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="Share of pairs believed to be the wrong way round."
    )
    ipo_sum: bool = Field(False, description="ipo on summed log-ratios instead of means per token.")
    rpo_alpha: float | None = Field(
        None, gt=0, description="Weight of an sft term beside the loss (RPO)."
    )
    ld_alpha: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Weight of tokens beyond the pair's shorter response (LD-DPO).",
    )
    reference: Literal["precomputed", "live"] = Field(
        "precomputed",
        description="precomputed: scored once before the first step and kept in the run's folder; "
        "live: in every step, by a frozen copy, or with a new adapter by switching it off.",
    )
    batch_size: int = Field(64, ge=1, description="Pairs in one optimizer step.")
    epochs: float = Field(1.0, gt=0, description="Passes over the pairs.")
    max_steps: int | None = Field(None, ge=0, description="Overrides epochs.")
    max_seconds: float | None = Field(None, gt=0, description="Stop after so much training time.")
    validation_pairs: int | None = Field(
        None, ge=1, description="So many training pairs held out when data.validation is unset."
    )

    @property
    def terms(self) -> dict[str, float]:
        """Every term of the loss and its weight, the sft term of `rpo_alpha` with them."""
        weights = self.loss_weights or (1.0,) * len(self.loss)
        terms = dict(zip(self.loss, weights, strict=True))
        return terms if self.rpo_alpha is None else {**terms, SFT_TERM: self.rpo_alpha}

    @field_validator("loss", mode="before")
    @classmethod
    def _one_name_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _losses_are_known(self) -> DPOConfig:
        for name in self.loss:
            if name not in PREFERENCE_LOSSES:
                raise ConfigError(unknown_name("loss", name, PREFERENCE_LOSSES))
            if self.loss.count(name) > 1:
                raise ConfigError(f"loss names {name} twice", hint="give it one weight instead")
        if self.loss_weights and len(self.loss_weights) != len(self.loss):
            raise ConfigError(
                f"loss_weights has {len(self.loss_weights)} numbers for {len(self.loss)} losses "
                f"({', '.join(self.loss)}); expected one for each"
            )
        if self.loss == (SFT_TERM,):
            raise ConfigError(
                "loss=sft alone never looks at the rejected responses",
                hint="`workings sft` imitates responses; here sft goes with another loss",
            )
        if SFT_TERM in self.loss and self.rpo_alpha is not None:
            raise ConfigError(
                f"loss names sft and rpo_alpha={self.rpo_alpha:g} sets its weight as well",
                hint="keep one of them",
            )
        return self

    @model_validator(mode="after")
    def _constants_are_read(self) -> DPOConfig:
        e, losses = self.label_smoothing, self.loss
        if e and not set(losses) & set(SMOOTHED_LOSSES):
            raise ConfigError(
                f"label_smoothing={e:g} has no effect with loss={', '.join(losses)}",
                hint="loss=cdpo is sigmoid with label smoothing; robust, exo_pair, aot and "
                "aot_unpaired read it too",
            )
        if "robust" in losses and e >= 0.5:
            raise ConfigError(
                f"label_smoothing={e:g} with loss=robust, which divides by 1 - 2 label_smoothing; "
                "expected less than 0.5",
                hint="at 0.5 labels say nothing; above it, swap chosen and rejected",
            )
        if "exo_pair" in losses and e == 0:
            raise ConfigError(
                "loss=exo_pair takes the logarithm of label_smoothing, which is 0",
                hint="0.001 is usual",
            )
        if self.ipo_sum and "ipo" not in losses:
            raise ConfigError(
                f"ipo_sum has no effect with loss={', '.join(losses)}", hint="set loss=ipo"
            )
        if self.data.bad_gold != "error":
            raise ConfigError("data.bad_gold has no effect here: pairs have no gold answers")
        return self

    @model_validator(mode="after")
    def _batches_hold_pairs(self) -> DPOConfig:
        if self.batch_size < 2 and set(self.loss) & set(SORTED_LOSSES):
            raise ConfigError(
                f"batch_size={self.batch_size} with loss={', '.join(self.loss)}, which sorts the "
                "pairs of a step",
                hint="set batch_size to 2 or more; larger batches say more",
            )
        if self.batch.microbatch_rows == 1:
            raise ConfigError(
                "batch.microbatch_rows=1, but the two responses of a pair stay together",
                hint="set it to 2 or more; it counts responses",
            )
        return self

    @model_validator(mode="after")
    def _one_validation_split(self) -> DPOConfig:
        if self.validation_pairs is None:
            return self
        for name, value in (
            ("data.validation", self.data.validation),
            ("data.validation_fraction", self.data.validation_fraction or None),
        ):
            if value is not None:
                raise ConfigError(
                    f"validation_pairs={self.validation_pairs} and {name} are both set",
                    hint="keep one of them",
                )
        return self
