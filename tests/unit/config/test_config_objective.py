"""Presets, the axes and constants set on top of them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from workings.config.compose import compose
from workings.config.objective import (
    AXES,
    CONSTANTS,
    CORRECTION_BOUNDS,
    GROUP_ADVANTAGES,
    PRESETS,
    SURROGATE_CONSTANTS,
    SURROGATE_RATIOS,
)
from workings.config.objective_settings import ObjectiveConfig, ResolvedObjective
from workings.errors import ConfigError

MEAN = "seq_mean_token_mean"
NORM = "seq_mean_token_sum_norm"
SHARED = {"correction": "none", "beta": 0.0, "num_off": 0, "replay": False, "entropy_coef": 0.0}
CLIP = {"epsilon": 0.2, "epsilon_high": 0.2}
SEQUENCE_CLIP = {"epsilon": 3e-4, "epsilon_high": 4e-4}
LUFFY = {"num_off": 1, "gamma": 0.1, "off_shaping": "ratio", "entropy_coef": 0.001}

# preset: ratio, surrogate, reduction, advantage, constants (objectives reference, section 8)
ROWS: dict[str, tuple[str, str, str, str, dict[str, Any]]] = {
    "grpo": ("token", "ppo_clip", MEAN, "group", CLIP),
    "bnpo": ("token", "ppo_clip", "local_token_mean", "group", CLIP),
    "dapo": (
        *("token", "ppo_clip", "token_mean", "group"),
        {"epsilon": 0.2, "epsilon_high": 0.28, "dynamic_sampling": "filter", "overlong_share": 0.2},
    ),
    "dr_grpo": ("token", "ppo_clip", NORM, "group_mean", CLIP),
    "gspo": ("sequence", "ppo_clip", MEAN, "group", SEQUENCE_CLIP),
    "gspo_token": ("sequence_token", "ppo_clip", MEAN, "group", SEQUENCE_CLIP),
    "luspo": ("sequence", "ppo_clip", "seq_mean_token_sum", "group", SEQUENCE_CLIP),
    "cispo": ("token", "cispo", "token_mean", "group", {"cap_low": None, "cap_high": 5.0}),
    "sapo": ("token", "sapo", MEAN, "group", {"tau_positive": 1.0, "tau_negative": 1.05}),
    "vespo": (
        *("sequence_product", "vespo", "token_mean", "group"),
        {"vespo_positive": (2.0, 3.0), "vespo_negative": (3.0, 2.0)},
    ),
    "gmpo": ("geo_clipped", "gmpo", MEAN, "group", {"log_range": 0.4}),
    "no_baseline": ("none", "logp", MEAN, "raw", {"epsilon": None}),
    "reinforce_with_baseline": ("none", "logp", MEAN, "group", {"epsilon": None}),
    "grpo_clip": ("token", "ppo_clip", MEAN, "group", CLIP),
    "grpo_no_clip": ("token", "ratio", MEAN, "group", {"epsilon": None}),
    "rloo": (
        *("sequence_product", "ppo_clip", MEAN, "rloo"),
        {**CLIP, "beta": 0.05, "kl_in": "reward", "kl_estimator": "k1"},
    ),
    "reinforce++": (
        *("token", "ppo_clip", "token_mean", "reinforce_pp"),
        {**CLIP, "beta": 0.01, "kl_in": "reward", "kl_estimator": "k1"},
    ),
    "reinforce++_baseline": (
        *("token", "ppo_clip", "token_mean", "reinforce_pp_baseline"),
        {**CLIP, "beta": 0.01, "kl_in": "loss", "kl_estimator": "k2"},
    ),
    "remax": ("token", "ppo_clip", "token_mean", "remax", CLIP),
    "opo": ("token", "ppo_clip", "token_mean", "opo", CLIP),
    "maxrl": ("token", "ppo_clip", "token_mean", "maxrl", CLIP),
    "pass_k": ("token", "ppo_clip", "token_mean", "pass_k", CLIP),
    "gpg": ("none", "logp", "token_mean", "gpg", {"gpg_norm": 1.0}),
    "gdpo": ("token", "ppo_clip", "token_mean", "gdpo", CLIP),
    "dppo": (
        *("token", "dppo_tv", "token_mean", "group_mean"),
        {"tv_low": 0.2, "tv_high": 0.2, "ratio_cap": 20.0, "log_ratio_penalty": 0.0},
    ),
    "clip_cov": (
        *("token", "clip_cov", "token_mean", "group"),
        {**CLIP, "cov_share": 2e-4, "cov_low": 1.0, "cov_high": 5.0},
    ),
    "kl_cov": (
        *("token", "kl_cov", "token_mean", "group"),
        {"cov_share": 2e-4, "kl_cov_coef": 0.1},
    ),
    "dro": ("token", "dro", "token_mean", "group_mean", {"dro_beta": 0.1}),
    "luffy": ("token", "ratio", NORM, "group_mean", {**LUFFY, "advantage_pool": "union"}),
    "luffy_clip": ("token", "ppo_clip", NORM, "group_mean", {**LUFFY, **CLIP}),
    "on_policy": ("token", "ppo_clip", NORM, "group_mean", {**CLIP, "entropy_coef": 0.001}),
    "on_policy_noclip": ("token", "ratio", NORM, "group_mean", {"entropy_coef": 0.001}),
    "rl_sft_loss": (
        *("token", "ratio", NORM, "group_mean"),
        {
            "entropy_coef": 0.001,
            "num_off": 1,
            "off_policy_loss": False,
            "advantage_pool": "on_policy",
            "sft_loss_coef": 1.0,
        },
    ),
    "exgrpo": (
        *("token", "ratio", NORM, "group_mean"),
        {"replay": True, "gamma": 0.1, "off_shaping": "ratio", "entropy_coef": 0.001},
    ),
}


def _resolve(**values: Any) -> ResolvedObjective:
    return ObjectiveConfig(**values).resolve()


def _error(**values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        ObjectiveConfig(**values)
    return str(caught.value)


# ----------------------------------------------------------------------------------- presets


def test_every_preset_has_its_row() -> None:
    assert set(ROWS) == set(PRESETS)


@pytest.mark.parametrize("preset", list(ROWS))
def test_a_preset_is_a_row_of_the_reference(preset: str) -> None:
    found = _resolve(preset=preset)
    *axes, constants = ROWS[preset]
    assert [found.ratio, found.surrogate, found.reduction, found.advantage] == axes
    for name, value in {**SHARED, **constants}.items():
        assert getattr(found, name) == value, name
    assert found.needs_group == (found.advantage in GROUP_ADVANTAGES)
    assert found.needs_reference == (found.beta > 0)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_preset_says_where_it_is_from_and_when_to_take_it(preset: str) -> None:
    assert PRESETS[preset].source
    assert PRESETS[preset].use.endswith(".")
    stated = PRESETS[preset].values
    assert set(stated) <= {*AXES, *CONSTANTS}
    for axis, allowed in AXES.items():
        assert stated.get(axis, "none") in allowed
    constants = [name for name in stated if name in CONSTANTS]
    assert all(CONSTANTS[name].is_read(dict(_resolve(preset=preset))) for name in constants)


def test_the_baselines_of_luffy_differ_from_it_by_one_switch() -> None:
    def differing(a: str, b: str) -> set[str]:
        first, second = dict(_resolve(preset=a)), dict(_resolve(preset=b))
        return {name for name in first if first[name] != second[name]} - {"preset"}

    clip = {"surrogate", "epsilon", "epsilon_high"}
    assert differing("luffy", "luffy_clip") == clip
    assert differing("luffy", "on_policy_noclip") == {"num_off"}
    assert differing("luffy_clip", "on_policy") == {"num_off"}
    assert differing("on_policy", "on_policy_noclip") == clip
    assert differing("grpo", "grpo_clip") == set()
    assert differing("grpo_no_clip", "grpo") == clip


def test_an_objective_names_every_setting_once() -> None:
    settings = set(ObjectiveConfig.model_fields) - {"preset"}
    assert settings == {*AXES, *CONSTANTS}
    assert set(ResolvedObjective.model_fields) == settings | {"preset", "clip_inherited"}
    assert set(SURROGATE_CONSTANTS) == set(SURROGATE_RATIOS) == set(AXES["surrogate"])
    assert set(CORRECTION_BOUNDS) == set(AXES["correction"]) - {"none"}
    for surrogate, names in SURROGATE_CONSTANTS.items():
        for name in names:
            assert surrogate in dict(CONSTANTS[name].readers)["surrogate"]
    for name, constant in CONSTANTS.items():
        for reader, values in constant.readers:
            assert reader in settings, name
            assert set(values) <= set(AXES.get(reader, values)), name


# ------------------------------------------------------------------------------ set on top


def test_axes_and_constants_are_set_on_top_of_a_preset() -> None:
    found = _resolve(
        preset="grpo", reduction="token_mean", epsilon=0.1, epsilon_high=0.28, advantage_eps=1e-4
    )
    assert (found.reduction, found.epsilon, found.epsilon_high) == ("token_mean", 0.1, 0.28)
    assert found.advantage_eps == 1e-4
    assert _resolve(epsilon=0.1).epsilon_high == 0.1
    assert _resolve(preset="gspo", epsilon=0.1).epsilon_high == 4e-4


def test_null_leaves_a_setting_to_the_preset() -> None:
    assert _resolve(preset="dapo", epsilon_high=None, ratio=None).epsilon_high == 0.28


def test_a_constant_of_the_preset_that_nothing_reads_any_more_is_dropped() -> None:
    found = _resolve(preset="dapo", surrogate="cispo")
    assert (found.epsilon, found.epsilon_high, found.cap_high) == (None, None, 5.0)
    found = _resolve(preset="luffy", num_off=0)
    assert dict(found) == {**dict(_resolve(preset="on_policy_noclip")), "preset": "luffy"}
    assert _resolve(preset="rl_sft_loss", num_off=0).sft_loss_coef == 0


def test_bounds_of_a_correction_have_defaults() -> None:
    found = _resolve(correction="icepop")
    assert (found.correction_low, found.correction_high) == (0.5, 5.0)
    found = _resolve(correction="icepop", correction_high=2.0)
    assert (found.correction_low, found.correction_high) == (0.5, 2.0)
    assert _resolve(correction="tis_token").correction_cap == 2.0
    assert _resolve(correction="seq_product_mask").correction_cap == 3.0
    assert _resolve(correction="k3_reject").correction_threshold == 0.01
    found = _resolve(correction="geometric_mask")
    assert (found.correction_low, found.correction_high) == (0.99, 1.01)


def test_a_kl_in_the_reward_is_k1() -> None:
    assert _resolve(beta=0.1).kl_estimator == "k3"
    found = _resolve(beta=0.1, kl_in="reward")
    assert (found.kl_in, found.kl_estimator, found.needs_reference) == ("reward", "k1", True)
    assert _error(beta=0.1, kl_in="reward", kl_estimator="k3") == (
        "objective.kl_estimator=k3 is for a KL in the loss; in the reward it is k1\n\n"
        "hint: remove it, or set objective.kl_in=loss"
    )


@given(
    ratio=st.sampled_from(AXES["ratio"]),
    surrogate=st.sampled_from(AXES["surrogate"]),
    reduction=st.sampled_from(AXES["reduction"]),
    advantage=st.sampled_from(AXES["advantage"]),
    preset=st.sampled_from(sorted(PRESETS)),
)
def test_the_axes_combine_freely_where_surrogate_and_ratio_fit(
    preset: str, ratio: str, surrogate: str, reduction: str, advantage: str
) -> None:
    values: dict[str, Any] = {"reduction": reduction, "advantage": advantage}
    values |= {"preset": preset, "ratio": ratio, "surrogate": surrogate, "advantage_pool": "union"}
    values |= {"beta": 0.0}  # gdpo has no place for a KL in the reward
    if surrogate in ("ppo_clip", "clip_cov"):
        values["epsilon"] = 0.2
    if advantage == "gdpo":
        values["beta"] = 0.0  # its components leave no place for a KL in the reward
    if ratio not in SURROGATE_RATIOS[surrogate]:
        with pytest.raises(ConfigError, match="does not fit"):
            ObjectiveConfig(**values)
        return
    found = _resolve(**values)
    assert [found.ratio, found.surrogate] == [ratio, surrogate]
    assert [found.reduction, found.advantage] == [reduction, advantage]
    line = found.describe()
    assert all(f"{axis} {getattr(found, axis)}" in line for axis in AXES)


# ------------------------------------------------------------------------------ the one line


def test_one_line_describes_every_axis_and_what_it_reads() -> None:
    assert _resolve(preset="grpo", epsilon_high=0.28).describe() == (
        "objective grpo: ratio token, surrogate ppo_clip, reduction seq_mean_token_mean, "
        "advantage group, correction none; epsilon=0.2, epsilon_high=0.28, advantage_eps=1e-06"
    )
    assert (
        _resolve(preset="luffy")
        .describe()
        .endswith(
            "; entropy_coef=0.001, num_off=1, off_policy_loss=True, off_shaping=ratio, gamma=0.1, "
            "use_teacher_probs=False, advantage_pool=union, off_advantage_scale=1, sft_loss_coef=0"
        )
    )
    assert _resolve(preset="no_baseline").describe() == (
        "objective no_baseline: ratio none, surrogate logp, reduction seq_mean_token_mean, "
        "advantage raw, correction none"
    )


# -------------------------------------------------------------------------------- refusals


def test_unknown_names() -> None:
    known = ", ".join(sorted(PRESETS))
    assert _error(preset="grop") == (
        f"unknown objective preset 'grop'; did you mean 'grpo'? Known: {known}"
    )
    for axis, allowed in AXES.items():
        with pytest.raises(ConfigError) as caught:
            compose(["quickstart/grpo"], [f"objective.{axis}=tokne"], kind="grpo")
        assert f"objective.{axis}" in str(caught.value)
        assert ", ".join(allowed) in str(caught.value)


def test_a_constant_that_the_surrogate_does_not_read_is_refused() -> None:
    assert _error(preset="no_baseline", epsilon=0.2) == (
        "objective.epsilon is set but the surrogate 'logp' does not read it\n\n"
        "hint: remove it, or choose a surrogate that does: ppo_clip, clip_cov"
    )
    # Set to what it is anyway, but a reader of the file would think that it does something.
    assert _error(preset="grpo", cap_high=5.0) == (
        "objective.cap_high is set but the surrogate 'ppo_clip' does not read it\n\n"
        "hint: remove it, or choose a surrogate that does: cispo"
    )


SAMPLE: dict[str, Any] = {
    "vespo_positive": (1.0, 1.0),
    "vespo_negative": (1.0, 1.0),
    "dual_clip": 3.0,
    "cov_high": 9.0,
}


@pytest.mark.parametrize("surrogate", AXES["surrogate"])
def test_each_surrogate_reads_its_own_constants_only(surrogate: str) -> None:
    base = {"surrogate": surrogate, "ratio": SURROGATE_RATIOS[surrogate][0]}
    if surrogate in ("ppo_clip", "clip_cov"):
        base["epsilon"] = 0.2  # type: ignore[assignment]
    for name, constant in CONSTANTS.items():
        if not constant.readers or constant.readers[0][0] != "surrogate":
            continue
        value = SAMPLE.get(name, 0.5)
        if surrogate in constant.readers[0][1]:
            assert getattr(_resolve(**{**base, name: value}), name) == value
        elif name not in base:
            assert "does not read it" in _error(**base, **{name: value})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"gamma": 0.3},
            "objective.gamma=0.3 is set but nothing reads it\n\nhint: remove it, or set "
            "objective.num_off, or objective.replay, or objective.on_shaping=ratio",
        ),
        (
            {"preset": "luffy", "off_shaping": "pow", "gamma": 0.3},
            "objective.gamma=0.3 is set but nothing reads it\n\nhint: remove it, or set "
            "objective.off_shaping=ratio, or objective.on_shaping=ratio",
        ),
        (
            {"kl_estimator": "k2"},
            "objective.kl_estimator=k2 is set but nothing reads it\n\n"
            "hint: remove it, or set objective.beta",
        ),
        (
            {"correction": "icepop", "correction_cap": 3.0},
            "objective.correction_cap=3 is set but nothing reads it\n\nhint: remove it, or set "
            "objective.correction=tis_token or seq_product_truncate or seq_product_mask or "
            "geometric_truncate",
        ),
        (
            {"preset": "dr_grpo", "advantage_eps": 1e-4},
            "objective.advantage_eps=0.0001 is set but nothing reads it\n\nhint: remove it, or set "
            "objective.advantage=group or group_mean_batch_std or pass_k or gdpo",
        ),
        (
            {"preset": "exgrpo", "sft_loss_coef": 1.0},
            "objective.sft_loss_coef=1 is set but nothing reads it\n\n"
            "hint: remove it, or set objective.num_off",
        ),
    ],
)
def test_a_constant_that_nothing_reads_is_refused(values: dict[str, Any], expected: str) -> None:
    assert _error(**values) == expected


def test_a_default_that_nothing_reads_is_let_pass() -> None:
    """Scripts name what is off: `kl_loss_coef=0 kl_loss_type=low_var_kl`."""
    assert _resolve(beta=0.0, kl_estimator="k3").beta == 0


def test_a_surrogate_needs_its_level_and_its_clip() -> None:
    assert _error(preset="grpo", surrogate="logp") == (
        "objective.ratio=token does not fit objective.surrogate=logp\n\n"
        "hint: surrogate=logp goes with ratio=none"
    )
    assert _error(preset="vespo", ratio="token") == (
        "objective.ratio=token does not fit objective.surrogate=vespo\n\n"
        "hint: surrogate=vespo goes with ratio=sequence_product"
    )
    assert _error(preset="no_baseline", ratio="token", surrogate="ppo_clip") == (
        "objective.surrogate=ppo_clip needs objective.epsilon (0.2 is usual)"
    )


def test_bounds_that_cannot_be() -> None:
    assert _error(dual_clip=1.1) == (
        "objective.dual_clip=1.1 is inside the clip range, which ends at 1 + epsilon_high = 1.2; "
        "3.0 is usual"
    )
    assert _error(correction="icepop", correction_low=6.0) == (
        "objective.correction_low=6 is above objective.correction_high=5"
    )
    assert (
        _error(preset="clip_cov", cov_low=6.0)
        == "objective.cov_low=6 is above objective.cov_high=5"
    )
    assert _error(correction="off_policy_seq_mask") == (
        "objective.correction=off_policy_seq_mask needs objective.correction_threshold, in nats "
        "per token"
    )
    with pytest.raises(ValidationError):
        ObjectiveConfig(epsilon=-0.1)


def test_choices_that_exclude_each_other() -> None:
    assert _error(mask_truncated=True, zero_truncated_advantage=True) == (
        "objective.mask_truncated takes truncated rows out of the loss, so that "
        "zero_truncated_advantage has nothing left to do; keep one of them"
    )
    assert _error(preset="luffy", replay=True) == (
        "objective.replay and objective.num_off=1 both put off-policy rows into groups; keep one "
        "of them"
    )
    assert _error(luffy_scale=True) == (
        "objective.luffy_scale goes with objective.reduction=seq_mean_token_sum_norm"
    )
    assert _error(preset="dapo", surrogate="cispo", on_shaping="ratio") == (
        "objective.on_shaping=ratio shapes the token ratio of surrogate ratio or ppo_clip; with "
        "objective.surrogate=cispo, ratio=token, dual_clip=None there is none\n\n"
        "hint: set objective.surrogate=ratio objective.ratio=token, or "
        "objective.on_shaping=no_reshape"
    )
    assert "dual_clip=3 there is none" in _error(on_shaping="ratio", dual_clip=3.0)
    assert _resolve(preset="luffy_clip", on_shaping="ratio").epsilon == 0.2
    assert _error(preset="luffy", use_teacher_probs=True, gamma=0.3) == (
        "objective.gamma is set, but the ratio to recorded teacher probabilities is not shaped\n\n"
        "hint: set objective.shape_teacher_ratio=true to shape it all the same, or remove it"
    )
    assert _error(preset="rl_sft_loss", advantage="pass_k") == (
        "objective.advantage=pass_k has no mean that the sampled rows alone could give\n\n"
        "hint: set objective.advantage_pool=union, or objective.advantage=group_mean"
    )
    assert _error(beta=0.1, kl_in="reward", advantage="gdpo").startswith(
        "objective.advantage=gdpo puts each component of the reward on its own scale"
    )
    assert _error(preset="vespo", correction="geometric_mask").endswith(
        "hint: vespo goes with objective.correction=none, tis_token, icepop"
    )
    assert _error(
        correction="geometric_mask", correction_renormalise=True, reduction="prompt_mean"
    ).startswith("objective.correction_renormalise takes rows out of a group")
    found = _resolve(preset="luffy", use_teacher_probs=True, shape_teacher_ratio=True, gamma=0.3)
    assert found.gamma == 0.3
    assert _error(preset="gdpo", beta=0.1, kl_in="reward") == (
        "objective.advantage=gdpo puts each component of the reward on its own scale, and a KL "
        "taken from their sum (objective.kl_in=reward) has no place there\n\n"
        "hint: set objective.kl_in=loss"
    )
    assert "divides by the tokens of the whole group" in _error(
        reduction="prompt_mean", correction="geometric_mask", correction_renormalise=True
    )


@pytest.mark.parametrize("correction", AXES["correction"])
def test_vespo_goes_with_corrections_that_weigh_each_token(correction: str) -> None:
    """It folds the product of a row's weights into its own; one per row would count T times."""
    values: dict[str, Any] = {"preset": "vespo", "correction": correction}
    if correction in ("none", "tis_token", "icepop"):
        assert _resolve(**values).correction == correction
        return
    if correction == "off_policy_seq_mask":
        values["correction_threshold"] = 0.1
    assert _error(**values) == (
        f"objective.correction={correction} has one weight for a whole row, and "
        "objective.surrogate=vespo multiplies the weights of a row's tokens, so it would count "
        "once for every token\n\nhint: vespo goes with objective.correction=none, tis_token, icepop"
    )


# -------------------------------------------------------------------------------- warnings


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - {"bnpo", "rloo"}))
def test_a_preset_as_published_warns_of_nothing(preset: str) -> None:
    assert _resolve(preset=preset).warnings() == []


def test_warnings() -> None:
    (line,) = _resolve(preset="grpo", ratio="sequence").warnings()
    assert line == (
        "objective.ratio=sequence with epsilon=0.2 of preset grpo: sequence ratios stay within "
        "about 1e-3 of 1, so this clip does nothing; gspo takes epsilon=3e-4 epsilon_high=4e-4"
    )
    assert _resolve(preset="grpo", ratio="sequence", epsilon=3e-4).warnings() == []
    assert _resolve(preset="gspo", ratio="sequence_token").warnings() == []
    (line,) = _resolve(preset="gspo", ratio="token").warnings()
    assert line.startswith("objective.ratio=token with epsilon=0.0003 of preset gspo: that clip")
    (line,) = _resolve(preset="rloo").warnings()
    assert "long answers leave the clip range by their length alone" in line
    (line,) = _resolve(correction="seq_product_mask").warnings()
    assert "geometric_mask does not" in line
    (line,) = _resolve(preset="bnpo").warnings()
    assert line.endswith("depends on the micro-batch size")
    (line,) = _resolve(beta=0.1, kl_estimator="k1").warnings()
    assert line.endswith("has an expected gradient of 0")


def test_properties_that_the_loops_ask_for() -> None:
    assert _resolve(preset="luffy").has_off_policy_rows
    assert _resolve(preset="exgrpo").has_off_policy_rows
    assert not _resolve(preset="on_policy").has_off_policy_rows
    assert _resolve(preset="kl_cov").chooses_by_covariance
    assert _resolve(top_entropy_quantile=0.2).needs_statistics
    before = _resolve(preset="exgrpo").before_replay()
    assert dict(before) == {**dict(_resolve(preset="on_policy")), "preset": "exgrpo"}
    clipped = _resolve(preset="grpo", replay=True, epsilon=0.1).before_replay()
    assert (clipped.replay, clipped.epsilon, clipped.epsilon_high) == (False, 0.1, 0.1)
    assert _resolve(preset="dapo").surrogate_constants == {
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "dual_clip": None,
    }
