"""One token per row from logits, with its exact log-probability, all on the device.

The semantics are those of `workings.rollout.sampler.sample_tokens`: temperature, then top-k, top-p
(of what top-k left) and min-p, then inverse CDF from one uniform number; the log-probability is
over the full vocabulary. The settings are one-element tensors, because they are read inside a
captured CUDA graph; nothing is read back to the CPU, so broken logits are reported by an id of -1.
"""

from __future__ import annotations

from typing import Literal

import torch

from workings.rollout.engine import LEAST_KEPT_MASS

Mode = Literal["greedy", "plain", "truncated"]
GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
FIRST_FACTOR = 0xBF58476D1CE4E5B9 - (1 << 64)
SECOND_FACTOR = 0x94D049BB133111EB - (1 << 64)
BROKEN = -1
"""Id of a row whose logits are not finite."""


def step_uniforms(keys: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Float64 [rows] in [0, 1), the bits that `workings.rollout.draws.uniforms` gives.

    Args:
        keys: int64 [rows], the bits of the uint64 stream keys.
        steps: int32 [rows], not negative.
    """
    if keys.is_cuda:
        from workings.rollout.paged.kernels import uniforms_triton

        return uniforms_triton.step_uniforms(keys, steps)
    return step_uniforms_torch(keys, steps)


def sample(
    logits: torch.Tensor,
    uniforms: torch.Tensor,
    *,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    mode: Mode,
    banned: torch.Tensor | None = None,
    banned_rows: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(ids int32 [rows], logprobs float32 [rows], kept_mass float32 [rows]).

    The same uniform gives the same token as `sample_tokens`. Both draw in the order of the
    vocabulary, and under top-k or top-p from the most to the least likely of the kept tokens. They
    differ where weights tie: tokens that tie with the last one kept by top-k or top-p are all kept
    here, as in transformers' top-k, and tied tokens stand in the order of the vocabulary. They
    differ, further, in a draw that is within rounding, about 1e-7, of a boundary.

    Args:
        logits: float32 or bfloat16 [rows, vocabulary], rows contiguous.
        uniforms: float64 [rows] in [0, 1).
        temperature, top_p, min_p: float32 [1]; temperature is not read by "greedy", the others are
            read by "truncated" alone (top_p >= 1 and min_p <= 0 are off).
        top_k: int32 [1], 0 or less is off; read by "truncated" alone.
        mode: "plain" draws from the whole distribution; "greedy" takes the first of the largest
            logits and reports its log-probability at temperature 1.
        banned: int32 [n], ids that `banned_rows` must not draw; they stay in the normaliser.
        banned_rows: bool [rows].

    A row whose logits hold NaN or infinity, or nothing that may be drawn, has id -1 and NaN.
    """
    draw = sample_torch
    if logits.is_cuda:
        from workings.rollout.paged.kernels import sampling_triton

        draw = sampling_triton.sample
    return draw(
        logits,
        uniforms,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        mode=mode,
        banned=banned,
        banned_rows=banned_rows,
    )


def step_uniforms_torch(keys: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """The definition of `step_uniforms`, in torch: SplitMix64 in wrapping int64 arithmetic."""
    words = keys + (steps.long() + 1) * GOLDEN
    words = (words ^ _shifted(words, 30)) * FIRST_FACTOR
    words = (words ^ _shifted(words, 27)) * SECOND_FACTOR
    words = words ^ _shifted(words, 31)
    return _shifted(words, 11).double() * 2.0**-53


def _shifted(words: torch.Tensor, count: int) -> torch.Tensor:
    """A logical shift to the right; torch's own repeats the sign."""
    return (words >> count) & ((1 << (64 - count)) - 1)


def sample_torch(
    logits: torch.Tensor,
    uniforms: torch.Tensor,
    *,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    mode: Mode,
    banned: torch.Tensor | None = None,
    banned_rows: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The definition of `sample`, in torch: float64 over the whole vocabulary, sorted if cut."""
    exact = logits.double()
    allowed = exact
    if banned is not None and banned_rows is not None:
        ban = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
        ban = ban.index_fill(0, banned.long(), True)
        allowed = exact.masked_fill(banned_rows[:, None] & ban, -torch.inf)
    highest = allowed.amax(dim=-1, keepdim=True)
    heat = torch.ones_like(highest) if mode == "greedy" else temperature.double().expand_as(highest)
    weights = ((allowed - highest) / heat).exp()
    # In logarithms: a banned token may outweigh the others by more than a float can hold.
    log_total = ((exact - highest) / heat).logsumexp(dim=-1)
    if mode == "greedy":
        ids, log_kept = allowed.argmax(dim=-1), log_total
    elif mode == "plain":
        log_kept = weights.sum(dim=-1).log()
        ids = _inverse(weights, uniforms)
    else:
        ordered, order = weights.sort(dim=-1, descending=True, stable=True)
        cut = _cut(ordered, top_k, top_p, min_p)
        ordered = torch.where(ordered >= cut, ordered, 0.0)
        log_kept = ordered.sum(dim=-1).log()
        by_weight = order.gather(-1, _inverse(ordered, uniforms)[:, None])[:, 0]
        in_order = _inverse(torch.where(weights >= cut, weights, 0.0), uniforms)
        ids = torch.where((top_k > 0) | (top_p < 1.0), by_weight, in_order)
    chosen = exact.gather(-1, ids[:, None]) - highest
    logprobs = (chosen / heat)[:, 0] - log_total
    mass = (log_kept - log_total).exp().clamp(min=LEAST_KEPT_MASS, max=1.0)
    broken = ~torch.isfinite(logprobs)
    return (
        ids.masked_fill(broken, BROKEN).int(),
        logprobs.masked_fill(broken, torch.nan).float(),
        mass.masked_fill(broken, torch.nan).float(),
    )


def _cut(
    ordered: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor
) -> torch.Tensor:
    """The least weight kept [rows, 1], from weights in falling order."""
    vocabulary = ordered.shape[-1]
    index = torch.where(top_k > 0, top_k.clamp(max=vocabulary), vocabulary).long() - 1
    least = ordered.index_select(-1, index)
    left = torch.where(ordered >= least, ordered, 0.0)
    before = left.cumsum(dim=-1) - left
    needed = left.sum(dim=-1, keepdim=True) * top_p.double()
    inside = ((before < needed) & (left > 0.0)) | (top_p >= 1.0)
    nucleus = torch.where(inside, left, torch.inf).amin(dim=-1, keepdim=True)
    floor = torch.where(min_p > 0.0, min_p.double() * ordered[:, :1], 0.0)
    return torch.maximum(torch.maximum(least, nucleus), floor)


def _inverse(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Int64 [rows]: the first index whose cumulative weight is above `uniforms` of the total."""
    cumulative = weights.cumsum(dim=-1)
    targets = uniforms[:, None] * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, targets, right=True)
    # Rounding may put a target on the total; the last positive weight is meant then.
    places = torch.arange(weights.shape[-1], device=weights.device)
    last = torch.where(weights > 0.0, places, 0).amax(dim=-1, keepdim=True)
    return torch.minimum(index, last)[:, 0]
