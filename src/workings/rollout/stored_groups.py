"""Groups of rollouts as plain values, for a checkpoint: nothing is rounded, prompts by their id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from workings.errors import CheckpointError
from workings.types import Grade, Prompt, Rollout, RolloutGroup, Verdict

IDS, NUMBERS, FLAGS = "<i8", "<f8", "?"
FLOATS = ("sampling_logprobs", "kept_mass", "recorded_logprobs")


def groups_to_state(groups: Sequence[RolloutGroup]) -> list[dict[str, object]]:
    """The groups as lists, dictionaries, text and bytes."""
    return [
        {
            "problem": group.problem.id,
            "rollouts": [_rollout_to_state(rollout) for rollout in group.rollouts],
        }
        for group in groups
    ]


def groups_from_state(
    state: Sequence[Mapping[str, Any]], prompts: Mapping[str, Prompt]
) -> list[RolloutGroup]:
    """What `groups_to_state` was given, with the prompts of the run by problem id.

    CheckpointError for a problem that the run does not have, and for anything else.
    """
    try:
        return [
            RolloutGroup(
                prompt=prompts[group["problem"]],
                rollouts=tuple(map(_rollout_from_state, group["rollouts"])),
            )
            for group in state
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"stored groups of rollouts do not fit this run: {error!r}"
        ) from error


def _rollout_to_state(rollout: Rollout) -> dict[str, object]:
    grade = rollout.grade
    return {
        "ids": np.asarray(rollout.ids, IDS).tobytes(),
        **{name: np.asarray(getattr(rollout, name), NUMBERS).tobytes() for name in FLOATS},
        "mask": np.asarray(rollout.mask, FLAGS).tobytes(),
        "off_policy": np.asarray(rollout.off_policy, FLAGS).tobytes(),
        "text": rollout.text,
        "finish_reason": str(rollout.finish_reason),
        "weight_version": rollout.weight_version,
        "source": str(rollout.source),
        "reward": rollout.reward,
        "components": dict(rollout.components),
        "grade": None if grade is None else _grade_to_state(grade),
    }


def _rollout_from_state(state: Mapping[str, Any]) -> Rollout:
    def values(name: str, kind: str) -> tuple[Any, ...]:
        return tuple(np.frombuffer(cast(bytes, state[name]), kind).tolist())

    return Rollout(
        ids=values("ids", IDS),
        sampling_logprobs=values("sampling_logprobs", NUMBERS),
        kept_mass=values("kept_mass", NUMBERS),
        recorded_logprobs=values("recorded_logprobs", NUMBERS),
        mask=values("mask", FLAGS),
        off_policy=values("off_policy", FLAGS),
        text=state["text"],
        finish_reason=state["finish_reason"],
        weight_version=state["weight_version"],
        source=state["source"],
        reward=state["reward"],
        components=state["components"],
        grade=None if state["grade"] is None else _grade_from_state(state["grade"]),
    )


def _grade_to_state(grade: Grade) -> dict[str, object]:
    return {
        "verdict": grade.verdict.value,
        "tier": grade.tier,
        "reason": grade.reason,
        "extracted": grade.extracted,
        "milliseconds": grade.milliseconds,
    }


def _grade_from_state(state: Mapping[str, Any]) -> Grade:
    return Grade(**{**state, "verdict": Verdict(state["verdict"])})
