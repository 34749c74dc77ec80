"""One token per row from logits: temperature, top-k, top-p, min-p, greedy, with exact bookkeeping.

A row is drawn by inverse CDF from one uniform number, in two levels: float32 sums over blocks of
256 tokens, then a float64 cumulative sum over the blocks and inside the one that was hit. That
reads the vocabulary a few times and never sorts it, where a full cumulative sum in float64 or
`torch.multinomial` is five to twenty times slower on a CPU.

What is reported is the log-probability at the temperature over the **full** vocabulary, and the
mass that truncation (and a ban on EOS) left, so that the distribution sampled from has
log-probability `logprobs - log(kept_mass)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workings.rollout.engine import LEAST_KEPT_MASS, SamplingParams
from workings.rollout.engine_errors import broken_logits

BLOCK = 256
CPU_CHUNK_ELEMENTS = 1 << 20
GPU_CHUNK_ELEMENTS = 1 << 28
FIRST_CANDIDATES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTokens:
    """One step.

    Attributes:
        ids: int64 [rows].
        logprobs: float32 [rows], at the temperature (greedy: 1) over the full vocabulary; NaN when
            they were not asked for.
        kept_mass: float32 [rows], probability mass of the tokens that could have been drawn; at
            least `LEAST_KEPT_MASS`.
    """

    ids: torch.Tensor
    logprobs: torch.Tensor
    kept_mass: torch.Tensor


def sample_tokens(
    logits: torch.Tensor,
    uniforms: torch.Tensor,
    *,
    sampling: SamplingParams,
    banned_ids: torch.Tensor | None = None,
    banned_rows: torch.Tensor | None = None,
) -> SampledTokens:
    """A token for each row of `logits`.

    Args:
        logits: floating [rows, vocabulary].
        uniforms: float64 [rows] in [0, 1); row i's only source of randomness.
        sampling: temperature, top_k, top_p, min_p and logprobs are read. Truncation applies in
            the order top-k, top-p (of what top-k left, renormalised), min-p, as in transformers.
        banned_ids: int64 [n], ids that `banned_rows` must not draw (EOS before min_tokens).
        banned_rows: bool [rows].

    Raises EngineError for logits that are NaN or infinite, which means broken weights.
    """
    rows, vocabulary = logits.shape
    limit = CPU_CHUNK_ELEMENTS if logits.device.type == "cpu" else GPU_CHUNK_ELEMENTS
    chunk = max(1, limit // vocabulary)
    parts = []
    for start in range(0, rows, chunk):
        span = slice(start, start + chunk)
        part = logits[span]
        part = part if part.dtype == torch.float64 else part.float()
        ban = None
        if banned_ids is not None and banned_rows is not None and bool(banned_rows[span].any()):
            ban = (banned_rows[span].nonzero(), banned_ids)
        if sampling.temperature == 0:
            parts.append(_greedy(part, ban, sampling.logprobs))
        else:
            parts.append(_draw(part, uniforms[span], ban, sampling))
    if len(parts) == 1:
        return parts[0]
    return SampledTokens(
        ids=torch.cat([part.ids for part in parts]),
        logprobs=torch.cat([part.logprobs for part in parts]),
        kept_mass=torch.cat([part.kept_mass for part in parts]),
    )


Ban = tuple[torch.Tensor, torch.Tensor]
"""Row indices [n, 1] and token ids [m] of logits that must not be drawn."""


def _without(logits: torch.Tensor, ban: Ban) -> torch.Tensor:
    """The logits with -inf in place of those that must not be drawn."""
    allowed = logits.clone()
    allowed[ban] = -torch.inf
    return allowed


def _greedy(logits: torch.Tensor, ban: Ban | None, logprobs: bool) -> SampledTokens:
    best, ids = logits.max(dim=-1)
    _check_finite(best)
    if ban is not None:
        best, ids = _without(logits, ban).max(dim=-1)
        _check_finite(best)
    if logprobs:
        values = best - torch.logsumexp(logits, dim=-1)
    else:
        values = torch.full_like(best, torch.nan)
    return SampledTokens(ids=ids, logprobs=values.float(), kept_mass=torch.ones_like(best).float())


def _draw(
    logits: torch.Tensor, uniforms: torch.Tensor, ban: Ban | None, sampling: SamplingParams
) -> SampledTokens:
    rows, vocabulary = logits.shape
    allowed, highest = logits, logits.amax(dim=-1, keepdim=True)
    _check_finite(highest)
    if ban is not None:
        allowed = _without(logits, ban)
        highest = allowed.amax(dim=-1, keepdim=True)
        _check_finite(highest)
    # Padded to whole blocks, so that the sums below are views; weights are exp(logit/T - max/T).
    padded = logits.new_empty(rows, -(-vocabulary // BLOCK) * BLOCK)
    padded[:, vocabulary:] = 0.0
    weights = padded[:, :vocabulary]
    torch.sub(allowed, highest, out=weights)
    if sampling.temperature != 1.0:
        weights.div_(sampling.temperature)
    weights.exp_()
    blocks = _block_sums(padded)
    log_total = blocks.sum(dim=-1).log()
    if ban is not None:
        # In logarithms: a banned token may outweigh the others by more than a float can hold.
        _add_banned(log_total, logits, highest, ban, sampling.temperature)
    if sampling.top_k > 0 or sampling.top_p < 1.0:
        ids, kept = _draw_from_candidates(weights, uniforms, sampling)
    else:
        if sampling.min_p > 0.0:
            weights.mul_(weights >= sampling.min_p * weights.amax(dim=-1, keepdim=True))
            blocks = _block_sums(padded)
        ids, kept = _draw_by_blocks(padded, blocks, uniforms)
    if sampling.logprobs:
        chosen = (logits.gather(-1, ids[:, None]) - highest).double()[:, 0]
        logprobs = chosen / sampling.temperature - log_total
    else:
        logprobs = torch.full_like(log_total, torch.nan)
    plain = ban is None and not sampling.truncates
    mass = torch.ones_like(kept) if plain else (kept.log() - log_total).exp()
    return SampledTokens(
        ids=ids,
        logprobs=logprobs.float(),
        kept_mass=mass.clamp_(min=LEAST_KEPT_MASS, max=1.0).float(),
    )


def _add_banned(
    log_total: torch.Tensor,
    logits: torch.Tensor,
    highest: torch.Tensor,
    ban: Ban,
    temperature: float,
) -> None:
    """Count what must not be drawn into `log_total`, which is relative to `highest`."""
    rows = ban[0][:, 0]
    banned = (logits[ban].double() - highest[rows].double()) / temperature
    log_total[rows] = torch.logaddexp(log_total[rows], banned.logsumexp(dim=-1))


def _block_sums(padded: torch.Tensor) -> torch.Tensor:
    """Float64 [rows, blocks] from weights [rows, blocks * BLOCK]."""
    return padded.view(padded.shape[0], -1, BLOCK).sum(dim=-1).double()


def _draw_by_blocks(
    padded: torch.Tensor, blocks: torch.Tensor, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, total weight) of a draw in proportion to the weights of each row."""
    block, rest, total = _invert(blocks, uniforms * blocks.sum(dim=-1))
    row = torch.arange(padded.shape[0], device=padded.device)
    inside = padded.view(padded.shape[0], -1, BLOCK)[row, block].double()
    token, _, _ = _invert(inside, rest)
    return block * BLOCK + token, total


def _draw_from_candidates(
    weights: torch.Tensor, uniforms: torch.Tensor, sampling: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, kept weight) of a draw from the tokens that top-k, top-p and min-p leave."""
    vocabulary = weights.shape[-1]
    if sampling.top_k > 0:
        values, ids = weights.topk(min(sampling.top_k, vocabulary), dim=-1)
        base = values.double().sum(dim=-1)
    else:
        base = weights.sum(dim=-1, dtype=torch.float64)
        values, ids = _enough_candidates(weights, base * sampling.top_p)
    kept = values.double()
    if sampling.top_p < 1.0:
        before = kept.cumsum(dim=-1) - kept
        kept = torch.where(before < (base * sampling.top_p)[:, None], kept, 0.0)
        kept[:, 0] = values[:, 0].double()
    if sampling.min_p > 0.0:
        kept = torch.where(kept >= sampling.min_p * kept[:, :1], kept, 0.0)
    position, _, total = _invert(kept, uniforms * kept.sum(dim=-1))
    return ids.gather(-1, position[:, None])[:, 0], total


def _enough_candidates(
    weights: torch.Tensor, needed: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest weights of each row, sorted, at least as many as it takes to reach `needed`.

    Sorting a whole vocabulary costs some fifty times more than taking a few hundred of it, which
    is enough for most rows; only the others are asked for more, and short rows end in zeros.
    """
    vocabulary = weights.shape[-1]
    count = min(FIRST_CANDIDATES, vocabulary)
    values, ids = weights.topk(count, dim=-1)
    short = (values.double().sum(dim=-1) < needed).nonzero()[:, 0]
    while len(short) and count < vocabulary:
        added = min(count * 8, vocabulary) - count
        count += added
        values = torch.nn.functional.pad(values, (0, added))
        ids = torch.nn.functional.pad(ids, (0, added))
        values[short], ids[short] = weights[short].topk(count, dim=-1)
        short = short[values[short].double().sum(dim=-1) < needed[short]]
    return values, ids


def _invert(
    weights: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inverse CDF of float64 weights [rows, n] at `targets` [rows], on the scale of the weights.

    Gives the index of the first cumulative sum above the target (its weight is then positive), the
    rest of the target inside it, and the total.
    """
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[:, -1]
    # Rounding may put a target on the total; the last positive weight is meant then.
    below = torch.nextafter(total, torch.zeros_like(total))
    targets = torch.minimum(targets, below).clamp_(min=0.0)
    index = torch.searchsorted(cumulative, targets[:, None], right=True)
    index = index.clamp_(max=weights.shape[-1] - 1)
    before = (cumulative - weights).gather(-1, index)[:, 0]
    return index[:, 0], targets - before, total


def _check_finite(highest: torch.Tensor) -> None:
    if not bool(torch.isfinite(highest).all()):
        raise broken_logits()
