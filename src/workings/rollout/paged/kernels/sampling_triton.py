"""`sample` in Triton: the logits are read once, then the one chunk that holds the drawn token.

The first kernel leaves the maximum and the sum of exponentials of every chunk of the vocabulary
(without what the row must not draw). For a plain or greedy draw the second kernel, one program per
row, picks a chunk from these and a token inside it. Truncated draws are in `truncation_triton`.
Sums are float32 inside a chunk and float64 above it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import torch
import triton
import triton.language as tl

from workings.rollout.paged.kernels.chunks_triton import (
    invert,
    kept_share,
    load_allowed,
    normaliser,
)
from workings.rollout.paged.kernels.truncation_triton import truncated_kernel

CHUNK = 4096
TRUNCATED_CHUNK = 1024
"""Smaller, because a truncated draw skips the chunks that hold nothing near the cut."""


def sample(
    logits: torch.Tensor,
    uniforms: torch.Tensor,
    *,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    mode: str,
    banned: torch.Tensor | None = None,
    banned_rows: torch.Tensor | None = None,
    chunk: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See `sampling.sample`; `chunk` is for tests and measurements."""
    rows, vocabulary = logits.shape
    device = logits.device
    assert logits.stride(1) == 1
    assert uniforms.dtype == torch.float64
    ids = torch.empty(rows, dtype=torch.int32, device=device)
    logprobs = torch.empty(rows, dtype=torch.float32, device=device)
    kept_mass = torch.empty(rows, dtype=torch.float32, device=device)
    if rows == 0:
        return ids, logprobs, kept_mass
    has_ban = banned is not None and banned_rows is not None and banned.numel() > 0
    num_banned = banned.numel() if has_ban and banned is not None else 0
    # Without a ban the kernels do not read these two.
    bans = (banned, banned_rows) if has_ban else (ids, ids)
    chunk = chunk or (TRUNCATED_CHUNK if mode == "truncated" else CHUNK)
    num_chunks = triton.cdiv(vocabulary, chunk)
    peaks = torch.empty((rows, num_chunks), dtype=torch.float32, device=device)
    sums = torch.empty((rows, num_chunks), dtype=torch.float32, device=device)
    greedy = mode == "greedy"
    best = torch.empty((rows, num_chunks), dtype=torch.int32, device=device) if greedy else ids
    sizes = {"chunk": chunk, "has_ban": has_ban}
    _summary_kernel[(num_chunks, rows)](
        logits,
        temperature,
        *bans,
        peaks,
        sums,
        best,
        logits.stride(0),
        vocabulary,
        num_banned,
        num_chunks,
        greedy=greedy,
        num_warps=4,
        **sizes,
    )
    results = (ids, logprobs, kept_mass)
    sizes |= {"chunks_block": triton.next_power_of_2(num_chunks)}
    if mode == "truncated":
        truncated_kernel[(rows,)](
            logits,
            uniforms,
            temperature,
            top_k,
            top_p,
            min_p,
            *bans,
            peaks,
            sums,
            *results,
            logits.stride(0),
            vocabulary,
            num_banned,
            num_chunks,
            num_warps=4,
            **sizes,
        )
    else:
        _draw_kernel[(rows,)](
            logits,
            uniforms,
            temperature,
            *bans,
            peaks,
            sums,
            best,
            *results,
            logits.stride(0),
            vocabulary,
            num_banned,
            num_chunks,
            greedy=greedy,
            num_warps=8,
            **sizes,
        )
    return results


@triton.jit
def _summary_kernel(
    logits,
    temperature,
    banned,
    banned_rows,
    peaks,
    sums,
    best,
    stride,
    vocabulary,
    num_banned,
    num_chunks,
    chunk: tl.constexpr,
    greedy: tl.constexpr,
    has_ban: tl.constexpr,
):
    """Maximum and sum of exp((logit - maximum) / temperature) of one chunk of one row."""
    part = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    count = 0
    if has_ban:
        count = tl.where(tl.load(banned_rows + row) != 0, num_banned, 0)
    values = load_allowed(logits + row * stride, part, vocabulary, banned, count, chunk)
    heat = 1.0
    if not greedy:
        heat = tl.load(temperature)
    if greedy:
        peak, where = tl.max(values, axis=0, return_indices=True)
        tl.store(best + row * num_chunks + part, part * chunk + where)
    else:
        peak = tl.max(values, axis=0)
    # NaN and +inf make the sum NaN; a chunk of -inf has the sum 0.
    base = tl.where(peak == float("-inf"), 0.0, peak)
    total = tl.sum(tl.exp2((values - base) * (1.4426950408889634 / heat)), axis=0)
    tl.store(peaks + row * num_chunks + part, peak)
    tl.store(sums + row * num_chunks + part, total)


@triton.jit
def _draw_kernel(
    logits,
    uniforms,
    temperature,
    banned,
    banned_rows,
    peaks,
    sums,
    best,
    ids,
    logprobs,
    kept_mass,
    stride,
    vocabulary,
    num_banned,
    num_chunks,
    chunk: tl.constexpr,
    chunks_block: tl.constexpr,
    greedy: tl.constexpr,
    has_ban: tl.constexpr,
):
    """The draw of one row: a chunk by the summaries, then a token inside it."""
    row = tl.program_id(0).to(tl.int64)
    row_logits = logits + row * stride
    part = tl.arange(0, chunks_block)
    listed = part < num_chunks
    peak = tl.load(peaks + row * num_chunks + part, mask=listed, other=float("-inf"))
    chunk_sum = tl.load(sums + row * num_chunks + part, mask=listed, other=0.0)
    heat = 1.0
    if not greedy:
        heat = tl.load(temperature)
    highest = tl.max(peak, axis=0)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    scale = tl.exp((peak - base).to(tl.float64) / heat)
    weight = chunk_sum.to(tl.float64) * scale
    allowed = tl.sum(weight, axis=0)
    count = 0
    if has_ban:
        count = tl.where(tl.load(banned_rows + row) != 0, num_banned, 0)
    total, top = normaliser(row_logits, base, allowed, heat, banned, count)
    if greedy:
        chosen = tl.min(tl.where(peak == highest, part, chunks_block - 1), axis=0)
        token = tl.load(best + row * num_chunks + tl.minimum(chosen, num_chunks - 1))
        value = highest
    else:
        target = tl.load(uniforms + row) * allowed
        chosen, before = invert(weight, part, target)
        chosen = tl.minimum(chosen, num_chunks - 1)
        chosen_peak = tl.load(peaks + row * num_chunks + chosen)
        chosen_base = tl.where(chosen_peak == float("-inf"), 0.0, chosen_peak)
        rest = (target - before) / tl.exp((chosen_base - base).to(tl.float64) / heat)
        values = load_allowed(row_logits, chosen, vocabulary, banned, count, chunk)
        factor = 1.4426950408889634 / heat
        inner = tl.exp2((values - chosen_base) * factor).to(tl.float64)
        place = tl.arange(0, chunk)
        within, _ = invert(inner, place, rest)
        token = chosen * chunk + within
        value = tl.max(tl.where(place == within, values, float("-inf")), axis=0)
    logprob = (value - top).to(tl.float64) / heat - tl.log(total)
    valid = (allowed > 0.0) & (total < float("inf"))
    tl.store(ids + row, tl.where(valid, token, -1))
    tl.store(logprobs + row, tl.where(valid, logprob, float("nan")).to(tl.float32))
    mass = tl.zeros([], tl.float64) + 1.0
    if not greedy:
        mass = kept_share(allowed, base, total, top, heat)
    tl.store(kept_mass + row, tl.where(valid, mass, float("nan")).to(tl.float32))
