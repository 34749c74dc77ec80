"""What the sampling kernels share: the allowed logits of a chunk, and inverse CDF."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl

from workings.rollout import engine

LEAST_KEPT_MASS = tl.constexpr(engine.LEAST_KEPT_MASS)


@triton.jit
def load_allowed(row_logits, part, vocabulary, banned, count, chunk: tl.constexpr):
    """Float32 [chunk], -inf at the first `count` ids of `banned` and past the vocabulary."""
    token = part * chunk + tl.arange(0, chunk)
    values = tl.load(row_logits + token, mask=token < vocabulary, other=float("-inf"))
    values = values.to(tl.float32)
    for index in range(count):
        values = tl.where(token == tl.load(banned + index), float("-inf"), values)
    return values


@triton.jit
def invert(weight, index, target):
    """(index, sum before it) of the first cumulative sum above `target`, in order of `index`.

    Only an index of positive weight is given: a scan in parallel may round a sum up past the target
    at an index that weighs nothing, and a target may be rounded up to the total.
    """
    cumulative = tl.cumsum(weight, axis=0)
    positive = weight > 0.0
    last = tl.max(tl.where(positive, index, 0), axis=0)
    above = positive & (cumulative > target)
    first = tl.min(tl.where(above, index, last), axis=0)
    before = tl.sum(tl.where(index < first, weight, 0.0), axis=0)
    return first, before


@triton.jit
def normaliser(row_logits, base, allowed, heat, banned, count):
    """(weight of the whole row, the logit it is relative to), both finite where the logits are.

    `allowed` is the weight relative to `base` of what may be drawn. The first `count` ids of
    `banned` are added, one of which may outweigh it by more than a float can hold.
    """
    highest = base
    for index in range(count):
        highest = tl.maximum(highest, tl.load(row_logits + tl.load(banned + index)).to(tl.float32))
    total = allowed * tl.exp((base - highest).to(tl.float64) / heat)
    for index in range(count):
        value = tl.load(row_logits + tl.load(banned + index)).to(tl.float32)
        total += tl.exp((value - highest).to(tl.float64) / heat)
    return total, highest


@triton.jit
def kept_share(kept, base, total, highest, heat):
    """Float64: the weight `kept` relative to `base` as a share of `normaliser`'s, never 0."""
    share = kept * tl.exp((base - highest).to(tl.float64) / heat) / total
    return tl.minimum(tl.maximum(share, LEAST_KEPT_MASS), 1.0)
