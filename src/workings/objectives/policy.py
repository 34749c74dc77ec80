"""The policy loss of one microbatch: a surrogate per token, a correction, and weights to sum by."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from workings.objectives.surrogates import policy_gradient, ppo_clip, ratio_surrogate

Surrogate = Literal["logp", "ratio", "ppo_clip"]


def surrogate_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    surrogate: Surrogate,
    epsilon: float = 0.0,
    epsilon_high: float = 0.0,
) -> Tensor:
    """Per-token loss [B, T] of the named surrogate; arguments as in `surrogates`."""
    if surrogate == "logp":
        return policy_gradient(logprobs, advantages)
    if surrogate == "ratio":
        return ratio_surrogate(logprobs, old_logprobs, advantages)
    if surrogate == "ppo_clip":
        return ppo_clip(
            logprobs, old_logprobs, advantages, epsilon=epsilon, epsilon_high=epsilon_high
        )
    raise ValueError(f"unknown surrogate {surrogate!r}; expected logp, ratio or ppo_clip")


def weighted_loss(token_loss: Tensor, weights: Tensor, correction: Tensor | None = None) -> Tensor:
    """sum(weights * correction * token_loss), the microbatch's share of the step's loss.

    `weights` comes from `reductions.token_weights` and is 0 off the mask, where `token_loss` may
    hold anything, inf and NaN included.
    """
    token_loss = torch.where(weights != 0, token_loss, 0.0)
    if correction is not None:
        token_loss = token_loss * torch.where(weights != 0, correction, 0.0)
    return (weights.to(token_loss.dtype) * token_loss).sum()
