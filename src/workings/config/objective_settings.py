"""The objective of a run: a preset, what is set on top of it, and whether that makes sense."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from workings.config.objective import (
    AXES,
    CONSTANTS,
    CORRECTION_BOUNDS,
    GROUP_ADVANTAGES,
    NO_POOL,
    PRESETS,
    SURROGATE_CONSTANTS,
    SURROGATE_RATIOS,
    Advantage,
    Correction,
    KLEstimator,
    Ratio,
    Reduction,
    Shaping,
    Surrogate,
)
from workings.config.section import Section
from workings.errors import ConfigError, unknown_name

Pair = tuple[float, float]
VESPO_CORRECTIONS = ("none", "tis_token", "icepop")
"""Those with a weight of its own for every token."""
GEOMETRIC = ("sequence", "sequence_token")
"""Ratio levels that are a mean over the row, and so stay near 1."""


class ObjectiveConfig(Section):
    """What GRPO minimises: a preset, and any axis or constant set on top of it.

    null leaves a setting to the preset;
    docs/reference/objectives.md has every preset as a row, with its formula and source.
    """

    preset: str = Field("grpo", description="A named point on the axes.")
    ratio: Ratio | None = Field(None, description="Level of the importance ratio.")
    surrogate: Surrogate | None = Field(None, description="Per-token loss.")
    reduction: Reduction | None = Field(None, description="How per-token losses become one number.")
    advantage: Advantage | None = Field(None, description="How rewards become advantages.")
    correction: Correction | None = Field(
        None, description="Weight for what sampler and trainer disagree on (truncation included)."
    )

    epsilon: float | None = Field(None, ge=0, description="Clip range below (and above if alone).")
    epsilon_high: float | None = Field(None, ge=0, description="Clip range above.")
    dual_clip: float | None = Field(
        None, gt=1, description="Largest ratio where the advantage is negative; TRL's delta."
    )
    cap_low: float | None = Field(None, ge=0, description="CISPO: least weight of a token.")
    cap_high: float | None = Field(None, gt=0, description="CISPO: largest weight of a token.")
    tau_positive: float | None = Field(None, gt=0, description="SAPO: gate for good samples.")
    tau_negative: float | None = Field(None, gt=0, description="SAPO: gate for bad samples.")
    vespo_positive: Pair | None = Field(None, description="VESPO: (k, lambda) for good samples.")
    vespo_negative: Pair | None = Field(None, description="VESPO: (k, lambda) for bad samples.")
    log_range: float | None = Field(None, gt=0, description="GMPO: clip range of a log-ratio.")
    tv_low: float | None = Field(None, gt=0, description="DPPO: a probability may fall so much.")
    tv_high: float | None = Field(None, gt=0, description="DPPO: a probability may rise so much.")
    ratio_cap: float | None = Field(None, gt=0, description="DPPO: largest weight of a token.")
    log_ratio_penalty: float | None = Field(
        None, ge=0, description="DPPO: factor of the squared log-ratio."
    )
    cov_share: float | None = Field(
        None, gt=0, lt=1, description="clip_cov, kl_cov: share of the step's tokens chosen."
    )
    cov_low: float | None = Field(None, description="clip_cov: least covariance of a candidate.")
    cov_high: float | None = Field(None, description="clip_cov: largest covariance of one.")
    kl_cov_coef: float | None = Field(None, ge=0, description="kl_cov: factor of the penalty.")
    dro_beta: float | None = Field(None, ge=0, description="DRO: factor of the squared log-ratio.")

    advantage_eps: float | None = Field(
        None, ge=0, description="Added to a standard deviation, outside the root."
    )
    gpg_norm: float | None = Field(None, gt=0, description="GPG: what its advantage is divided by.")
    discount: float | None = Field(
        None, gt=0, le=1, description="reinforce_pp: factor per token back from the reward."
    )
    rae_decay: float | None = Field(
        None, ge=0, lt=1, description="rae: weight of the past in the average of a role."
    )

    correction_cap: float | None = Field(None, gt=0, description="Largest weight, or kept ratio.")
    correction_low: float | None = Field(None, ge=0, description="Least ratio that is kept.")
    correction_high: float | None = Field(None, gt=0, description="Largest ratio that is kept.")
    correction_threshold: float | None = Field(
        None, ge=0, description="k3_reject, off_policy_seq_mask: largest mean gap kept, in nats."
    )
    correction_renormalise: bool | None = Field(
        None, description="Dropped rows leave the denominators too."
    )

    beta: float | None = Field(None, ge=0, description="Factor of the KL to the reference; 0 none.")
    kl_estimator: KLEstimator | None = Field(None, description="How that KL is estimated.")
    kl_in: Literal["loss", "reward"] | None = Field(
        None, description="Added to the loss per token, or taken from the reward."
    )
    kl_target: float | None = Field(
        None, gt=0, description="KL that beta is steered to; null keeps beta."
    )
    kl_horizon: int | None = Field(None, ge=1, description="Rows over which beta is steered.")

    entropy_coef: float | None = Field(None, ge=0, description="Factor of the entropy bonus.")
    entropy_target: float | None = Field(
        None, gt=0, description="Entropy in nats that entropy_coef is steered to; null keeps it."
    )
    entropy_coef_step: float | None = Field(None, gt=0, description="Its change per update.")
    entropy_coef_min: float | None = Field(None, ge=0, description="Its least value.")
    entropy_coef_max: float | None = Field(None, ge=0, description="Its largest value.")
    top_entropy_quantile: float | None = Field(
        None, gt=0, le=1, description="Train only this share of tokens, those of highest entropy."
    )

    mask_truncated: bool | None = Field(
        None, description="Leave truncated completions out of the loss."
    )
    count_masked_rows: bool | None = Field(
        None, description="Rows without a trained token stay in the denominators (as in TRL)."
    )
    zero_truncated_advantage: bool | None = Field(
        None, description="Advantage 0 for truncated completions; they stay in the denominators."
    )
    overlong_share: float | None = Field(
        None, ge=0, lt=1, description="Last share of the limit in which length costs reward (DAPO)."
    )
    dynamic_sampling: Literal["none", "filter", "replace"] | None = Field(
        None,
        description="Groups of equal rewards: keep; draw others for them; or repeat informative "
        "ones in their place.",
    )
    max_gen_batches: int | None = Field(
        None, ge=1, description="filter: most rollout batches drawn for one step."
    )
    when_short: Literal["error", "proceed"] | None = Field(
        None, description="filter: what happens if those do not give enough groups."
    )

    num_off: int | None = Field(
        None, ge=-1, description="Rows of a group guided by a teacher's trace; -1 is every row."
    )
    replay: bool | None = Field(None, description="Replay own past successes (ExGRPO).")
    off_policy_loss: bool | None = Field(
        None, description="False leaves teacher tokens out of the policy loss."
    )
    off_shaping: Shaping | None = Field(
        None, description="f(p) of off-policy tokens; ratio is p / (p + gamma)."
    )
    gamma: float | None = Field(None, gt=0, description="Of shaping ratio: where its slope peaks.")
    off_shaping_weight: float | None = Field(None, description="Of shapings logp and p_logp.")
    off_shaping_power: float | None = Field(None, gt=0, description="Of shaping pow.")
    off_clip_max: float | None = Field(None, description="Largest f, without gradient beyond.")
    off_clip_min: float | None = Field(None, description="Least f, without gradient beyond.")
    on_shaping: Shaping | None = Field(None, description="The same on own tokens' ratio.")
    prob_clip_max: float | None = Field(
        None, gt=0, le=1, description="Tokens likelier than this leave loss and mask."
    )
    use_teacher_probs: bool | None = Field(
        None, description="Divide by recorded teacher probabilities; these are then not shaped."
    )
    shape_teacher_ratio: bool | None = Field(
        None, description="Shape the ratio to teacher probabilities all the same."
    )
    advantage_pool: Literal["union", "on_policy"] | None = Field(
        None, description="Whose rewards make the mean: all rows of a group, or the sampled ones."
    )
    off_advantage_scale: float | None = Field(None, description="Factor on teacher tokens.")
    on_advantage_scale: float | None = Field(None, description="Factor on own tokens.")
    sft_loss_coef: float | None = Field(
        None, ge=0, description="Factor of the likelihood term on teacher tokens."
    )
    luffy_scale: bool | None = Field(
        None, description="Policy term not divided by rows per rank, as in LUFFY's own code."
    )

    @model_validator(mode="after")
    def _refuse_what_cannot_work(self) -> ObjectiveConfig:
        self.resolve()
        return self

    def resolve(self) -> ResolvedObjective:
        """The preset with what is set on top of it, checked as a whole."""
        if self.preset not in PRESETS:
            raise ConfigError(unknown_name("objective preset", self.preset, PRESETS))
        given = {
            name: value
            for name, value in self
            if name != "preset" and name in self.model_fields_set and value is not None
        }
        values = {
            **{name: constant.default for name, constant in CONSTANTS.items()},
            **PRESETS[self.preset].values,
            **given,
        }
        _check_levels(values)
        _check_unread(values, given)
        _drop_unread(values, given)
        if values["kl_in"] == "reward":
            _only_k1(values, given)
        _check_teacher_ratio(values, given)
        if values["epsilon_high"] is None:
            values["epsilon_high"] = values["epsilon"]
        for name, bound in CORRECTION_BOUNDS.get(values["correction"], {}).items():
            if values[name] is None:
                values[name] = bound
        _check_values(values)
        return ResolvedObjective(
            preset=self.preset, clip_inherited=_inherits_clip(self.preset, values, given), **values
        )


class ResolvedObjective(Section):
    """Every axis and constant of an objective with its value; what a run prints at its start."""

    preset: str
    ratio: Ratio
    surrogate: Surrogate
    reduction: Reduction
    advantage: Advantage
    correction: Correction
    epsilon: float | None
    epsilon_high: float | None
    dual_clip: float | None
    cap_low: float | None
    cap_high: float | None
    tau_positive: float
    tau_negative: float
    vespo_positive: Pair
    vespo_negative: Pair
    log_range: float
    tv_low: float
    tv_high: float
    ratio_cap: float
    log_ratio_penalty: float
    cov_share: float
    cov_low: float
    cov_high: float
    kl_cov_coef: float
    dro_beta: float
    advantage_eps: float
    gpg_norm: float
    discount: float
    rae_decay: float
    correction_cap: float | None
    correction_low: float | None
    correction_high: float | None
    correction_threshold: float | None
    correction_renormalise: bool
    beta: float
    kl_estimator: KLEstimator
    kl_in: Literal["loss", "reward"]
    kl_target: float | None
    kl_horizon: int
    entropy_coef: float
    entropy_target: float | None
    entropy_coef_step: float
    entropy_coef_min: float
    entropy_coef_max: float
    top_entropy_quantile: float
    mask_truncated: bool
    count_masked_rows: bool
    zero_truncated_advantage: bool
    overlong_share: float
    dynamic_sampling: Literal["none", "filter", "replace"]
    max_gen_batches: int
    when_short: Literal["error", "proceed"]
    num_off: int
    replay: bool
    off_policy_loss: bool
    off_shaping: Shaping
    gamma: float
    off_shaping_weight: float
    off_shaping_power: float
    off_clip_max: float | None
    off_clip_min: float | None
    on_shaping: Shaping
    prob_clip_max: float | None
    use_teacher_probs: bool
    shape_teacher_ratio: bool
    advantage_pool: Literal["union", "on_policy"]
    off_advantage_scale: float
    on_advantage_scale: float
    sft_loss_coef: float
    luffy_scale: bool
    clip_inherited: bool

    @property
    def needs_group(self) -> bool:
        """True when the advantage compares the samples of one prompt."""
        return self.advantage in GROUP_ADVANTAGES

    @property
    def needs_reference(self) -> bool:
        """True when a term compares the policy with the model it started from."""
        return self.beta > 0

    @property
    def chooses_by_covariance(self) -> bool:
        """True when tokens are chosen by their covariance over the whole step."""
        return self.surrogate in ("clip_cov", "kl_cov")

    @property
    def needs_statistics(self) -> bool:
        """True when a step's log-probabilities or entropies must be known before its loss."""
        return (
            self.chooses_by_covariance
            or self.top_entropy_quantile < 1
            or self.entropy_target is not None
            or self.correction_renormalise
        )

    @property
    def has_off_policy_rows(self) -> bool:
        """True when groups hold rows that the policy did not sample."""
        return self.num_off != 0 or self.replay

    @property
    def idle_without_advantage(self) -> bool:
        """True when a row with the advantage 0 cannot move the weights, nor a denominator."""
        return not (
            self.entropy_coef > 0
            or (self.beta > 0 and self.kl_in == "loss")
            or self.sft_loss_coef > 0
            or self.surrogate in ("kl_cov", "dro")
            or self.log_ratio_penalty > 0
            or self.reduction == "local_token_mean"
            or self.needs_statistics
        )

    @property
    def surrogate_constants(self) -> dict[str, Any]:
        """The constants of the surrogate's function, by keyword."""
        return {name: getattr(self, name) for name in SURROGATE_CONSTANTS[self.surrogate]}

    def describe(self) -> str:
        """One line with every axis and every constant that something reads, for the log."""
        values = dict(self)
        axes = ", ".join(f"{axis} {values[axis]}" for axis in AXES)
        constants = ", ".join(
            f"{name}={_written(values[name])}"
            for name, constant in CONSTANTS.items()
            if name not in AXES
            and constant.is_read(values)
            and values[name] is not None
            and (constant.readers or values[name] != constant.default)
        )
        return f"objective {self.preset}: {axes}" + (f"; {constants}" if constants else "")

    def before_replay(self) -> ResolvedObjective:
        """The same with nothing replayed, and a plain ratio clipped: ExGRPO until it starts."""
        update: dict[str, Any] = {"replay": False}
        if self.surrogate == "ratio":
            update |= {"surrogate": "ppo_clip", "epsilon": 0.2, "epsilon_high": 0.2}
        return self.model_copy(update=update)

    def warnings(self) -> list[str]:
        """What a careful reader of the settings would remark on."""
        found = []
        if self.clip_inherited and self.ratio in GEOMETRIC:
            found.append(
                f"objective.ratio={self.ratio} with epsilon={_written(self.epsilon)} of preset "
                f"{self.preset}: sequence ratios stay within about 1e-3 of 1, so this clip does "
                "nothing; gspo takes epsilon=3e-4 epsilon_high=4e-4"
            )
        elif self.clip_inherited:
            found.append(
                f"objective.ratio={self.ratio} with epsilon={_written(self.epsilon)} of preset "
                f"{self.preset}: that clip is for ratios of whole sequences and clips nearly every "
                "token; epsilon=0.2 is usual"
            )
        if self.ratio == "sequence_product" and self.surrogate != "vespo":
            found.append(
                "objective.ratio=sequence_product multiplies the ratios of all tokens, so that "
                "long answers leave the clip range by their length alone"
            )
        if self.correction.startswith("seq_product"):
            found.append(
                f"objective.correction={self.correction} multiplies the ratios of all tokens, so "
                "that it cuts long answers by their length alone; geometric_mask does not"
            )
        if self.reduction == "local_token_mean":
            found.append("objective.reduction=local_token_mean depends on the micro-batch size")
        if self.beta > 0 and self.kl_in == "loss" and self.kl_estimator == "k1":
            found.append("objective.kl_estimator=k1 in the loss has an expected gradient of 0")
        return found


def _inherits_clip(preset: str, values: dict[str, Any], given: dict[str, Any]) -> bool:
    """True where the clip range is the preset's, and the preset chose it for another level."""
    was_sequence = PRESETS[preset].values["ratio"] in GEOMETRIC
    is_sequence = values["ratio"] in GEOMETRIC
    return values["epsilon"] is not None and "epsilon" not in given and was_sequence != is_sequence


def _check_levels(values: dict[str, Any]) -> None:
    surrogate, ratio = values["surrogate"], values["ratio"]
    levels = SURROGATE_RATIOS[surrogate]
    if ratio not in levels:
        raise ConfigError(
            f"objective.ratio={ratio} does not fit objective.surrogate={surrogate}",
            hint=f"surrogate={surrogate} goes with ratio={' or '.join(levels)}",
        )


def _drop_unread(values: dict[str, Any], given: dict[str, Any]) -> None:
    """Constants of a preset that an axis set on top of it made idle go back to their defaults."""
    unread = [name for name, constant in CONSTANTS.items() if not constant.is_read(values)]
    for name in unread:
        if name not in given:
            values[name] = CONSTANTS[name].default


def _check_unread(values: dict[str, Any], given: dict[str, Any]) -> None:
    """Raise for a constant that was set and does nothing; one set to its default is let pass."""
    for name in given:
        constant = CONSTANTS.get(name)
        if constant is None or constant.is_read(values):
            continue
        (reader, choices), *_ = constant.readers
        if reader == "surrogate":
            raise ConfigError(
                f"objective.{name} is set but the surrogate {values['surrogate']!r} does not read "
                "it",
                hint="remove it, or choose a surrogate that does: " + ", ".join(choices),
            )
        if given[name] != constant.default:
            raise ConfigError(
                f"objective.{name}={_written(given[name])} is set but nothing reads it",
                hint="remove it, or set " + ", or ".join(constant.needs(values)),
            )


def _check_teacher_ratio(values: dict[str, Any], given: dict[str, Any]) -> None:
    """Raise for a shaping that recorded teacher probabilities would switch off unseen."""
    shapings = ("off_shaping", "gamma", "off_shaping_weight", "off_shaping_power")
    shaped = [name for name in shapings if name in given]
    unshaped = values["use_teacher_probs"] and not values["shape_teacher_ratio"]
    if shaped and unshaped and values["on_shaping"] == "no_reshape":
        raise ConfigError(
            f"objective.{shaped[0]} is set, but the ratio to recorded teacher probabilities is "
            "not shaped",
            hint="set objective.shape_teacher_ratio=true to shape it all the same, or remove it",
        )


def _only_k1(values: dict[str, Any], given: dict[str, Any]) -> None:
    """A KL in the reward is a number without gradient, and the estimate without bias is k1."""
    if given.get("kl_estimator", "k1") != "k1":
        raise ConfigError(
            f"objective.kl_estimator={given['kl_estimator']} is for a KL in the loss; in the "
            "reward it is k1",
            hint="remove it, or set objective.kl_in=loss",
        )
    values["kl_estimator"] = "k1"


def _check_values(values: dict[str, Any]) -> None:
    surrogate = values["surrogate"]
    if "epsilon" in SURROGATE_CONSTANTS[surrogate] and values["epsilon"] is None:
        raise ConfigError(f"objective.surrogate={surrogate} needs objective.epsilon (0.2 is usual)")
    dual = values["dual_clip"]
    if dual is not None and dual < 1 + values["epsilon_high"]:
        raise ConfigError(
            f"objective.dual_clip={dual:g} is inside the clip range, which ends at "
            f"1 + epsilon_high = {1 + values['epsilon_high']:g}; 3.0 is usual"
        )
    if values["correction"] == "off_policy_seq_mask" and values["correction_threshold"] is None:
        raise ConfigError(
            "objective.correction=off_policy_seq_mask needs objective.correction_threshold, in "
            "nats per token"
        )
    for low, high in (
        ("correction_low", "correction_high"),
        ("cov_low", "cov_high"),
        ("entropy_coef_min", "entropy_coef_max"),
        ("off_clip_min", "off_clip_max"),
        ("cap_low", "cap_high"),
    ):
        if values[low] is not None and values[high] is not None and values[low] > values[high]:
            raise ConfigError(
                f"objective.{low}={_written(values[low])} is above "
                f"objective.{high}={_written(values[high])}"
            )
    if values["mask_truncated"] and values["zero_truncated_advantage"]:
        raise ConfigError(
            "objective.mask_truncated takes truncated rows out of the loss, so that "
            "zero_truncated_advantage has nothing left to do; keep one of them"
        )
    if values["on_shaping"] != "no_reshape" and (
        surrogate not in ("ratio", "ppo_clip") or values["ratio"] != "token" or dual is not None
    ):
        raise ConfigError(
            f"objective.on_shaping={values['on_shaping']} shapes the token ratio of surrogate "
            f"ratio or ppo_clip; with objective.surrogate={surrogate}, ratio={values['ratio']}, "
            f"dual_clip={_written(dual)} there is none",
            hint="set objective.surrogate=ratio objective.ratio=token, or "
            "objective.on_shaping=no_reshape",
        )
    if values["advantage_pool"] == "on_policy" and values["advantage"] in NO_POOL:
        raise ConfigError(
            f"objective.advantage={values['advantage']} has no mean that the sampled rows alone "
            "could give",
            hint="set objective.advantage_pool=union, or objective.advantage=group_mean",
        )
    if values["replay"] and values["num_off"]:
        raise ConfigError(
            f"objective.replay and objective.num_off={values['num_off']} both put off-policy rows "
            "into groups; keep one of them"
        )
    if values["luffy_scale"] and values["reduction"] != "seq_mean_token_sum_norm":
        raise ConfigError(
            "objective.luffy_scale goes with objective.reduction=seq_mean_token_sum_norm"
        )
    _check_corrections(values)
    if values["advantage"] == "gdpo" and values["beta"] > 0 and values["kl_in"] == "reward":
        raise ConfigError(
            "objective.advantage=gdpo puts each component of the reward on its own scale, and a KL "
            "taken from their sum (objective.kl_in=reward) has no place there",
            hint="set objective.kl_in=loss",
        )


def _check_corrections(values: dict[str, Any]) -> None:
    """Raise for corrections that another setting would count wrongly."""
    if values["surrogate"] == "vespo" and values["correction"] not in VESPO_CORRECTIONS:
        raise ConfigError(
            f"objective.correction={values['correction']} has one weight for a whole row, and "
            "objective.surrogate=vespo multiplies the weights of a row's tokens, so it would count "
            "once for every token",
            hint=f"vespo goes with objective.correction={', '.join(VESPO_CORRECTIONS)}",
        )
    if values["correction_renormalise"] and values["reduction"] == "prompt_mean":
        raise ConfigError(
            "objective.correction_renormalise takes rows out of a group, but "
            "objective.reduction=prompt_mean divides by the tokens of the whole group",
            hint="set objective.correction_renormalise=false, or objective.reduction=token_mean",
        )


def _written(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_written, value)) + ")"
    return str(value)
