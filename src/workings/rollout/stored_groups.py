"""Groups of rollouts as tensors and plain values, for a checkpoint: nothing is rounded.

What stands at tokens is one tensor over all rollouts, one behind the other. Prompts are stored by
their problem's id; the run that takes groups up again has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from workings.errors import CheckpointError
from workings.types import Grade, Prompt, Rollout, RolloutGroup, Verdict

AT_TOKENS = {
    "ids": torch.int64,
    "sampling_logprobs": torch.float64,
    "kept_mass": torch.float64,
    "recorded_logprobs": torch.float64,
    "mask": torch.bool,
    "off_policy": torch.bool,
}


def groups_to_state(groups: Sequence[RolloutGroup]) -> dict[str, Any]:
    """The groups, for `models.tensors.save_tensors`."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    return {
        "groups": [[group.problem.id, len(group.rollouts)] for group in groups],
        "rollouts": [_plain(rollout) for rollout in rollouts],
        **{
            name: torch.tensor(
                [value for rollout in rollouts for value in getattr(rollout, name)], dtype=dtype
            )
            for name, dtype in AT_TOKENS.items()
        },
    }


def groups_from_state(
    state: Mapping[str, Any], prompts: Mapping[str, Prompt]
) -> list[RolloutGroup]:
    """What `groups_to_state` was given, with the prompts of the run by problem id.

    CheckpointError for a problem that the run does not have, and for anything else.
    """
    try:
        rollouts = _rollouts(state)
        groups = [
            RolloutGroup(
                prompt=prompts[problem], rollouts=tuple(next(rollouts) for _ in range(size))
            )
            for problem, size in state["groups"]
        ]
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"stored rollouts do not fit this run: {error!r}") from error
    return groups


def _plain(rollout: Rollout) -> dict[str, Any]:
    """What a rollout has once, and how many tokens (and recorded log-probabilities) it has."""
    grade = rollout.grade
    return {
        "length": len(rollout.ids),
        "num_recorded": len(rollout.recorded_logprobs),
        "text": rollout.text,
        "finish_reason": str(rollout.finish_reason),
        "weight_version": rollout.weight_version,
        "source": str(rollout.source),
        "reward": rollout.reward,
        "components": dict(rollout.components),
        "grade": None
        if grade is None
        else {
            "verdict": grade.verdict.value,
            "tier": grade.tier,
            "reason": grade.reason,
            "extracted": grade.extracted,
            "milliseconds": grade.milliseconds,
        },
    }


def _rollouts(state: Mapping[str, Any]) -> Iterator[Rollout]:
    rows = [dict(row) for row in state["rollouts"]]
    lengths = [row.pop("length") for row in rows]
    recorded = [row.pop("num_recorded") for row in rows]
    columns: dict[str, Any] = {
        name: [
            tuple(part.tolist())
            for part in state[name].split(recorded if name == "recorded_logprobs" else lengths)
        ]
        for name in AT_TOKENS
    }
    for place, row in enumerate(rows):
        grade = row.pop("grade")
        if grade is not None:
            grade = Grade(**{**grade, "verdict": Verdict(grade["verdict"])})
        yield Rollout(**{name: parts[place] for name, parts in columns.items()}, **row, grade=grade)
