"""The objective: five axes and the named presets over them. This file is their only home.

A policy objective is a point in ratio x surrogate x reduction x advantage x correction. A preset
names such a point; every axis can be set on top of it. Nothing here imports torch: `objectives`
receives the plain values of a `ResolvedObjective`.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from workings.config.section import Section
from workings.errors import ConfigError, unknown_name

Ratio = Literal["none", "token"]
Surrogate = Literal["logp", "ratio", "ppo_clip"]
Reduction = Literal[
    "seq_mean_token_mean", "token_mean", "seq_mean_token_sum_norm", "seq_mean_token_sum"
]
Advantage = Literal["raw", "group", "group_mean"]
Correction = Literal["none", "tis_token"]

GROUP_ADVANTAGES: frozenset[str] = frozenset({"group", "group_mean"})

# Constants that a surrogate reads; any other constant given with it is refused.
SURROGATE_CONSTANTS: dict[str, tuple[str, ...]] = {
    "logp": (),
    "ratio": (),
    "ppo_clip": ("epsilon", "epsilon_high"),
}

# One row per preset: ratio, surrogate, reduction, advantage, constants (objectives reference, 8).
PRESETS: dict[str, dict[str, Any]] = {
    "grpo": {
        "ratio": "token",
        "surrogate": "ppo_clip",
        "reduction": "seq_mean_token_mean",
        "advantage": "group",
        "epsilon": 0.2,
    },
    "grpo_clip": {
        "ratio": "token",
        "surrogate": "ppo_clip",
        "reduction": "seq_mean_token_mean",
        "advantage": "group",
        "epsilon": 0.2,
    },
    "dr_grpo": {
        "ratio": "token",
        "surrogate": "ppo_clip",
        "reduction": "seq_mean_token_sum_norm",
        "advantage": "group_mean",
        "epsilon": 0.2,
    },
    "reinforce_with_baseline": {
        "ratio": "none",
        "surrogate": "logp",
        "reduction": "seq_mean_token_mean",
        "advantage": "group",
    },
    "no_baseline": {
        "ratio": "none",
        "surrogate": "logp",
        "reduction": "seq_mean_token_mean",
        "advantage": "raw",
    },
}

# Presets of the objectives reference that a later version brings; the message says so.
LATER_PRESETS: frozenset[str] = frozenset(
    {"bnpo", "dapo", "gspo", "luspo", "cispo", "sapo", "vespo", "gmpo", "grpo_no_clip", "rloo"}
    | {"reinforce++", "reinforce++_baseline", "remax", "opo", "maxrl", "pass_k", "gpg", "gdpo"}
    | {"dppo", "luffy", "exgrpo"}
)


class ObjectiveConfig(Section):
    """What GRPO minimises: a preset, and any axis or constant set on top of it."""

    preset: str = Field("grpo", description="A named point on the axes.")
    ratio: Ratio | None = Field(None, description="Level of the importance ratio.")
    surrogate: Surrogate | None = Field(None, description="Per-token loss.")
    reduction: Reduction | None = Field(None, description="How per-token losses become one number.")
    advantage: Advantage | None = Field(None, description="How rewards become advantages.")
    epsilon: float | None = Field(None, ge=0, description="Clip range below (and above if alone).")
    epsilon_high: float | None = Field(None, ge=0, description="Clip range above.")
    correction: Correction = Field(
        "none", description="Weight for what sampler and trainer disagree on (truncation included)."
    )
    correction_cap: float = Field(2.0, gt=0, description="Largest weight of tis_token.")
    advantage_eps: float = Field(
        1e-6, ge=0, description="Added to the group's std, outside the root."
    )
    mask_truncated: bool = Field(False, description="Leave truncated completions out of the loss.")

    @model_validator(mode="after")
    def _refuse_what_cannot_work(self) -> ObjectiveConfig:
        self.resolve()
        return self

    def resolve(self) -> ResolvedObjective:
        """The preset with the axes set on top of it, checked as a whole."""
        if self.preset in LATER_PRESETS:
            raise ConfigError(
                f"objective preset {self.preset!r} is not in this version; "
                f"available: {', '.join(sorted(PRESETS))}"
            )
        if self.preset not in PRESETS:
            raise ConfigError(unknown_name("objective preset", self.preset, PRESETS))
        values = dict(PRESETS[self.preset])
        for axis in ("ratio", "surrogate", "reduction", "advantage", "epsilon", "epsilon_high"):
            given = getattr(self, axis)
            if given is not None:
                values[axis] = given
        self._check_constants(values)
        epsilon = values.get("epsilon", 0.0)
        return ResolvedObjective(
            preset=self.preset,
            ratio=values["ratio"],
            surrogate=values["surrogate"],
            reduction=values["reduction"],
            advantage=values["advantage"],
            epsilon=epsilon,
            epsilon_high=values.get("epsilon_high", epsilon),
            correction=self.correction,
            correction_cap=self.correction_cap,
            advantage_eps=self.advantage_eps,
            mask_truncated=self.mask_truncated,
        )

    def _check_constants(self, values: dict[str, Any]) -> None:
        surrogate = values["surrogate"]
        read = SURROGATE_CONSTANTS[surrogate]
        unread = [
            name
            for name in ("epsilon", "epsilon_high")
            if getattr(self, name) is not None and name not in read
        ]
        if unread:
            raise ConfigError(
                f"objective.{unread[0]} is set but the surrogate {surrogate!r} does not read it",
                hint=f"remove it, or choose a surrogate that does: "
                f"{', '.join(s for s, c in SURROGATE_CONSTANTS.items() if unread[0] in c)}",
            )
        if (values["ratio"] == "none") != (surrogate == "logp"):
            raise ConfigError(
                f"objective.ratio={values['ratio']} does not fit objective.surrogate={surrogate}",
                hint="surrogate=logp goes with ratio=none; ratio and ppo_clip need ratio=token",
            )
        if surrogate == "ppo_clip" and "epsilon" not in values:
            raise ConfigError("objective.surrogate=ppo_clip needs objective.epsilon (0.2 is usual)")


class ResolvedObjective(Section):
    """Every axis of an objective with its value; what a run prints at its start."""

    preset: str
    ratio: Ratio
    surrogate: Surrogate
    reduction: Reduction
    advantage: Advantage
    epsilon: float
    epsilon_high: float
    correction: Correction
    correction_cap: float
    advantage_eps: float
    mask_truncated: bool

    @property
    def needs_group(self) -> bool:
        """True when the advantage compares the samples of one prompt."""
        return self.advantage in GROUP_ADVANTAGES

    def describe(self) -> str:
        """One line with every axis, for the log."""
        clip = (
            f", clip [1-{self.epsilon:g}, 1+{self.epsilon_high:g}]"
            if self.surrogate == "ppo_clip"
            else ""
        )
        return (
            f"objective {self.preset}: ratio {self.ratio}, surrogate {self.surrogate}{clip}, "
            f"reduction {self.reduction}, advantage {self.advantage}, correction {self.correction}"
        )


AXES: dict[str, tuple[str, ...]] = {
    "ratio": get_args(Ratio),
    "surrogate": get_args(Surrogate),
    "reduction": get_args(Reduction),
    "advantage": get_args(Advantage),
    "correction": get_args(Correction),
}
