"""Groups of rollouts go into a checkpoint and come back as they were."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from workings.errors import CheckpointError
from workings.models.tensors import load_tensors, save_tensors
from workings.rollout.stored_groups import groups_from_state, groups_to_state
from workings.types import Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict


def prompt(name: str) -> Prompt:
    # An extra that JSON does not have: prompts are the run's own, so it is not lost.
    problem = Problem(id=name, question="1+1?", answer="2", extra={"set": {1, 2}})
    return Prompt(problem=problem, ids=(1, 2), text="1+1?")


def rollout(length: int, **settings: Any) -> Rollout:
    values: dict[str, Any] = {
        "ids": tuple(range(2**31, 2**31 + length)),
        "sampling_logprobs": tuple(-math.pi * (t + 1) for t in range(length)),
        "kept_mass": tuple(1 - 1e-12 * t for t in range(length)),
        "mask": tuple(t != 1 for t in range(length)),
        "off_policy": (False,) * length,
        "text": "x" * length,
        "finish_reason": "eos",
        "weight_version": 3,
    }
    return Rollout(**{**values, **settings})


GRADE = Grade(
    verdict=Verdict.EQUAL, tier="number", reason="2 is 2", extracted="\ud83d", milliseconds=0.1
)
GROUPS = [
    RolloutGroup(
        prompt=prompt("a"),
        rollouts=(
            rollout(3, reward=0.1, components={"answer": 1.0, "form": 0.0}, grade=GRADE),
            rollout(1, finish_reason="length", text="\ud83d half an emoji"),
            rollout(
                2,
                off_policy=(True, False),
                source="demonstration",
                recorded_logprobs=(-0.1, -2.0),
                weight_version=-1,
            ),
        ),
    ),
    RolloutGroup(prompt=prompt("b"), rollouts=()),
    RolloutGroup(prompt=prompt("c"), rollouts=(rollout(5),)),
]
PROMPTS = {group.problem.id: group.prompt for group in GROUPS}


@pytest.mark.parametrize("groups", [GROUPS, []])
def test_a_file_gives_back_what_was_stored(groups: list[RolloutGroup], tmp_path: Path) -> None:
    save_tensors(tmp_path / "groups.pt", groups_to_state(groups))
    state: Any = load_tensors(tmp_path / "groups.pt")
    assert groups_from_state(state, PROMPTS) == groups


def test_a_logprob_that_was_not_sampled_stays_nan() -> None:
    given = rollout(2, sampling_logprobs=(math.nan, -1.0), off_policy=(True, False))
    state = groups_to_state([RolloutGroup(prompt=prompt("a"), rollouts=(given,))])
    first, second = groups_from_state(state, PROMPTS)[0].rollouts[0].sampling_logprobs
    assert (math.isnan(first), second) == (True, -1.0)


def test_what_does_not_fit_is_refused() -> None:
    state = groups_to_state(GROUPS)
    with pytest.raises(CheckpointError, match=r"do not fit this run: KeyError\('b'\)"):
        groups_from_state(state, {"a": prompt("a"), "c": prompt("c")})
    with pytest.raises(CheckpointError, match="do not fit this run: RuntimeError"):
        groups_from_state({**state, "ids": state["ids"][:-1]}, PROMPTS)
    with pytest.raises(CheckpointError, match="do not fit this run"):
        groups_from_state({**state, "groups": [["a", 9]]}, PROMPTS)
