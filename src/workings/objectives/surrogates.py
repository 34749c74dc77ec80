"""Per-token policy losses. Each maps tensors to a loss of the same shape; nothing is reduced here.

Shapes: `logprobs`, `old_logprobs` [B, T]; `advantages` [B, T] or [B, 1]. `old_logprobs` carries no
gradient. Losses are minimised.
"""

from __future__ import annotations

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0


def log_ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """log(pi / pi_old) per token, clamped to [-20, 20] *before* any exp.

    Clamping after exp gives a right value and a NaN gradient (objectives reference, rule 7).
    """
    return (logprobs - old_logprobs.detach()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def policy_gradient(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """-A log pi (REINFORCE, Williams 1992)."""
    return -advantages * logprobs


def ratio_surrogate(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor) -> Tensor:
    """-r A with r = pi / pi_old, not clipped."""
    return -advantages * log_ratio(logprobs, old_logprobs).exp()


def ppo_clip(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    epsilon: float,
    epsilon_high: float,
) -> Tensor:
    """-min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A) (PPO, 1707.06347, eq. 7)."""
    ratio = log_ratio(logprobs, old_logprobs).exp()
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon_high)
    return -torch.minimum(ratio * advantages, clipped * advantages)


def clipped_tokens(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    epsilon: float,
    epsilon_high: float,
) -> tuple[Tensor, Tensor]:
    """(low, high): where `ppo_clip` takes the clipped branch, bool, shape of `logprobs`.

    low is r < 1 - epsilon with A < 0, high is r > 1 + epsilon_high with A > 0.
    """
    ratio = log_ratio(logprobs.detach(), old_logprobs).exp()
    low = (ratio < 1 - epsilon) & (advantages < 0)
    high = (ratio > 1 + epsilon_high) & (advantages > 0)
    return low, high
