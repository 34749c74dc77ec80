"""A draw under top-k, top-p and min-p that sorts nothing: one program per row.

Top-k, top-p and the draw itself, taken from the most to the least likely token, ask the same
question: which is the largest logit such that the tokens from it upwards number, or weigh, so much?
`_largest_reaching` narrows an interval of logits with several pivots at a time. Bounds from the
maxima of the chunks come first, and a chunk whose maximum is below the interval is not read again,
so beyond the first summary few chunks are read.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl

from workings.rollout.paged.kernels.chunks_triton import (
    invert,
    kept_share,
    load_allowed,
    normaliser,
)

NUM_PIVOTS = tl.constexpr(8)
BOUND_STEPS = tl.constexpr(20)
MOST_PASSES = tl.constexpr(64)
"""Of one search; it takes about ten at most, and a GPU must not hang on what nobody foresaw."""
WEIGHTLESS = tl.constexpr(104.0)
"""exp(-104) is 0 in float32: a logit so many temperatures below the largest cannot be drawn."""


@triton.jit
def _just_above(value):
    """A float32 a few ulp above `value`."""
    return value + tl.maximum(tl.abs(value) * 2.5e-7, 1e-37)


@triton.jit
def _amount(values, highest, factor, counting: tl.constexpr):
    """What each logit counts for: 1, or its weight relative to the largest."""
    if counting:
        return (values > float("-inf")).to(tl.float32)
    else:
        return tl.exp2((values - highest) * factor)


@triton.jit
def _reached(amount, needed, strictly: tl.constexpr):
    if strictly:
        return amount > needed
    else:
        return amount >= needed


@triton.jit
def _bound(peak, highest, factor, floor, needed, counting: tl.constexpr, strictly: tl.constexpr):
    """A logit that reaches `needed` by the maxima of the chunks alone, or `floor`; by bisection."""
    amount = _amount(peak, highest, factor, counting).to(tl.float64)
    low = floor
    high = _just_above(highest)
    for _ in range(BOUND_STEPS):
        middle = low + (high - low) * 0.5
        enough = _reached(tl.sum(tl.where(peak >= middle, amount, 0.0), axis=0), needed, strictly)
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    return low


@triton.jit
def _largest_reaching(
    row_logits,
    row_peaks,
    peak,
    highest,
    factor,
    floor,
    needed,
    vocabulary,
    banned,
    count,
    num_chunks,
    chunk: tl.constexpr,
    counting: tl.constexpr,
    strictly: tl.constexpr,
):
    """(logit, amount above it): the largest of the row, at least `floor`, that reaches `needed`.

    A logit reaches it when the tokens from it upwards number (counting) or weigh so much; more than
    so much if `strictly`. The smallest logit from `floor` on is given if none does.
    """
    low = _bound(peak, highest, factor, floor, needed, counting, strictly)
    high = _just_above(highest)
    above = tl.zeros([], tl.float64)  # amount from `high` upwards
    answer = low
    pivot_index = tl.arange(0, NUM_PIVOTS)
    passes = 0
    while (low < high) & (passes < MOST_PASSES):
        pivots = low + (high - low) * (pivot_index.to(tl.float32) / NUM_PIVOTS)
        amounts = tl.zeros([NUM_PIVOTS], tl.float64)
        least = high
        most = low
        for part in range(num_chunks):
            if tl.load(row_peaks + part) >= low:
                values = load_allowed(row_logits, part, vocabulary, banned, count, chunk)
                amount = _amount(values, highest, factor, counting)
                reached = values[None, :] >= pivots[:, None]
                sums = tl.sum(tl.where(reached, amount[None, :], 0.0), axis=1)
                amounts += sums.to(tl.float64)
                between = (values >= low) & (values < high)
                least = tl.minimum(least, tl.min(tl.where(between, values, high), axis=0))
                most = tl.maximum(most, tl.max(tl.where(between, values, low), axis=0))
        answer = tl.minimum(least, most)
        if least < most:
            enough = _reached(amounts, needed, strictly)
            low = tl.maximum(least, tl.max(tl.where(enough, pivots, low), axis=0))
            lowest_miss = tl.min(tl.where(enough, high, pivots), axis=0)
            # Amounts fall from pivot to pivot, so the largest among the misses is the lowest's.
            missed = tl.max(tl.where(enough, above, amounts), axis=0)
            if lowest_miss < high:
                above = missed
            high = tl.minimum(lowest_miss, _just_above(most))
        else:
            high = low
        passes += 1
    return answer, above


@triton.jit
def _kept(
    row_logits,
    row_peaks,
    highest,
    factor,
    cut,
    vocabulary,
    banned,
    count,
    num_chunks,
    chunk: tl.constexpr,
):
    """(weight, smallest logit) of the tokens from `cut` upwards."""
    weight = tl.zeros([], tl.float64)
    least = highest
    for part in range(num_chunks):
        if tl.load(row_peaks + part) >= cut:
            values = load_allowed(row_logits, part, vocabulary, banned, count, chunk)
            amount = _amount(values, highest, factor, False)
            inside = values >= cut
            weight += tl.sum(tl.where(inside, amount, 0.0), axis=0).to(tl.float64)
            least = tl.minimum(least, tl.min(tl.where(inside, values, highest), axis=0))
    return weight, least


@triton.jit
def _tied_token(
    row_logits,
    row_peaks,
    logit,
    rank,
    vocabulary,
    banned,
    count,
    num_chunks,
    chunk: tl.constexpr,
):
    """Id of the token number `rank` among those with this logit, the last if there are fewer."""
    token = -1
    seen = 0
    place = tl.arange(0, chunk)
    for part in range(num_chunks):
        if (tl.load(row_peaks + part) >= logit) & (seen <= rank):
            values = load_allowed(row_logits, part, vocabulary, banned, count, chunk)
            tied = values == logit
            order = seen + tl.cumsum(tied.to(tl.int32), axis=0)
            found = tl.max(tl.where(tied & (order <= rank + 1), place, -1), axis=0)
            token = tl.where(found >= 0, part * chunk + found, token)
            seen += tl.sum(tied.to(tl.int32), axis=0)
    return token


@triton.jit
def _token_in_order(
    row_logits,
    row_peaks,
    highest,
    factor,
    cut,
    target,
    vocabulary,
    banned,
    count,
    num_chunks,
    chunk: tl.constexpr,
):
    """(id, logit) where the weights from `cut` upwards pass `target`, in the vocabulary's order."""
    token = -1
    logit = highest
    before = tl.zeros([], tl.float64)
    place = tl.arange(0, chunk)
    for part in range(num_chunks):
        if (tl.load(row_peaks + part) >= cut) & (before <= target):
            values = load_allowed(row_logits, part, vocabulary, banned, count, chunk)
            weights = _amount(values, highest, factor, False).to(tl.float64)
            weights = tl.where(values >= cut, weights, 0.0)
            within, _ = invert(weights, place, target - before)
            token = part * chunk + within
            logit = tl.max(tl.where(place == within, values, float("-inf")), axis=0)
            before += tl.sum(weights, axis=0)
    return token, logit


@triton.jit
def truncated_kernel(
    logits,
    uniforms,
    temperature,
    top_k,
    top_p,
    min_p,
    banned,
    banned_rows,
    peaks,
    sums,
    ids,
    logprobs,
    kept_mass,
    stride,
    vocabulary,
    num_banned,
    num_chunks,
    chunk: tl.constexpr,
    chunks_block: tl.constexpr,
    has_ban: tl.constexpr,
):
    """Top-k, then top-p of what it left, then min-p, then the draw, of one row."""
    row = tl.program_id(0).to(tl.int64)
    row_logits = logits + row * stride
    row_peaks = peaks + row * num_chunks
    part = tl.arange(0, chunks_block)
    listed = part < num_chunks
    peak = tl.load(row_peaks + part, mask=listed, other=float("-inf"))
    chunk_sum = tl.load(sums + row * num_chunks + part, mask=listed, other=0.0)
    heat = tl.load(temperature)
    factor = 1.4426950408889634 / heat
    highest = tl.max(peak, axis=0)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    allowed = tl.sum(chunk_sum.to(tl.float64) * tl.exp((peak - base).to(tl.float64) / heat), axis=0)
    count = 0
    if has_ban:
        count = tl.where(tl.load(banned_rows + row) != 0, num_banned, 0)
    total, top = normaliser(row_logits, base, allowed, heat, banned, count)

    cut = base - WEIGHTLESS * heat
    left = allowed
    most = tl.load(top_k)
    if most > 0:
        cut, _ = _largest_reaching(
            row_logits,
            row_peaks,
            peak,
            base,
            factor,
            cut,
            most.to(tl.float64),
            vocabulary,
            banned,
            count,
            num_chunks,
            chunk,
            counting=True,
            strictly=False,
        )
        left, _ = _kept(
            row_logits,
            row_peaks,
            base,
            factor,
            cut,
            vocabulary,
            banned,
            count,
            num_chunks,
            chunk,
        )
    nucleus = tl.load(top_p)
    if nucleus < 1.0:
        # So light that all tokens of the row, if they weighed no more, would fit into what is cut.
        light = tl.log(tl.maximum(0.99 * (1.0 - nucleus) / vocabulary, 1e-37)) * heat
        cut, _ = _largest_reaching(
            row_logits,
            row_peaks,
            peak,
            base,
            factor,
            tl.maximum(cut, base + light),
            left * nucleus,
            vocabulary,
            banned,
            count,
            num_chunks,
            chunk,
            counting=False,
            strictly=False,
        )
    least_share = tl.load(min_p)
    if least_share > 0.0:
        cut = tl.maximum(cut, base + tl.log(least_share) * heat)

    kept, least = _kept(
        row_logits, row_peaks, base, factor, cut, vocabulary, banned, count, num_chunks, chunk
    )
    target = tl.load(uniforms + row) * kept
    if (most > 0) | (nucleus < 1.0):
        logit, above = _largest_reaching(
            row_logits,
            row_peaks,
            peak,
            base,
            factor,
            least,
            target,
            vocabulary,
            banned,
            count,
            num_chunks,
            chunk,
            counting=False,
            strictly=True,
        )
        weight = tl.exp2((logit - base) * factor).to(tl.float64)
        rank = tl.minimum(tl.maximum((target - above) / weight, 0.0), 1e9).to(tl.int32)
        token = _tied_token(
            row_logits, row_peaks, logit, rank, vocabulary, banned, count, num_chunks, chunk
        )
    else:
        token, logit = _token_in_order(
            row_logits,
            row_peaks,
            base,
            factor,
            cut,
            target,
            vocabulary,
            banned,
            count,
            num_chunks,
            chunk,
        )
    logprob = (logit - top).to(tl.float64) / heat - tl.log(total)
    valid = (allowed > 0.0) & (total < float("inf")) & (token >= 0)
    tl.store(ids + row, tl.where(valid, token, -1))
    tl.store(logprobs + row, tl.where(valid, logprob, float("nan")).to(tl.float32))
    mass = kept_share(kept, base, total, top, heat)
    tl.store(kept_mass + row, tl.where(valid, mass, float("nan")).to(tl.float32))
