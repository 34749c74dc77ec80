"""What the scripts of LUFFY and ExGRPO say, in settings of ours.

Their names mean something only where groups hold off-policy rows: the on-policy script has
`n_prefix=1` and all switches of a teacher too, and turns them off with `max_prefix_ratio=0`. So
whether there are such rows is settled first. Source: the code of LUFFY (arXiv 2504.14945) and
ExGRPO (2510.02245).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workings.config.settled import Given, Settled
from workings.errors import ConfigError

SHAPINGS = ("no_reshape", "square_root", "pow", "logp", "p_logp")
_RATIO = "p_div_p_"

# (our key, LUFFY's name, path that takes the value as it is, value that asks for nothing)
_TEACHER: tuple[tuple[str, str, str, Any], ...] = (
    ("use_off_policy_loss", "use_off_policy_loss", "objective.off_policy_loss", None),
    ("use_off_policy_probs", "use_off_policy_probs", "objective.use_teacher_probs", False),
    ("alpha", "prefix_reward_weight_alpha", "objective.off_advantage_scale", 1),
    ("off_max", "off_policy_max_clip", "objective.off_clip_max", -1),
    ("off_min", "off_policy_min_clip", "objective.off_clip_min", -1),
    ("off_weight", "off_policy_reshape_weight", "objective.off_shaping_weight", 0.1),
    ("off_power", "off_policy_reshape_pow_exp", "objective.off_shaping_power", 0.5),
    ("keep_prob", "sample_target_ratio", "off_policy.keep_prob", 1),
    ("max_prefix_len", "max_prefix_len", "off_policy.max_trace_length", None),
    ("prefix_strategy", "prefix_strategy", "off_policy.prefix_schedule", "random"),
    ("prefix_steps", "prefix_steps", "off_policy.prefix_steps", None),
    ("prefix_linear", "prefix_linear_max_ratio", "off_policy.prefix_linear_max_ratio", None),
    (
        *("prefix_share", "prefix_share_across_samples"),
        *("off_policy.prefix_share_across_samples", False),
    ),
    ("prefix_min", "min_prefix_ratio", "off_policy.prefix_min_ratio", None),
    ("prefix_max", "max_prefix_ratio", "off_policy.prefix_max_ratio", None),
)

REWARDS: dict[int, tuple[str, bool] | None] = {
    0: ("think_boxed", True),
    1: None,
    2: ("question_only", True),
    3: ("think_boxed", False),
    4: ("question_only", False),
}
"""reward_impl_version of LUFFY: (reward.name, reward.fast); None has no counterpart."""

METRICS = {"ent": "entropy", "entropy": "entropy", "ppl": "perplexity", "perplexity": "perplexity"}


def off_policy_rows(given: Given) -> list[Settled]:
    """Rows of a teacher, or of the replay: how many, and what becomes of them."""
    replays = _replays(given)
    found = [] if replays is None else [_set("objective.replay", replays, f"experience={replays}")]
    rows = _teacher_rows(given, replays=bool(replays))
    if rows is not None:
        found.append(_set("objective.num_off", *rows))
    num_off = given.objective("num_off") if rows is None else rows[0]
    active = bool(given.objective("replay")) if replays is None else replays
    if not num_off and not active:
        _refuse_idle(given, decided=rows is not None)
        return found
    return found + _shaping(given) + _rows_of_table(given, replays=not num_off) + _sft(given)


def _replays(given: Given) -> bool | None:
    return given.flag("experience", "experience") if "experience" in given else None


def _teacher_rows(given: Given, *, replays: bool) -> tuple[int, str] | None:
    """(rows of a group with a teacher's tokens, why); None where nothing is said."""
    count = None
    if "n_prefix" in given:
        count = given.raw("n_prefix")
        if isinstance(count, bool) or not isinstance(count, int) or count < -1:
            raise ConfigError(f"n_prefix={count!r}; expected a whole number, or -1 for every row")
    if replays:
        if count not in (None, 0, 1):
            raise ConfigError(
                f"n_prefix={count} with experience=true: a group replays one rollout",
                hint="set n_prefix=1",
            )
        return 0, "experience=true: the row of a group is a replayed one"
    if "prefix_max" in given and given.raw("prefix_max") == 0 and not _falls_or_rises(given):
        return 0, "max_prefix_ratio=0: no row begins with a teacher's tokens"
    return None if count is None else (count, f"n_prefix={count}")


def _falls_or_rises(given: Given) -> bool:
    return given.get("prefix_strategy", "random") in ("linear", "linear_max", "reverse_linear")


def _shaping(given: Given) -> list[Settled]:
    """Of off-policy tokens; without a policy loss of theirs there is nothing to shape."""
    lossless = given.get("use_off_policy_loss", given.objective("off_policy_loss")) is False
    if "off_reshape" not in given or lossless:
        return []
    return _one_shaping(given.raw("off_reshape"), "off_policy_reshape", "off_shaping")


def _one_shaping(value: Any, name: str, target: str) -> list[Settled]:
    text = str(value).lower()
    source = f"{name}={text}"
    if text in SHAPINGS:
        return [_set(f"objective.{target}", text, source)]
    gamma = _number(text.removeprefix(_RATIO)) if text.startswith(_RATIO) else None
    if gamma is None or gamma <= 0:
        raise ConfigError(
            f"{name}={value!r}; expected one of {', '.join(SHAPINGS)}, or p_div_p_X with a number "
            "above 0 for X"
        )
    return [
        _set(f"objective.{target}", "ratio", source),
        _set("objective.gamma", gamma, source),
    ]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _rows_of_table(given: Given, *, replays: bool) -> list[Settled]:
    """Values that are ours as they stand; a replay has no traces and so no such settings."""
    found = []
    for key, name, path, idle in _TEACHER:
        if key not in given or (replays and path.startswith("off_policy.")):
            continue
        value = given.raw(key)
        if replays and path == "objective.use_teacher_probs":
            continue  # what is replayed always has its recorded probabilities
        if key in ("prefix_min", "prefix_max") and _falls_or_rises(given):
            continue  # such a schedule has bounds of its own
        found.append(_set(path, None if value == -1 == idle else value, f"{name}={value}"))
    return found


def _sft(given: Given) -> list[Settled]:
    """The likelihood term of a trace: a switch and a factor, 1 where only the switch is given."""
    if "sft_on" not in given and "sft_coef" not in given:
        return []
    coefficient = given.number("sft_coef", "sft_loss_coef") if "sft_coef" in given else 1.0
    on = given.flag("sft_on", "use_sft_multitask_loss") if "sft_on" in given else True
    source = f"sft_loss_coef={coefficient:g}" if on else "use_sft_multitask_loss=false"
    return [_set("objective.sft_loss_coef", coefficient if on else 0.0, source)]


def _refuse_idle(given: Given, *, decided: bool) -> None:
    """Raise where something is asked of off-policy rows, and nobody said that there are none."""
    if decided:
        return
    asked = [
        (name, given.raw(key))
        for key, name, _, idle in _TEACHER
        if key in given and idle is not None and given.raw(key) != idle
    ]
    if "off_reshape" in given and str(given.raw("off_reshape")) != "no_reshape":
        asked.append(("off_policy_reshape", given.raw("off_reshape")))
    if given.get("sft_on", False):
        asked.append(("use_sft_multitask_loss", given.raw("sft_on")))
    if asked:
        name, value = asked[0]
        raise ConfigError(
            f"{name}={value} is about the rows of a teacher, and a group has none",
            hint="set n_prefix=1, or start from -c luffy",
        )


def own_shaping(given: Given) -> list[Settled]:
    """Of own tokens, with and without a teacher."""
    if "on_reshape" not in given:
        return []
    return _one_shaping(given.raw("on_reshape"), "on_policy_reshape", "on_shaping")


def own_constants(given: Given) -> list[Settled]:
    """The constants of that shaping, which it shares with off-policy tokens here."""
    found = []
    for key, name, constant, shapings in (
        ("on_weight", "on_policy_reshape_weight", "off_shaping_weight", ("logp", "p_logp")),
        ("on_power", "on_policy_reshape_pow_exp", "off_shaping_power", ("pow",)),
    ):
        if key in given and given.objective("on_shaping") in shapings:
            value = given.raw(key)
            found.append(_set(f"objective.{constant}", value, f"{name}={value}"))
    return found


def reward(given: Given) -> list[Settled]:
    """LUFFY's graders by their number."""
    if "reward_impl" not in given:
        return []
    number = given.raw("reward_impl")
    if isinstance(number, bool) or number not in REWARDS:
        raise ConfigError(
            f"reward_impl_version={number!r}; expected one of {', '.join(map(str, REWARDS))}"
        )
    counterpart = REWARDS[number]
    if counterpart is None:
        raise ConfigError(
            f"reward_impl_version={number} pays -1 and -0.5 for a wrong format, which no reward "
            "here does",
            hint="0 (reward=think_boxed reward.fast=true) reads the same answers and pays 1 or 0",
        )
    source = f"reward_impl_version={number}"
    name, fast = counterpart
    return [_set("reward.name", name, source), _set("reward.fast", fast, source)]


def replay_choice(given: Given) -> list[Settled]:
    """Which stored rollout is replayed: a measure, and that its least value is taken."""
    metric = given.get("exp_metric")
    mode = str(given.get("exp_select", "argmin")).lower()
    if metric is None and mode == "argmin":
        return []
    if mode == "random":
        return [_set("replay.select", "random", "exp_select_mode=random")]
    if mode != "argmin":
        raise ConfigError(
            f"exp_select_mode={mode!r}; expected argmin or random",
            hint="the rollout that the policy is surest of is replayed",
        )
    chosen = given.one_of("exp_metric", "exp_metric", METRICS)
    return [_set("replay.select", chosen, f"exp_metric={metric}")]


def _set(path: str, value: Any, source: str) -> Settled:
    return Settled(path=path, value=value, source=source)


LUFFY_RULES: tuple[Callable[[Given], list[Settled]], ...] = (
    *(off_policy_rows, own_shaping, own_constants, reward, replay_choice),
)

EARLIER_KEYS: Mapping[str, str] = {name: key for key, name, *_ in _TEACHER} | {
    "n_prefix": "n_prefix",
    "off_policy_reshape": "off_reshape",
    "on_policy_reshape": "on_reshape",
    "on_policy_reshape_weight": "on_weight",
    "on_policy_reshape_pow_exp": "on_power",
    "use_sft_multitask_loss": "sft_on",
    "sft_loss_coef": "sft_coef",
    "reward_impl_version": "reward_impl",
    "experience": "experience",
    "exp_metric": "exp_metric",
    "exp_select_mode": "exp_select",
}
"""Name of LUFFY or ExGRPO to the key under which these rules find its value."""
