"""Hop 1 of a batch: which rows come next. A cursor counts the rows drawn, and is all the state."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Generic, TypeVar

from workings.data.order import epoch_order
from workings.errors import ConfigError, DataError
from workings.types import Prompt

Row = TypeVar("Row")


class PromptSampler:
    """Prompts for rollouts, batch after batch without an end.

    Every epoch is a new permutation and holds each prompt once. A batch may run over the end of an
    epoch, so none is short and none is lost. With several ranks each gets its consecutive part of
    the same batch: the parts in rank order are the batch that one rank would have drawn.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        *,
        prompts_per_step: int,
        seed: int,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        if not prompts:
            raise DataError("there are no prompts to draw from")
        _check_sizes("prompts_per_step", prompts_per_step, rank, num_ranks)
        self._prompts = prompts
        self._prompts_per_step = prompts_per_step
        self._seed = seed
        self._rank = rank
        self._num_ranks = num_ranks

    def __len__(self) -> int:
        """Prompts in one epoch."""
        return len(self._prompts)

    @property
    def prompts(self) -> Sequence[Prompt]:
        """All that are drawn from, by every rank."""
        return self._prompts

    def epoch_of(self, cursor: int) -> float:
        """Epochs that `cursor` stands for, with the fraction of the current one."""
        return cursor / len(self._prompts)

    def next_batch(
        self, cursor: int, *, num_prompts: int | None = None, retired: Collection[str] = ()
    ) -> tuple[list[Prompt], int]:
        """This rank's prompts of the next batch, and the cursor after it.

        Args:
            cursor: prompts drawn so far by all ranks together; 0 at the start of a run.
            num_prompts: another size than `prompts_per_step`, e.g. to fill up a batch.
            retired: ids of problems that are no longer drawn; the cursor passes over them.
        """
        wanted = self._prompts_per_step if num_prompts is None else num_prompts
        batch: list[Prompt] = []
        passed = 0
        while len(batch) < wanted:
            prompt = self._at(cursor)
            cursor += 1
            passed += 1
            if prompt.problem.id not in retired:
                batch.append(prompt)
                passed = 0
            elif passed >= 2 * len(self._prompts):
                raise DataError(
                    f"all {len(self._prompts)} prompts are retired; there is nothing left to draw"
                )
        return rank_share(batch, rank=self._rank, num_ranks=self._num_ranks), cursor

    def _at(self, cursor: int) -> Prompt:
        epoch, position = divmod(cursor, len(self._prompts))
        order = epoch_order(len(self._prompts), seed=self._seed, epoch=epoch)
        return self._prompts[order[position]]


class BatchSampler(Generic[Row]):
    """Rows for supervised steps. The last batch of an epoch is short rather than lost or filled up.

    With several ranks each gets its consecutive part of the same batch; of a short one a part may
    be empty.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        batch_size: int,
        seed: int,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        if not rows:
            raise DataError("there are no rows to draw from")
        _check_sizes("batch_size", batch_size, rank, num_ranks)
        self._rows = rows
        self._batch_size = batch_size
        self._seed = seed
        self._rank = rank
        self._num_ranks = num_ranks

    def __len__(self) -> int:
        """Rows in one epoch."""
        return len(self._rows)

    @property
    def rows(self) -> Sequence[Row]:
        """All that are drawn from, by every rank."""
        return self._rows

    def epoch_of(self, cursor: int) -> float:
        """Epochs that `cursor` stands for, with the fraction of the current one."""
        return cursor / len(self._rows)

    def next_batch(self, cursor: int) -> tuple[list[Row], int]:
        """This rank's rows of the next batch, and the cursor (rows drawn by all ranks) after it."""
        epoch, position = divmod(cursor, len(self._rows))
        order = epoch_order(len(self._rows), seed=self._seed, epoch=epoch)
        chosen = order[position : position + self._batch_size]
        share = rank_share(chosen, rank=self._rank, num_ranks=self._num_ranks)
        return [self._rows[index] for index in share], cursor + len(chosen)

    def num_batches(self, epochs: float) -> int:
        """Batches in so many epochs; a part of an epoch counts in whole batches.

        10 rows in batches of 4 are 3 batches an epoch, and half an epoch is 2 of them.
        """
        whole = math.floor(epochs)
        rest = math.ceil((epochs - whole) * len(self._rows))
        per_epoch = math.ceil(len(self._rows) / self._batch_size)
        return whole * per_epoch + math.ceil(rest / self._batch_size)


def rank_share(batch: Sequence[Row], *, rank: int, num_ranks: int) -> list[Row]:
    """The consecutive part of `batch` that belongs to `rank`; sizes differ by one at most.

    >>> [rank_share("abcde", rank=rank, num_ranks=2) for rank in (0, 1)]
    [['a', 'b'], ['c', 'd', 'e']]
    """
    start = rank * len(batch) // num_ranks
    end = (rank + 1) * len(batch) // num_ranks
    return list(batch[start:end])


def _check_sizes(name: str, size: int, rank: int, num_ranks: int) -> None:
    if not 0 <= rank < num_ranks:
        raise ConfigError(f"rank {rank} of {num_ranks}; expected 0 <= rank < num_ranks")
    if size < num_ranks:
        raise ConfigError(
            f"{name}={size} is less than the {num_ranks} ranks, so that some would never have work",
            hint=f"raise {name} to {num_ranks} or more, or use fewer ranks",
        )
