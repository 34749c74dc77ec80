"""What to do about the sampler and the trainer not agreeing on a token's probability.

rho_t = pi_trainer / pi_sampler at rollout weights. A correction is a weight on the surrogate, not
on KL or entropy. Dropped rows are rows of weight 0: they keep their place in the denominators
unless the caller takes `dropped_rows` out of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from workings.config.objective import Correction
from workings.objectives.ratios import MAX_LOG_RATIO

CORRECTIONS: tuple[str, ...] = get_args(Correction)
# Bounds that a correction reads, with defaults (objectives reference, section 5). None: no default
# is published, give one; a bound that is not listed is not read.
CORRECTION_BOUNDS: dict[str, dict[str, float | None]] = {
    "none": {},
    "tis_token": {"cap": 2.0},
    "icepop": {"low": 0.5, "high": 5.0},
    "seq_product_truncate": {"cap": 3.0},
    "seq_product_mask": {"cap": 3.0},
    "geometric_truncate": {"cap": 2.0},
    "geometric_mask": {"low": 0.99, "high": 1.01},
    "k3_reject": {"threshold": 0.01},
    "off_policy_seq_mask": {"threshold": None},
}
# Products grow with the length of the answer: 0.012 nats a token over 100 tokens are a factor of
# 3.3. A run that uses one of these should say so once.
LENGTH_BIASED_CORRECTIONS = frozenset({"seq_product_truncate", "seq_product_mask"})
# Relative slack of the bounds on ratios: a float32 log-ratio is this exact.
_SLACK = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class RawValues:
    """What the bounds of a correction apply to, before any clipping; 0-d tensors.

    Ratios of tokens (none, tis_token, icepop); else one value for each row that has a scored
    trained token: the product, the geometric mean, the mean k3, or the mean gap. `smallest` and
    `largest` are inf and -inf where `num` is 0, so that parts of a step merge by min and max.
    """

    num: Tensor
    num_outside: Tensor
    total: Tensor
    smallest: Tensor
    largest: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionWeights:
    """A correction's weights, detached, and what it found.

    `weights` [B, T] multiply the per-token surrogate and are 1 off the mask. `dropped_rows` [B]
    bool has the rows that had trained tokens and are left with weight 0 on all of them.
    `num_unscored` counts trained tokens that the engine gave no probability.
    """

    weights: Tensor
    dropped_rows: Tensor
    num_unscored: Tensor
    raw: RawValues


def behaviour_logprobs(sampling_logprobs: Tensor, kept_mass: Tensor) -> Tensor:
    """Log-probability with which each token was really drawn, [B, T] float32.

    Top-k, top-p and min-p leave `kept_mass` of the distribution; what is left is renormalised, so
    a drawn token had probability p / kept_mass.
    """
    return sampling_logprobs - torch.log(kept_mass)


def mismatch_ratio(old_logprobs: Tensor, behaviour: Tensor) -> Tensor:
    """rho = pi_trainer / pi_sampler per token, detached; 1 where the engine has no score (NaN)."""
    difference = (old_logprobs.detach() - behaviour).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.where(torch.isnan(behaviour), 0.0, difference).exp()


def truncated_importance(ratio: Tensor, *, cap: float) -> Tensor:
    """min(rho, cap) per token (truncated importance sampling, TIS).

    >>> truncated_importance(torch.tensor([0.5, 1.0, 4.0]), cap=2.0).tolist()
    [0.5, 1.0, 2.0]
    """
    return ratio.clamp(max=cap)


def correction_weights(
    old_logprobs: Tensor,
    behaviour: Tensor,
    mask: Tensor,
    *,
    correction: Correction,
    cap: float | None = None,
    low: float | None = None,
    high: float | None = None,
    threshold: float | None = None,
    advantages: Tensor | None = None,
    logprobs: Tensor | None = None,
) -> CorrectionWeights:
    """Weights of the surrogate for rho = exp(old - behaviour) (objectives reference, section 5).

    - none: 1
    - tis_token: min(rho, cap)
    - icepop: rho where low <= rho <= high, else 0
    - seq_product_truncate, seq_product_mask: the product of rho over the row; at most cap, or 0
      where it is above. Biased by length
    - geometric_truncate: min(g, cap) with g = exp(mean log rho) of the row
    - geometric_mask: 1 for rows with low <= g <= high, else 0
    - k3_reject: 1 for rows with mean (rho - 1 - log rho) <= threshold, else 0
    - off_policy_seq_mask: 0 for rows with a negative advantage and mean (behaviour - logprobs) >
      threshold, else 1 (DeepSeek-V3.2, 2512.02556)

    Args:
        old_logprobs, behaviour, mask: [B, T]; `behaviour` from `behaviour_logprobs`, NaN where the
            engine has no score.
        cap, low, high, threshold: None takes the default of `CORRECTION_BOUNDS`; a bound that the
            correction does not read raises ValueError.
        advantages: [B, T] or [B, 1], for off_policy_seq_mask; a row's sign is that of its mean.
        logprobs: [B, T] of the policy being trained, for off_policy_seq_mask.

    Unscored tokens take no part in products and means, and get weight 1 unless their row is
    dropped; a row without a scored token is kept.
    """
    given = {"cap": cap, "low": low, "high": high, "threshold": threshold}
    bounds = _bounds(correction, given)
    mask = mask.bool()
    scored = mask & ~torch.isnan(behaviour)
    log_rho = torch.where(scored, _wide(old_logprobs) - _wide(behaviour), 0.0).detach()
    if correction in ("none", "tis_token", "icepop"):
        rho = log_rho.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        inside = _inside(rho, bounds)
        values, counted = rho, scored
        weights = _token_weights(rho, inside, correction, bounds)
    else:
        counted = scored.any(1, keepdim=True)
        if correction == "off_policy_seq_mask":
            gap, negative = _policy_gap(behaviour, scored, mask, advantages, logprobs)
            values, inside = gap, ~negative | (gap <= bounds["threshold"])
        elif correction == "k3_reject":
            values = _mean_k3(log_rho, scored)
            inside = values <= bounds["threshold"]
        else:
            values = _row_ratio(log_rho, scored, geometric=correction.startswith("geometric"))
            inside = _inside(values, bounds)
        inside = inside | ~counted
        weights = _row_weights(values, inside, scored, correction, bounds)
    weights = torch.where(mask, weights, 1.0)
    return CorrectionWeights(
        weights=weights,
        dropped_rows=mask.any(1) & ~(mask & (weights != 0)).any(1),
        num_unscored=(mask & ~scored).sum(),
        raw=_raw_values(values, inside, counted),
    )


def _bounds(correction: str, given: dict[str, float | None]) -> dict[str, float]:
    if correction not in CORRECTION_BOUNDS:
        raise ValueError(f"unknown correction {correction!r}; expected {', '.join(CORRECTIONS)}")
    read = CORRECTION_BOUNDS[correction]
    for name, value in given.items():
        if value is not None and name not in read:
            raise ValueError(
                f"{name}={value} was given, but the correction {correction!r} does not read it; "
                f"it reads {', '.join(read) or 'no bound'}"
            )
    bounds = {}
    for name, default in read.items():
        value = default if given[name] is None else given[name]
        if value is None:
            raise ValueError(f"the correction {correction!r} needs {name}; it has no default")
        bounds[name] = value
    return bounds


def _inside(ratios: Tensor, bounds: dict[str, float]) -> Tensor:
    inside = torch.ones_like(ratios, dtype=torch.bool)
    if "low" in bounds:
        inside = inside & (ratios >= bounds["low"] * (1 - _SLACK))
    for name in ("high", "cap"):
        if name in bounds:
            inside = inside & (ratios <= bounds[name] * (1 + _SLACK))
    return inside


def _token_weights(
    rho: Tensor, inside: Tensor, correction: str, bounds: dict[str, float]
) -> Tensor:
    if correction == "none":
        return torch.ones_like(rho)
    if correction == "tis_token":
        return truncated_importance(rho, cap=bounds["cap"])
    return torch.where(inside, rho, 0.0)


def _row_weights(
    values: Tensor, inside: Tensor, scored: Tensor, correction: str, bounds: dict[str, float]
) -> Tensor:
    """[B, T] from one value per row, [B, 1]; unscored tokens of a kept row get 1."""
    if correction.endswith("_truncate"):
        return torch.where(scored, truncated_importance(values, cap=bounds["cap"]), 1.0)
    kept = torch.where(scored, values, 1.0) if correction == "seq_product_mask" else 1.0
    return torch.where(inside.expand_as(scored), kept, torch.zeros_like(values))


def _row_ratio(log_rho: Tensor, scored: Tensor, *, geometric: bool) -> Tensor:
    """exp of the sum, or of the mean, of the row's log-ratios, [B, 1]."""
    total = log_rho.sum(1, keepdim=True)
    if geometric:
        total = total / scored.sum(1, keepdim=True).clamp(min=1)
    return total.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def _mean_k3(log_rho: Tensor, scored: Tensor) -> Tensor:
    bounded = log_rho.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    # expm1 keeps what rho - 1 - log rho would lose to rounding near 1.
    k3 = torch.where(scored, torch.expm1(bounded) - bounded, 0.0)
    return k3.sum(1, keepdim=True) / scored.sum(1, keepdim=True).clamp(min=1)


def _policy_gap(
    behaviour: Tensor,
    scored: Tensor,
    mask: Tensor,
    advantages: Tensor | None,
    logprobs: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Mean of behaviour - logprobs over a row's scored tokens, and which advantages are < 0."""
    if advantages is None or logprobs is None:
        raise ValueError("the correction 'off_policy_seq_mask' needs advantages and logprobs")
    gaps = torch.where(scored, _wide(behaviour) - _wide(logprobs), 0.0).detach()
    gap = gaps.sum(1, keepdim=True) / scored.sum(1, keepdim=True).clamp(min=1)
    worth = torch.where(mask, advantages.expand(mask.shape), 0.0).sum(1, keepdim=True)
    return gap, worth < 0


def _raw_values(values: Tensor, inside: Tensor, counted: Tensor) -> RawValues:
    return RawValues(
        num=counted.sum(),
        num_outside=(counted & ~inside).sum(),
        total=torch.where(counted, values, 0.0).sum().double(),
        smallest=torch.where(counted, values, torch.inf).amin(),
        largest=torch.where(counted, values, -torch.inf).amax(),
    )


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()
