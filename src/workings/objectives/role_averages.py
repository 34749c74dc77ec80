"""Exponential averages of the reward by role: the baselines of role-conditioned advantages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleAverages:
    """The average reward of each role so far (RAE of SPIRAL, 2506.24119).

    A step takes `baselines` first and then `updated`: the baseline of a sample does not contain
    its own reward, so the gradient stays unbiased, and the order of rows does not matter. Plain
    numbers, so that a checkpoint can hold it: `dataclasses.asdict` and `RoleAverages(**state)`.

    A role that was never seen has the average 0.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    decay: float = 0.95

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay={self.decay}; expected a value from 0 to below 1")

    def baselines(self, roles: Sequence[str]) -> Tensor:
        """The average of each group's role, [groups] float64."""
        return torch.tensor([self.values.get(role, 0.0) for role in roles], dtype=torch.float64)

    def updated(
        self, rewards: Tensor, roles: Sequence[str], valid: Tensor | None = None
    ) -> RoleAverages:
        """decay * average + (1 - decay) * mean reward of the step, for every role that occurs.

        `rewards` [groups, samples] of the whole step, over all ranks; `valid` (bool) marks the
        usable ones.

        >>> averages = RoleAverages(decay=0.5)
        >>> dict(averages.updated(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), ["a", "b"]).values)
        {'a': 0.25, 'b': 0.5}
        """
        if rewards.ndim != 2 or rewards.shape[0] != len(roles):
            raise ValueError(
                f"rewards have shape {tuple(rewards.shape)} for {len(roles)} roles; expected "
                "[groups, samples] with a role for each group"
            )
        valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid.bool()
        broken = valid & ~torch.isfinite(rewards)
        if broken.any():
            group, sample = (int(i) for i in broken.nonzero()[0])
            value = rewards[group, sample].item()
            raise ValueError(f"reward of group {group}, sample {sample} is {value}")
        values = dict(self.values)
        for role in dict.fromkeys(roles):
            member = torch.tensor([name == role for name in roles], device=rewards.device)
            chosen = rewards[valid & member[:, None]].double()
            if chosen.numel():
                before = self.values.get(role, 0.0)
                values[role] = self.decay * before + (1 - self.decay) * chosen.mean().item()
        return RoleAverages(values=values, decay=self.decay)
