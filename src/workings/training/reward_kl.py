"""The KL to the reference as a part of the reward: k1 times beta, taken from every token."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from workings.objectives.kl import kl_token_penalties
from workings.training.distributed import Ranks
from workings.training.updates import Update
from workings.types import RolloutGroup

Penalties = list[list[list[float]]]


def token_penalties(
    updates: Sequence[Update],
    groups: Sequence[RolloutGroup],
    *,
    coefficient: float,
    first_key: int = 0,
) -> Penalties:
    """beta (log pi - log ref) of every token, by group and row; 0 where a token is not trained.

    `updates` hold all rows of the groups, with keys from `first_key`, scored by both.
    """
    by_key: dict[int, list[float]] = {}
    for update in updates:
        for batch in update.microbatches:
            assert batch.old_logprobs is not None
            assert batch.ref_logprobs is not None
            table = kl_token_penalties(
                batch.old_logprobs, batch.ref_logprobs, batch.mask, coefficient=coefficient
            )
            by_key |= dict(zip(batch.keys, table.tolist(), strict=True))
    penalties: Penalties = []
    key = first_key
    for group in groups:
        line = []
        for rollout in group.rollouts:
            values = by_key.get(key, [])[: len(rollout.ids)]
            line.append(values + [0.0] * (len(rollout.ids) - len(values)))
            key += 1
        penalties.append(line)
    return penalties


def kl_of_rows(penalties: Penalties, coefficient: float, ranks: Ranks) -> dict[str, float]:
    """The mean KL per token (k1) that the penalties stand for, over all ranks, as a metric."""
    values = [value for line in penalties for row in line for value in row]
    own = torch.tensor([math.fsum(values), len(values)], dtype=torch.float64)
    total, count = ranks.all_sum(own).tolist()
    return {"kl": total / coefficient / max(count, 1.0) if coefficient else 0.0}
