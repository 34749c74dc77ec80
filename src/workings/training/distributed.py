"""What the loops need to know about other processes: `Ranks`, one process by default."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among its peers. Without torch.distributed it is the only one."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Ranks:
        """The ranks of the initialised default process group, else a single process."""
        if dist.is_available() and dist.is_initialized():
            return cls(rank=dist.get_rank(), size=dist.get_world_size())
        return cls()

    @property
    def is_main(self) -> bool:
        """True on the process that writes files and prints."""
        return self.rank == 0

    def all_sum(self, values: Tensor) -> Tensor:
        """The sum over ranks of a tensor of equal shape on each; the input where there is one."""
        if self.size == 1:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total

    def all_max(self, values: Tensor) -> Tensor:
        """The largest over ranks, entry by entry."""
        if self.size == 1:
            return values
        largest = values.clone()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return largest

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.size > 1:
            dist.barrier()


def sum_counts(counts: list[int], ranks: Ranks) -> list[int]:
    """Counts added over ranks, in one collective."""
    if ranks.size == 1:
        return counts
    total = ranks.all_sum(torch.tensor(counts, dtype=torch.int64))
    return [int(value) for value in total]
