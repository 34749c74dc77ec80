"""How many groups of a step can teach anything, and why the others cannot."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from workings.objectives.advantages import has_spread
from workings.objectives.whitening import Reduce, on_one_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatistics:
    """Counts of groups over the whole step; groups without a usable reward are in none but `empty`.

    `zero_std` counts groups whose usable rewards are all equal, those left with one included;
    `single` those left with one. `solve_all` and `solve_none` count groups in which every usable
    sample, or none, is solved.
    """

    usable: int
    zero_std: int
    solve_all: int
    solve_none: int
    single: int
    empty: int

    @property
    def frac_reward_zero_std(self) -> float:
        """Share of the usable groups that teach nothing; 0 where there is none."""
        return self.zero_std / max(self.usable, 1)

    def metrics(self) -> dict[str, float]:
        """The shares and counts by their names in the log."""
        usable = max(self.usable, 1)
        return {
            "frac_reward_zero_std": self.frac_reward_zero_std,
            "solve_all": self.solve_all / usable,
            "solve_none": self.solve_none / usable,
            "groups_of_one": float(self.single),
            "groups_without_reward": float(self.empty),
        }


def group_statistics(
    rewards: Tensor,
    valid: Tensor | None = None,
    *,
    solved_at: float = 1.0,
    reduce: Reduce = on_one_rank,
) -> GroupStatistics:
    """Counts over the groups of a step; `rewards` [groups, samples], `valid` bool alike.

    A sample is solved when its reward is `solved_at` or more. `reduce` sums a 1-D float64 tensor
    over ranks.

    >>> table = torch.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    >>> counts = group_statistics(table)
    >>> counts.zero_std, counts.solve_all, counts.solve_none
    (2, 1, 1)
    """
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid.bool()
    count = valid.sum(1)
    usable = count > 0
    solved = rewards >= solved_at
    counts = [
        usable,
        usable & ~has_spread(rewards, valid),
        usable & (solved | ~valid).all(1),
        usable & ~(solved & valid).any(1),
        count == 1,
        ~usable,
    ]
    numbers = reduce(torch.stack([flag.sum() for flag in counts]).double())
    usable_, zero_std, solve_all, solve_none, single, empty = (int(n) for n in numbers.tolist())
    return GroupStatistics(
        usable=usable_,
        zero_std=zero_std,
        solve_all=solve_all,
        solve_none=solve_none,
        single=single,
        empty=empty,
    )
