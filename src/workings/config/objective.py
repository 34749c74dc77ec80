"""The objective as data: the axes, what reads each constant, and the presets. Their only home.

A policy objective is a point in ratio x surrogate x reduction x advantage x correction. A preset
names such a point; every axis and constant can be set on top of it (`objective_settings`). Nothing
here imports torch: `objectives` receives plain values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Ratio = Literal["none", "token", "sequence", "sequence_token", "sequence_product", "geo_clipped"]
Surrogate = Literal[
    "logp",
    "ratio",
    "ppo_clip",
    "cispo",
    "sapo",
    "vespo",
    "gmpo",
    "dppo_tv",
    "clip_cov",
    "kl_cov",
    "dro",
]
Reduction = Literal[
    "seq_mean_token_mean",
    "token_mean",
    "local_token_mean",
    "seq_mean_token_sum_norm",
    "seq_mean_token_sum",
    "prompt_mean",
]
Advantage = Literal[
    "raw",
    "group",
    "group_mean",
    "group_mean_batch_std",
    "rloo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "remax",
    "opo",
    "maxrl",
    "pass_k",
    "gpg",
    "gdpo",
    "rae",
]
Correction = Literal[
    "none",
    "tis_token",
    "icepop",
    "seq_product_truncate",
    "seq_product_mask",
    "geometric_truncate",
    "geometric_mask",
    "k3_reject",
    "off_policy_seq_mask",
]
KLEstimator = Literal["k1", "abs", "k2", "k3", "k1_plus", "k3_plus", "k3_is"]
Shaping = Literal["no_reshape", "ratio", "square_root", "pow", "logp", "p_logp"]

AXES: dict[str, tuple[str, ...]] = {
    "ratio": get_args(Ratio),
    "surrogate": get_args(Surrogate),
    "reduction": get_args(Reduction),
    "advantage": get_args(Advantage),
    "correction": get_args(Correction),
}

# Advantages that compare the samples of one prompt; a group of one is refused.
GROUP_ADVANTAGES: frozenset[str] = frozenset(get_args(Advantage)) - {
    "raw",
    "reinforce_pp",
    "remax",
    "rae",
}

# Advantages without a statistic of the group that a part of its rows could give.
NO_POOL: frozenset[str] = frozenset({"raw", "remax", "rae", "pass_k", "reinforce_pp", "gdpo"})

# Ratio levels that each surrogate is defined on.
_PLAIN_LEVELS = ("token", "sequence", "sequence_token", "sequence_product")
SURROGATE_RATIOS: dict[str, tuple[str, ...]] = {
    "logp": ("none",),
    "ratio": _PLAIN_LEVELS,
    "ppo_clip": _PLAIN_LEVELS,
    "cispo": _PLAIN_LEVELS,
    "sapo": _PLAIN_LEVELS,
    "vespo": ("sequence_product",),
    "gmpo": ("geo_clipped",),
    "dppo_tv": ("token",),
    "clip_cov": ("token",),
    "kl_cov": ("token",),
    "dro": ("token",),
}

# Constants that a surrogate reads, by the keyword its function has.
SURROGATE_CONSTANTS: dict[str, tuple[str, ...]] = {
    "logp": (),
    "ratio": (),
    "ppo_clip": ("epsilon", "epsilon_high", "dual_clip"),
    "cispo": ("cap_low", "cap_high"),
    "sapo": ("tau_positive", "tau_negative"),
    "vespo": ("vespo_positive", "vespo_negative"),
    "gmpo": (),
    "dppo_tv": ("tv_low", "tv_high", "ratio_cap", "log_ratio_penalty"),
    "clip_cov": ("epsilon", "epsilon_high", "dual_clip"),
    "kl_cov": ("kl_cov_coef",),
    "dro": ("dro_beta",),
}


@dataclass(frozen=True, slots=True)
class Constant:
    """A number of the objective: its default, and the choices under which anything reads it.

    Each of `readers` is another setting of the objective with the values that make it read this
    one; no values are any but 0, None and False. Without readers the constant is always read.
    """

    default: Any
    readers: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    def is_read(self, settings: Mapping[str, Any]) -> bool:
        """True where the settings of an objective make use of it."""
        return not self.readers or any(
            _holds(settings[name], values) and (name not in CONSTANTS or _is_read(name, settings))
            for name, values in self.readers
        )

    def needs(self, settings: Mapping[str, Any]) -> list[str]:
        """What would have to be set for it to be read, each way in the words of a message."""
        found = []
        for name, values in self.readers:
            if not _holds(settings[name], values):
                wanted = " or ".join(map(str, values))
                found.append(f"objective.{name}={wanted}" if wanted else f"objective.{name}")
            elif name in CONSTANTS:
                found += CONSTANTS[name].needs(settings)
        return list(dict.fromkeys(found))


def _holds(value: Any, values: tuple[Any, ...]) -> bool:
    return value in values if values else bool(value)


def _is_read(name: str, settings: Mapping[str, Any]) -> bool:
    return CONSTANTS[name].is_read(settings)


def _of(surrogates: str, default: Any) -> Constant:
    return Constant(default, (("surrogate", tuple(surrogates.split())),))


def _with(readers: str, default: Any) -> Constant:
    """Read where any of these settings is anything but 0, None and False."""
    return Constant(default, tuple((name, ()) for name in readers.split()))


_OFF_ROWS = "num_off replay"
_EPS = ("group", "group_mean_batch_std", "pass_k", "gdpo")
_WEIGHTED = ("logp", "p_logp")

# Everything besides the four axes that a preset may set. `epsilon_high` None means epsilon.
CONSTANTS: dict[str, Constant] = {
    "epsilon": _of("ppo_clip clip_cov", None),
    "epsilon_high": _of("ppo_clip clip_cov", None),
    "dual_clip": _of("ppo_clip clip_cov", None),
    "cap_low": _of("cispo", None),
    "cap_high": _of("cispo", 5.0),
    "tau_positive": _of("sapo", 1.0),
    "tau_negative": _of("sapo", 1.05),
    "vespo_positive": _of("vespo", (2.0, 3.0)),
    "vespo_negative": _of("vespo", (3.0, 2.0)),
    "log_range": Constant(0.4, (("ratio", ("geo_clipped",)),)),
    "tv_low": _of("dppo_tv", 0.2),
    "tv_high": _of("dppo_tv", 0.2),
    "ratio_cap": _of("dppo_tv", 20.0),
    "log_ratio_penalty": _of("dppo_tv", 0.0),
    "cov_share": _of("clip_cov kl_cov", 2e-4),
    "cov_low": _of("clip_cov", 1.0),
    "cov_high": _of("clip_cov", 5.0),
    "kl_cov_coef": _of("kl_cov", 0.1),
    "dro_beta": _of("dro", 0.1),
    "advantage_eps": Constant(1e-6, (("advantage", _EPS),)),
    "gpg_norm": Constant(1.0, (("advantage", ("gpg",)),)),
    "discount": Constant(1.0, (("advantage", ("reinforce_pp",)),)),
    "rae_decay": Constant(0.95, (("advantage", ("rae",)),)),
    "correction": Constant("none"),
    "correction_cap": Constant(
        None,
        (
            (
                "correction",
                ("tis_token", "seq_product_truncate", "seq_product_mask", "geometric_truncate"),
            ),
        ),
    ),
    "correction_low": Constant(None, (("correction", ("icepop", "geometric_mask")),)),
    "correction_high": Constant(None, (("correction", ("icepop", "geometric_mask")),)),
    "correction_threshold": Constant(None, (("correction", ("k3_reject", "off_policy_seq_mask")),)),
    "correction_renormalise": Constant(
        False,
        (
            (
                "correction",
                ("seq_product_mask", "geometric_mask", "k3_reject", "off_policy_seq_mask"),
            ),
        ),
    ),
    "beta": Constant(0.0),
    "kl_estimator": _with("beta", "k3"),
    "kl_in": _with("beta", "loss"),
    "kl_target": _with("beta", None),
    "kl_horizon": _with("kl_target", 10_000),
    "entropy_coef": Constant(0.0),
    "entropy_target": Constant(None),
    "entropy_coef_step": _with("entropy_target", 0.005),
    "entropy_coef_min": _with("entropy_target", 0.0),
    "entropy_coef_max": _with("entropy_target", 1.0),
    "top_entropy_quantile": Constant(1.0),
    "mask_truncated": Constant(False),
    "count_masked_rows": Constant(False),
    "zero_truncated_advantage": Constant(False),
    "overlong_share": Constant(0.0),
    "dynamic_sampling": Constant("none"),
    "max_gen_batches": Constant(10, (("dynamic_sampling", ("filter",)),)),
    "when_short": Constant("error", (("dynamic_sampling", ("filter",)),)),
    "num_off": Constant(0),
    "replay": Constant(False),
    "off_policy_loss": _with(_OFF_ROWS, True),
    "off_shaping": _with("off_policy_loss", "ratio"),
    "on_shaping": Constant("no_reshape"),
    "gamma": Constant(0.1, (("off_shaping", ("ratio",)), ("on_shaping", ("ratio",)))),
    "off_shaping_weight": Constant(0.1, (("off_shaping", _WEIGHTED), ("on_shaping", _WEIGHTED))),
    "off_shaping_power": Constant(0.5, (("off_shaping", ("pow",)), ("on_shaping", ("pow",)))),
    "off_clip_max": _with("off_policy_loss", None),
    "off_clip_min": _with("off_policy_loss", None),
    "prob_clip_max": Constant(None),
    "use_teacher_probs": _with("num_off", False),
    "shape_teacher_ratio": _with("use_teacher_probs", False),
    "advantage_pool": _with(_OFF_ROWS, "union"),
    "off_advantage_scale": _with(_OFF_ROWS, 1.0),
    "on_advantage_scale": Constant(1.0),
    "sft_loss_coef": _with("num_off", 0.0),
    "luffy_scale": Constant(False),
}

# Bounds of each correction where none are set (objectives reference, section 5).
CORRECTION_BOUNDS: dict[str, dict[str, float]] = {
    "tis_token": {"correction_cap": 2.0},
    "icepop": {"correction_low": 0.5, "correction_high": 5.0},
    "seq_product_truncate": {"correction_cap": 3.0},
    "seq_product_mask": {"correction_cap": 3.0},
    "geometric_truncate": {"correction_cap": 2.0},
    "geometric_mask": {"correction_low": 0.99, "correction_high": 1.01},
    "k3_reject": {"correction_threshold": 0.01},
    "off_policy_seq_mask": {},
}


@dataclass(frozen=True, slots=True)
class Preset:
    """A named objective: its axes and constants, where it was published, and when to take it."""

    source: str
    use: str
    values: Mapping[str, Any]


def _preset(
    axes: str, source: str, use: str, based_on: Mapping[str, Any] | None = None, **constants: Any
) -> Preset:
    ratio, surrogate, reduction, advantage = axes.split()
    values = {
        "ratio": ratio,
        "surrogate": surrogate,
        "reduction": reduction,
        "advantage": advantage,
    }
    return Preset(source, use, {**(based_on or {}), **values, **constants})


_CLIP = {"epsilon": 0.2}
_SEQUENCE_CLIP = {"epsilon": 3e-4, "epsilon_high": 4e-4}
_LUFFY = {"entropy_coef": 0.001, "num_off": 1, "off_shaping": "ratio", "gamma": 0.1}

# One row per preset: ratio, surrogate, reduction, advantage; source; when to use it; constants.
PRESETS: dict[str, Preset] = {
    "grpo": _preset(
        "token ppo_clip seq_mean_token_mean group",
        "2402.03300",
        "The baseline everybody compares with.",
        _CLIP,
    ),
    "grpo_clip": _preset(
        "token ppo_clip seq_mean_token_mean group",
        "2402.03300, as the CS336 assignment names it",
        "The course's clipped loss; the same point as grpo.",
        _CLIP,
    ),
    "grpo_no_clip": _preset(
        "token ratio seq_mean_token_mean group",
        "the CS336 assignment",
        "The clip ablation: what the clip is worth off-policy.",
    ),
    "bnpo": _preset(
        "token ppo_clip local_token_mean group",
        "huggingface/trl, its loss_type bnpo",
        "Only to reproduce old runs: the one preset whose loss depends on the micro-batch.",
        _CLIP,
    ),
    "dapo": _preset(
        "token ppo_clip token_mean group",
        "2503.14476",
        "Long chains of thought: every token counts alike, and rare tokens may rise.",
        _CLIP,
        epsilon_high=0.28,
        dynamic_sampling="filter",
        overlong_share=0.2,
    ),
    "dr_grpo": _preset(
        "token ppo_clip seq_mean_token_sum_norm group_mean",
        "2503.20783",
        "No length bias and no difficulty bias; completions that grow without reason.",
        _CLIP,
    ),
    "gspo": _preset(
        "sequence ppo_clip seq_mean_token_mean group",
        "2507.18071",
        "Mixture-of-experts models and other noisy token ratios.",
        _SEQUENCE_CLIP,
    ),
    "gspo_token": _preset(
        "sequence_token ppo_clip seq_mean_token_mean group",
        "2507.18071",
        "gspo with advantages that differ from token to token.",
        _SEQUENCE_CLIP,
    ),
    "luspo": _preset(
        "sequence ppo_clip seq_mean_token_sum group",
        "2602.05261",
        "gspo without its length bias: a row counts by its tokens.",
        _SEQUENCE_CLIP,
    ),
    "cispo": _preset(
        "token cispo token_mean group",
        "2506.13585",
        "Several updates per rollout batch: clipped tokens keep their gradient.",
        cap_high=5.0,
    ),
    "sapo": _preset(
        "token sapo seq_mean_token_mean group",
        "2511.20347",
        "A soft gate in place of the clip.",
        tau_positive=1.0,
        tau_negative=1.05,
    ),
    "vespo": _preset(
        "sequence_product vespo token_mean group",
        "2602.10693",
        "Stale rollouts: whole-sequence weights, reshaped so that they cannot explode.",
    ),
    "gmpo": _preset(
        "geo_clipped gmpo seq_mean_token_mean group",
        "2507.20673",
        "Outlying token ratios: a geometric mean of ratios clipped one by one.",
        log_range=0.4,
    ),
    "dppo": _preset(
        "token dppo_tv token_mean group_mean",
        "2602.04879",
        "A trust region in probability rather than in ratio, fair to rare tokens.",
    ),
    "clip_cov": _preset(
        "token clip_cov token_mean group",
        "2505.22617",
        "Entropy that collapses early: the tokens that drive it are left out.",
        _CLIP,
    ),
    "kl_cov": _preset(
        "token kl_cov token_mean group",
        "2505.22617",
        "As clip_cov, with a penalty in place of the cut.",
    ),
    "dro": _preset(
        "token dro token_mean group_mean",
        "2405.19107",
        "A squared penalty on the log-ratio; fully off-policy data.",
    ),
    "no_baseline": _preset(
        "none logp seq_mean_token_mean raw",
        "REINFORCE, Williams 1992",
        "The baseline ablation of the course.",
    ),
    "reinforce_with_baseline": _preset(
        "none logp seq_mean_token_mean group",
        "REINFORCE, Williams 1992",
        "One update per rollout batch: the plainest loss that works.",
    ),
    "rloo": _preset(
        "sequence_product ppo_clip seq_mean_token_mean rloo",
        "2402.14740",
        "Short answers, one ratio per answer, and a reference that must stay near.",
        _CLIP,
        beta=0.05,
        kl_in="reward",
        kl_estimator="k1",
    ),
    "reinforce++": _preset(
        "token ppo_clip token_mean reinforce_pp",
        "2501.03262",
        "One sample per prompt is enough: the baseline is the whole batch.",
        _CLIP,
        beta=0.01,
        kl_in="reward",
        kl_estimator="k1",
    ),
    "reinforce++_baseline": _preset(
        "token ppo_clip token_mean reinforce_pp_baseline",
        "2501.03262",
        "Groups for the mean, the whole batch for the scale.",
        _CLIP,
        beta=0.01,
        kl_estimator="k2",
    ),
    "remax": _preset(
        "token ppo_clip token_mean remax",
        "2310.10505",
        "The greedy answer as the baseline, one more rollout per prompt.",
        _CLIP,
    ),
    "opo": _preset(
        "token ppo_clip token_mean opo",
        "2505.23585",
        "Lengths that differ much: the baseline of least variance.",
        _CLIP,
    ),
    "maxrl": _preset(
        "token ppo_clip token_mean maxrl",
        "2602.02710",
        "Hard problems weigh more: an approach to maximum likelihood of success.",
        _CLIP,
    ),
    "pass_k": _preset(
        "token ppo_clip token_mean pass_k",
        "2503.19595",
        "What matters is that one of the k samples is right.",
        _CLIP,
    ),
    "gpg": _preset(
        "none logp token_mean gpg",
        "2504.02546",
        "No ratio, no clip, no reference; groups without a right answer are made up for.",
    ),
    "gdpo": _preset(
        "token ppo_clip token_mean gdpo",
        "2601.05242",
        "Several rewards: each is normalised by itself before they are added.",
        _CLIP,
    ),
    "luffy": _preset(
        "token ratio seq_mean_token_sum_norm group_mean",
        "2504.14945",
        "Problems that the model cannot solve yet, with traces of a model that can.",
        _LUFFY,
    ),
    "luffy_clip": _preset(
        "token ppo_clip seq_mean_token_sum_norm group_mean",
        "2504.14945",
        "luffy with the clip kept on own tokens: one switch from luffy.",
        _LUFFY,
        epsilon=0.2,
    ),
    "on_policy": _preset(
        "token ppo_clip seq_mean_token_sum_norm group_mean",
        "2504.14945, its baseline",
        "luffy_clip without the traces: what the traces are worth.",
        _CLIP,
        entropy_coef=0.001,
    ),
    "on_policy_noclip": _preset(
        "token ratio seq_mean_token_sum_norm group_mean",
        "2504.14945",
        "luffy without the traces: one switch from luffy.",
        entropy_coef=0.001,
    ),
    "rl_sft_loss": _preset(
        "token ratio seq_mean_token_sum_norm group_mean",
        "2504.14945, its RL + SFT variant",
        "Imitation beside reinforcement: traces give a likelihood term of their own.",
        entropy_coef=0.001,
        num_off=1,
        off_policy_loss=False,
        advantage_pool="on_policy",
        sft_loss_coef=1.0,
    ),
    "exgrpo": _preset(
        "token ratio seq_mean_token_sum_norm group_mean",
        "2510.02245",
        "Own past successes, replayed on problems that are neither solved nor hopeless.",
        entropy_coef=0.001,
        replay=True,
        off_shaping="ratio",
        gamma=0.1,
    ),
}
