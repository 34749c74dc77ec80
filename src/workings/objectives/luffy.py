"""The loss of mixed groups: own rollouts beside tokens of a teacher (LUFFY, 2504.14945).

On-policy tokens take any surrogate, or a clipped reshaped ratio; off-policy tokens take -A f(p),
without the old policy and without the clip. Which token is which says `off_policy_mask` [B, T]
bool: a row may be half and half. Everything is per token, [B, T]; nothing is reduced here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from workings.config.objective import Shaping
from workings.objectives.ratios import MAX_LOG_RATIO, at_least_float32
from workings.objectives.shaping import shaped, shaped_ratio

# Added to a recorded probability (luffy reference, 1.4).
PROBABILITY_FLOOR = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedLoss:
    """Per-token loss [B, T], 0 off `mask`; `mask` [B, T] bool has the tokens that are trained."""

    token_loss: Tensor
    mask: Tensor


def on_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    log_ratios: Tensor,
    advantages: Tensor,
    *,
    shaping: Shaping = "no_reshape",
    gamma: float = 0.1,
    weight: float = 0.1,
    power: float = 0.5,
    epsilon: float | None = None,
    epsilon_high: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """-A x with x from `shaping.shaped_ratio`; max(-A x, -A clip(x)) where `epsilon` is given.

    The clip is to [1 - epsilon, 1 + epsilon_high], `epsilon_high` None being `epsilon`. Off `mask`
    [B, T] bool the loss is 0 with gradient 0, whatever stands there.
    """
    if mask is not None:
        logprobs, old_logprobs, log_ratios, advantages = (
            torch.where(mask, values, 0.0)
            for values in (logprobs, old_logprobs, log_ratios, advantages)
        )
    value = shaped_ratio(
        logprobs,
        old_logprobs,
        log_ratios,
        shaping=shaping,
        gamma=gamma,
        weight=weight,
        power=power,
    )
    loss = -advantages * value
    if epsilon is not None:
        high = epsilon if epsilon_high is None else epsilon_high
        loss = torch.maximum(loss, -advantages * value.clamp(1 - epsilon, 1 + high))
    return loss


def off_policy_loss(
    logprobs: Tensor,
    advantages: Tensor,
    *,
    shaping: Shaping = "ratio",
    gamma: float = 0.1,
    weight: float = 0.1,
    power: float = 0.5,
    clip_min: float | None = None,
    clip_max: float | None = None,
    recorded_logprobs: Tensor | None = None,
    shape_recorded: bool = False,
    probability_floor: float = PROBABILITY_FLOOR,
) -> Tensor:
    """-A f(p), [B, T] (2504.14945, eq. 7): the teacher's probability is taken as 1.

    Where `recorded_logprobs` has log q of who wrote the token (NaN where nobody recorded it), the
    loss is -A p / (q + `probability_floor`) without shaping, as published; `shape_recorded` puts f
    around that ratio (ExGRPO, 2510.02245, with a floor of 0). `clip_min` and `clip_max` bound what
    multiplies -A in either case, with no gradient outside. Other arguments as in `shaping.shaped`.
    """
    if shape_recorded and recorded_logprobs is None:
        raise ValueError("shape_recorded needs recorded_logprobs")
    logprobs = at_least_float32(logprobs)

    def bounded(log_values: Tensor, shaping: Shaping) -> Tensor:
        return shaped(
            log_values,
            shaping=shaping,
            gamma=gamma,
            weight=weight,
            power=power,
            clip_min=clip_min,
            clip_max=clip_max,
        )

    value = bounded(logprobs, shaping)
    if recorded_logprobs is not None:
        known = ~torch.isnan(recorded_logprobs)
        recorded = torch.where(known, recorded_logprobs.detach().to(logprobs.dtype), 0.0)
        if probability_floor > 0:
            recorded = torch.logaddexp(recorded, recorded.new_tensor(math.log(probability_floor)))
        log_ratios = (logprobs - recorded).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = bounded(log_ratios, shaping if shape_recorded else "no_reshape")
        value = torch.where(known, ratio, value)
    return -advantages * value


def mixed_loss(
    logprobs: Tensor,
    advantages: Tensor,
    on_loss: Tensor,
    *,
    mask: Tensor,
    off_policy_mask: Tensor,
    shaping: Shaping = "ratio",
    gamma: float = 0.1,
    weight: float = 0.1,
    power: float = 0.5,
    clip_min: float | None = None,
    clip_max: float | None = None,
    recorded_logprobs: Tensor | None = None,
    shape_recorded: bool = False,
    probability_floor: float = PROBABILITY_FLOOR,
    prob_clip_max: float | None = None,
) -> MixedLoss:
    """`off_policy_loss` on off-policy tokens and `on_loss` [B, T] on the others.

    `on_loss` is a surrogate's, or `on_policy_loss`, computed with the mask of the on-policy tokens
    so that nothing of the off-policy ones enters it. `advantages` are [B, T] or [B, 1].
    `prob_clip_max` drops every token, of either kind, with p above it from loss and mask; a
    denominator that should follow needs `confident_tokens` of a scoring pass before the step.
    """
    kept = mask.bool()
    if prob_clip_max is not None:
        kept = kept & ~confident_tokens(logprobs, prob_clip_max=prob_clip_max)
    off = kept & off_policy_mask.bool()
    advantages = at_least_float32(advantages).expand(kept.shape)
    if recorded_logprobs is not None:
        recorded_logprobs = torch.where(off, recorded_logprobs, torch.nan)
    off_loss = off_policy_loss(
        torch.where(off, at_least_float32(logprobs), 0.0),
        torch.where(off, advantages, 0.0),
        shaping=shaping,
        gamma=gamma,
        weight=weight,
        power=power,
        clip_min=clip_min,
        clip_max=clip_max,
        recorded_logprobs=recorded_logprobs,
        shape_recorded=shape_recorded,
        probability_floor=probability_floor,
    )
    token_loss = torch.where(off, off_loss, torch.where(kept, on_loss, 0.0))
    return MixedLoss(token_loss=token_loss, mask=kept)


def confident_tokens(logprobs: Tensor, *, prob_clip_max: float) -> Tensor:
    """Where p is above `prob_clip_max`, [B, T] bool: the tokens that `mixed_loss` drops."""
    return logprobs.detach().exp() > prob_clip_max
