"""Tokens picked out of a whole optimizer step: by covariance, or by entropy.

The arguments are lists with one tensor per microbatch of this rank, and the results too. What a
choice needs from other ranks goes through `gather`, which takes a 1-D CPU tensor and returns those
of all ranks one behind the other (`Ranks.all_concat`); every rank must make the call, also with
empty lists. Tokens are drawn by row key and place in the row, so that a choice does not depend on
how the step is cut into microbatches and ranks, nor on padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Gather = Callable[[Tensor], Tensor]

_MASK_64 = (1 << 64) - 1


def on_one_rank(values: Tensor) -> Tensor:
    """`values` as they came: all there is where there is one rank."""
    return values


def token_covariances(
    advantages: Sequence[Tensor],
    logprobs: Sequence[Tensor],
    masks: Sequence[Tensor],
    *,
    gather: Gather = on_one_rank,
) -> list[Tensor]:
    """(A - mean A) (log pi - mean log pi) at every token, [B, T] float64; 0 off the masks.

    Means are over the trained tokens of the whole step (2505.22617, eq. 10). `advantages` are
    [B, T] or [B, 1], `logprobs` [B, T] detached or not, `masks` [B, T] bool.
    """
    pairs = []
    sums = torch.zeros(3, dtype=torch.float64)
    for advantage, logprob, mask in zip(advantages, logprobs, masks, strict=True):
        worth, value = (
            torch.where(mask, x.detach().expand(mask.shape).double(), 0.0)
            for x in (advantage, logprob)
        )
        pairs.append((worth, value))
        sums += torch.stack([worth.sum(), value.sum(), mask.sum().double()]).cpu()
    total_worth, total_value, count = gather(sums).view(-1, 3).sum(0).tolist()
    count = max(count, 1.0)
    return [
        torch.where(mask, (worth - total_worth / count) * (value - total_value / count), 0.0)
        for (worth, value), mask in zip(pairs, masks, strict=True)
    ]


def clip_cov_tokens(
    covariances: Sequence[Tensor],
    masks: Sequence[Tensor],
    keys: Sequence[Sequence[int]],
    *,
    seed: int,
    share: float = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
    gather: Gather = on_one_rank,
) -> list[Tensor]:
    """Tokens that clip_cov leaves out, [B, T] bool: a random few with low < covariance < high.

    As many as `share` of the step's trained tokens, one at least, or all candidates where they are
    fewer (2505.22617, eq. 11). `keys` names the rows of every microbatch and must be unique in the
    step; the draw depends on `seed`, key and token only. Give each step its own seed.
    """
    candidates = [
        mask & (covariance > low) & (covariance < high)
        for covariance, mask in zip(covariances, masks, strict=True)
    ]
    ranks = [torch.zeros_like(covariance) for covariance in covariances]
    draws = _draws(masks, keys, seed)
    return _smallest(ranks, draws, candidates, _quota(masks, share, gather), gather)


def kl_cov_tokens(
    covariances: Sequence[Tensor],
    masks: Sequence[Tensor],
    keys: Sequence[Sequence[int]],
    *,
    seed: int = 0,
    share: float = 2e-4,
    gather: Gather = on_one_rank,
) -> list[Tensor]:
    """Tokens that kl_cov penalises, [B, T] bool: those of the largest covariance.

    As many as `share` of the step's trained tokens, one at least (2505.22617, eq. 13). Equal
    covariances are put in order by a draw as in `clip_cov_tokens`.
    """
    ranks = [-covariance for covariance in covariances]
    draws = _draws(masks, keys, seed)
    candidates = [mask.bool() for mask in masks]
    return _smallest(ranks, draws, candidates, _quota(masks, share, gather), gather)


def high_entropy_tokens(
    entropies: Sequence[Tensor],
    masks: Sequence[Tensor],
    *,
    share: float = 0.2,
    gather: Gather = on_one_rank,
) -> list[Tensor]:
    """Trained tokens with an entropy at or above the step's (1 - `share`) quantile, [B, T] bool.

    The quantile is over the trained tokens of all ranks, between neighbours by linear
    interpolation (2506.01939). The others should leave the numerator of the loss only.

    >>> entropies = torch.arange(1, 11, dtype=torch.float64)[None] / 10
    >>> high_entropy_tokens([entropies], [torch.ones(1, 10, dtype=torch.bool)])[0].sum().item()
    2
    """
    if not 0 < share <= 1:
        raise ValueError(f"share={share}; expected a share of the tokens, above 0 and at most 1")
    own = [
        entropy.detach()[mask].double().cpu()
        for entropy, mask in zip(entropies, masks, strict=True)
    ]
    values = gather(torch.cat([torch.empty(0, dtype=torch.float64), *own])).sort().values
    threshold = _quantile(values, 1 - share)
    return [
        mask & (entropy.detach().double() >= threshold)
        for entropy, mask in zip(entropies, masks, strict=True)
    ]


def _quantile(ordered: Tensor, level: float) -> float:
    """Quantile of sorted values; torch.quantile takes no more than 16 million."""
    if not len(ordered):
        return math.inf
    place = level * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = float(ordered[below]), float(ordered[above])
    return low + (place - below) * (high - low)


def _quota(masks: Sequence[Tensor], share: float, gather: Gather) -> int:
    """How many tokens `share` of the step is: rounded down, but one at least."""
    if not 0 <= share <= 1:
        raise ValueError(f"share={share}; expected a share of the tokens, from 0 to 1")
    counts = torch.tensor([sum(int(mask.sum()) for mask in masks)], dtype=torch.int64)
    num_tokens = int(gather(counts).sum())
    # In floating point 0.29 * 100 is 28.999999999999996.
    return max(math.floor(share * num_tokens + 1e-6), 1) if share else 0


def _smallest(
    values: Sequence[Tensor],
    draws: Sequence[Tensor],
    candidates: Sequence[Tensor],
    count: int,
    gather: Gather,
) -> list[Tensor]:
    """The `count` candidates of the step that come first by (value, draw).

    A rank sends no more than `count` of its own, since no other can be among them.
    """
    if count == 0:
        return [torch.zeros_like(candidate) for candidate in candidates]
    pairs = [
        torch.stack([value[candidate], draw[candidate]], 1).cpu()
        for value, draw, candidate in zip(values, draws, candidates, strict=True)
    ]
    own = torch.cat([torch.empty(0, 2, dtype=torch.float64), *pairs])
    if len(own) > count:
        own = own[own[:, 0] <= own[:, 0].kthvalue(count).values]
    first = _ordered(gather(_ordered(own)[:count].flatten()).view(-1, 2))[:count]
    if not len(first):
        return [torch.zeros_like(candidate) for candidate in candidates]
    last_value, last_draw = first[-1].tolist()
    return [
        candidate & ((value < last_value) | ((value == last_value) & (draw <= last_draw)))
        for value, draw, candidate in zip(values, draws, candidates, strict=True)
    ]


def _ordered(pairs: Tensor) -> Tensor:
    """Pairs [n, 2] in lexicographic order."""
    pairs = pairs[pairs[:, 1].argsort()]
    return pairs[pairs[:, 0].argsort(stable=True)]


def _draws(masks: Sequence[Tensor], keys: Sequence[Sequence[int]], seed: int) -> list[Tensor]:
    """A uniform number in [0, 1) for every trained token, [B, T] float64.

    It is a hash of seed, row key and the token's number within its row, rather than the output of
    a generator: a generator's numbers would depend on the width of the tensor and on the device.
    """
    start = torch.tensor(_signed(seed), dtype=torch.int64)
    draws = []
    for mask, row_keys in zip(masks, keys, strict=True):
        rows = torch.tensor([_signed(key) for key in row_keys], device=mask.device)
        if rows.shape != mask.shape[:1]:
            raise ValueError(f"{len(row_keys)} keys for a microbatch of {mask.shape[0]} rows")
        places = mask.cumsum(1)
        state = _mixed(_mixed(_mixed(start.to(mask.device)) + rows)[:, None] + places)
        draws.append(_shifted(state, 11).double() * 2.0**-53)
    return draws


def _mixed(state: Tensor) -> Tensor:
    """splitmix64 (Steele, Lea and Flood 2014) of int64 numbers, which wrap around."""
    state = state + _signed(0x9E3779B97F4A7C15)
    state = (state ^ _shifted(state, 30)) * _signed(0xBF58476D1CE4E5B9)
    state = (state ^ _shifted(state, 27)) * _signed(0x94D049BB133111EB)
    return state ^ _shifted(state, 31)


def _shifted(state: Tensor, places: int) -> Tensor:
    """Logical shift to the right; that of int64 would copy the sign."""
    return (state >> places) & ((1 << (64 - places)) - 1)


def _signed(value: int) -> int:
    """The int64 that has the lowest 64 bits of `value`."""
    value &= _MASK_64
    return value - (1 << 64) if value >> 63 else value
