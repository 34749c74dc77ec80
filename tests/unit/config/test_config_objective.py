"""Presets and the axes set on top of them."""

from __future__ import annotations

from typing import Any

import pytest

from workings.config.objective import AXES, LATER_PRESETS, PRESETS, ObjectiveConfig
from workings.errors import ConfigError


def _error(**values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        ObjectiveConfig(**values)
    return str(caught.value)


# ratio, surrogate, reduction, advantage, (epsilon, epsilon_high): objectives reference, section 8
EXPECTED: dict[str, tuple[str, str, str, str, tuple[float, float]]] = {
    "grpo": ("token", "ppo_clip", "seq_mean_token_mean", "group", (0.2, 0.2)),
    "grpo_clip": ("token", "ppo_clip", "seq_mean_token_mean", "group", (0.2, 0.2)),
    "dr_grpo": ("token", "ppo_clip", "seq_mean_token_sum_norm", "group_mean", (0.2, 0.2)),
    "reinforce_with_baseline": ("none", "logp", "seq_mean_token_mean", "group", (0, 0)),
    "no_baseline": ("none", "logp", "seq_mean_token_mean", "raw", (0, 0)),
}


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_preset_is_a_point_on_the_axes(preset: str) -> None:
    found = ObjectiveConfig(preset=preset).resolve()
    ratio, surrogate, reduction, advantage, epsilons = EXPECTED[preset]
    assert (found.ratio, found.surrogate, found.reduction, found.advantage) == (
        ratio,
        surrogate,
        reduction,
        advantage,
    )
    assert (found.epsilon, found.epsilon_high) == epsilons
    assert found.needs_group == (advantage != "raw")


def test_every_preset_is_known_once() -> None:
    assert not LATER_PRESETS & PRESETS.keys()
    assert set(EXPECTED) <= set(PRESETS)


def test_axes_and_constants_are_set_on_top_of_a_preset() -> None:
    found = ObjectiveConfig(
        preset="grpo", reduction="token_mean", epsilon=0.1, epsilon_high=0.28, advantage_eps=1e-4
    ).resolve()
    assert (found.reduction, found.epsilon, found.epsilon_high) == ("token_mean", 0.1, 0.28)
    assert found.advantage_eps == 1e-4
    assert ObjectiveConfig(epsilon=0.1).resolve().epsilon_high == 0.1


def test_one_line_describes_every_axis() -> None:
    line = ObjectiveConfig(preset="grpo", epsilon_high=0.28).resolve().describe()
    assert line.startswith(
        "objective grpo: ratio token, surrogate ppo_clip, clip [1-0.2, 1+0.28], "
        "reduction seq_mean_token_mean, advantage group"
    )
    for axis in AXES:
        assert axis in line


def test_messages() -> None:
    assert _error(preset="dapo") == (
        "objective preset 'dapo' is not in this version; available: dr_grpo, grpo, grpo_clip, "
        "no_baseline, reinforce_with_baseline"
    )
    assert _error(preset="grop") == (
        "unknown objective preset 'grop'; did you mean 'grpo'? Known: dr_grpo, grpo, grpo_clip, "
        "no_baseline, reinforce_with_baseline"
    )
    assert _error(preset="no_baseline", epsilon=0.2) == (
        "objective.epsilon is set but the surrogate 'logp' does not read it\n\n"
        "hint: remove it, or choose a surrogate that does: ppo_clip"
    )
    assert _error(preset="grpo", surrogate="logp") == (
        "objective.ratio=token does not fit objective.surrogate=logp\n\n"
        "hint: surrogate=logp goes with ratio=none; ratio and ppo_clip need ratio=token"
    )
    assert _error(preset="no_baseline", ratio="token", surrogate="ppo_clip") == (
        "objective.surrogate=ppo_clip needs objective.epsilon (0.2 is usual)"
    )
