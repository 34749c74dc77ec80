"""What huggingface/trl and volcengine/verl say about an objective, in settings of ours.

Several of their names share one thing out among them (a KL term has a switch, a factor and an
estimator), or mean one thing under one surrogate and another under the next. Each rule here takes
such names together. The plain ones are rows of `config.aliases`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workings.config.settled import Given, Settled
from workings.errors import ConfigError

# verl's policy_loss.loss_mode: (surrogate, ratio).
LOSS_MODES: dict[str, tuple[str, str]] = {
    "vanilla": ("ppo_clip", "token"),
    "gspo": ("ppo_clip", "sequence_token"),
    "cispo": ("cispo", "token"),
    "sapo": ("sapo", "token"),
    "geo_mean": ("gmpo", "geo_clipped"),
    "dppo_tv": ("dppo_tv", "token"),
    "clip_cov": ("clip_cov", "token"),
    "kl_cov": ("kl_cov", "token"),
    "gpg": ("logp", "none"),
}

# adv_estimator of verl and LUFFY; None is the mean of the group, with or without its std.
ESTIMATORS: dict[str, str | None] = {
    "grpo": None,
    "grpo_vectorized": None,
    "grpo_split": None,
    "rloo": "rloo",
    "rloo_vectorized": "rloo",
    "reinforce_plus_plus": "reinforce_pp",
    "reinforce_plus_plus_baseline": "reinforce_pp_baseline",
    "remax": "remax",
    "opo": "opo",
    "grpo_passk": "pass_k",
    "gpg": "gpg",
    "gdpo": "gdpo",
}
_BY_STD = {True: "group", False: "group_mean", "batch": "group_mean_batch_std"}

KL_TYPES: dict[str, str] = {
    "kl": "k1",
    "k1": "k1",
    "abs": "abs",
    "mse": "k2",
    "k2": "k2",
    "low_var_kl": "k3",
    "k3": "k3",
    "kl+": "k1_plus",
    "k1+": "k1_plus",
    "low_var_kl+": "k3_plus",
    "k3+": "k3_plus",
}
VERL_KL_COEF = 0.001
"""kl_loss_coef of verl where only `use_kl_loss` is given."""


def loss_mode(given: Given) -> list[Settled]:
    """One name for a surrogate and the ratio that it stands on."""
    if "loss_mode" not in given:
        return []
    surrogate, ratio = given.one_of(
        "loss_mode", "loss_mode", {name.replace("-", "_"): v for name, v in LOSS_MODES.items()}
    )
    return _objective("loss_mode", surrogate=surrogate, ratio=ratio)


def advantage(given: Given) -> list[Settled]:
    """An estimator, and whether a group's advantages are divided by a std."""
    estimator = _estimator(given)
    divide = _divide_by_std(given)
    own = given.objective("advantage")
    if estimator is None and divide is None:
        return []
    if estimator is None and own not in _BY_STD.values():
        return []  # no group, or one that is not divided by anything
    name = None if estimator is None else ESTIMATORS[estimator]
    if name is None:
        name = _BY_STD[True if divide is None else divide]
    source = {
        None: f"adv_estimator={estimator}",
        True: "advantages divided by the group's std",
        False: "std off",
        "batch": "advantages divided by the std of the step",
    }[divide if name in _BY_STD.values() else None]
    found = _objective(source, advantage=name)
    pool = "on_policy" if estimator == "grpo_split" else "union"
    if estimator is not None and given.objective("advantage_pool") != pool:
        found += _objective(f"adv_estimator={estimator}", advantage_pool=pool)
    return found


def _estimator(given: Given) -> str | None:
    if "estimator" not in given:
        return None
    name = str(given.raw("estimator")).lower()
    if name == "gae":
        raise ConfigError(
            "adv_estimator='gae' needs a value model, which this package does not train",
            hint="compare samples instead: adv_estimator=grpo, rloo or reinforce_plus_plus",
        )
    if name not in ESTIMATORS:
        raise ConfigError(f"adv_estimator={name!r}; expected one of {', '.join(ESTIMATORS)}")
    return name


def _divide_by_std(given: Given) -> Any:
    if "divide_by_std" not in given:
        return None
    divide = given.raw("divide_by_std")
    if divide not in _BY_STD or (divide != "batch" and not isinstance(divide, bool)):
        raise ConfigError(
            f"dividing advantages by the group's std: {divide!r} came; expected true or false "
            "(scale_rewards: group, batch or none)"
        )
    return divide


def clip(given: Given) -> list[Settled]:
    """Clip bounds: above and below a ratio of 1, or of CISPO's weight.

    verl clamps CISPO's weight to [1 - low, 1 + high]; TRL's epsilon_high is its cap itself.
    """
    names = {
        "clip_ratio": "clip_ratio",
        "clip_low": "clip_ratio_low",
        "clip_high": "clip_ratio_high",
    }
    bounds = {key: given.number(key, name) for key, name in names.items() if key in given}
    low = bounds.get("clip_low", bounds.get("clip_ratio"))
    high = bounds.get("clip_high")
    capped = given.objective("surrogate") == "cispo"
    found = []
    if low is not None:
        source = f"clip_ratio_low={low:g}" if "clip_low" in bounds else f"clip_ratio={low:g}"
        found += _objective(source, **{"cap_low" if capped else "epsilon": _one_minus(low, capped)})
    if capped and high is None:
        high = bounds.get("clip_ratio")
    if high is not None:
        source = f"clip_ratio_high={high:g}"
        value = round(1 + high, 12) if capped else high
        found += _objective(source, **{"cap_high" if capped else "epsilon_high": value})
    if "epsilon_high" in given:
        name = "cap_high" if capped else "epsilon_high"
        value = given.raw("epsilon_high")
        found += _objective(f"epsilon_high={value}", **{name: value})
    return found


def _one_minus(low: float, capped: bool) -> float:
    return round(1 - low, 12) if capped else low


def upper_bound(given: Given) -> list[Settled]:
    """LUFFY's bound is on the ratio and never below 1 + epsilon; 1 is none."""
    if "ratio_upper_bound" not in given:
        return []
    bound = given.raw("ratio_upper_bound")
    if given.objective("surrogate") == "ratio" and bound == 1:
        return []
    epsilon = given.objective("epsilon") or 0.2
    if not isinstance(bound, int | float) or not isinstance(epsilon, int | float):
        raise ConfigError(f"clip_upper_bound={bound!r}; expected a number, e.g. 1.28")
    value = max(round(bound - 1, 12), epsilon)
    return _objective(f"clip_upper_bound={bound:g} over epsilon={epsilon:g}", epsilon_high=value)


def kl(given: Given) -> list[Settled]:
    """A KL term in the loss (use_kl_loss, kl_loss_*) or in the reward (kl_coef)."""
    in_loss = _kl_in_loss(given)
    in_reward = _kl_in_reward(given)
    if in_loss and in_reward:
        raise ConfigError(
            f"kl_loss_coef={in_loss:g} and kl_coef={in_reward:g} ask for two KL terms; there is "
            "one, in the loss or in the reward",
            hint="set one of them to 0",
        )
    if in_loss is None and in_reward is None and "kl_type" not in given:
        return []
    kl_type = given.one_of("kl_type", "kl_loss_type", KL_TYPES) if "kl_type" in given else None
    if in_reward:
        return _objective(f"kl_coef={in_reward:g}", beta=in_reward, kl_in="reward")
    beta = in_loss if in_loss is not None else in_reward
    found = [] if beta is None else _objective(f"kl_loss_coef={beta:g}", beta=beta)
    if in_loss:
        found += _objective(f"kl_loss_coef={in_loss:g}", kl_in="loss")
    if kl_type is not None and (in_loss or (beta is None and given.objective("beta"))):
        found += _objective("kl_loss_type", kl_estimator=kl_type)
    return found


def _kl_in_loss(given: Given) -> float | None:
    """The factor of a KL in the loss; None where nothing is said about one."""
    coefficient = given.number("kl_loss_coef", "kl_loss_coef") if "kl_loss_coef" in given else None
    if "use_kl_loss" not in given:
        return coefficient
    if not given.flag("use_kl_loss", "use_kl_loss"):
        return 0.0
    return VERL_KL_COEF if coefficient is None else coefficient


def _kl_in_reward(given: Given) -> float | None:
    coefficient = given.number("kl_coef", "kl_coef") if "kl_coef" in given else None
    if "use_kl_in_reward" not in given:
        return coefficient
    if not given.flag("use_kl_in_reward", "use_kl_in_reward"):
        return 0.0
    return VERL_KL_COEF if coefficient is None else coefficient


def correction(given: Given) -> list[Settled]:
    """Bounds of TRL's importance sampling: one cap, or two bounds under token_mask (IcePop)."""
    names = {"is_max": "vllm_importance_sampling_clip_max"}
    names |= {"is_min": "vllm_importance_sampling_clip_min"}
    two_bounds = given.objective("correction") in ("icepop", "geometric_mask")
    found = []
    for key, name in names.items():
        if key not in given:
            continue
        value = given.raw(key)
        if key == "is_min":
            target = "correction_low"
        else:
            target = "correction_high" if two_bounds else "correction_cap"
        if value is not None:
            found += _objective(f"{name}={value}", **{target: value})
    return found


def overlong(given: Given) -> list[Settled]:
    """DAPO's overlong shaping: a switch, its tokens and a factor that has to be 1."""
    names = ("overlong_on", "overlong_tokens", "overlong_factor")
    if not any(name in given for name in names):
        return []
    factor = given.number(names[2], "overlong_buffer.penalty_factor") if names[2] in given else 1.0
    tokens = given.number(names[1], "overlong_buffer.len") if names[1] in given else None
    if names[0] in given and not given.flag(names[0], "overlong_buffer.enable"):
        return [
            *_objective("overlong_buffer.enable=false", overlong_share=0.0),
            Settled(path="reward.overlong_buffer", value=0, source="overlong_buffer.enable=false"),
        ]
    found = []
    if tokens is not None:
        source = f"overlong_buffer.len={tokens:g}"
        found.append(Settled(path="reward.overlong_buffer", value=tokens, source=source))
    elif names[0] in given:
        raise ConfigError("overlong_buffer.enable=true needs overlong_buffer.len")
    if factor != 1:
        source = f"overlong_buffer.penalty_factor={factor:g}"
        found.append(Settled(path="reward.weights.overlong", value=factor, source=source))
    return found


def _objective(source: str, **values: Any) -> list[Settled]:
    return [
        Settled(path=f"objective.{name}", value=value, source=source)
        for name, value in values.items()
    ]


OBJECTIVE_RULES: tuple[Callable[[Given], list[Settled]], ...] = (
    *(loss_mode, advantage, clip, upper_bound, kl, correction, overlong),
)
