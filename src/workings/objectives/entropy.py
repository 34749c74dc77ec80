"""The entropy bonus and the controller of its coefficient. `logprobs` computes the entropies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Skywork-OR1 (2505.22312): change of the coefficient per step.
COEFFICIENT_STEP = 0.005


def entropy_loss(entropies: Tensor, mask: Tensor, *, coefficient: float, num_tokens: int) -> Tensor:
    """The microbatch's share of -coefficient * mean entropy, 0-d; add it to the policy loss.

    `entropies` [B, T] in nats with gradients, `mask` [B, T] bool. `num_tokens` counts the trained
    tokens of the whole optimizer step, over all ranks: the bonus is a mean over tokens whatever
    the reduction of the policy loss (objectives reference, section 7). Nothing trained gives 0.

    >>> entropy_loss(
    ...     torch.ones(1, 2), torch.tensor([[True, False]]), coefficient=0.5, num_tokens=2
    ... ).item()
    -0.25
    """
    total = torch.where(mask.bool(), entropies, 0.0).sum()
    return -coefficient * total / max(num_tokens, 1)


def next_entropy_coefficient(
    coefficient: float,
    entropy: float,
    *,
    target: float,
    step: float = COEFFICIENT_STEP,
    low: float = 0.0,
    high: float = 1.0,
) -> float:
    """The coefficient after seeing the step's mean entropy (Skywork-OR1, 2505.22312).

    Up by `step` where `entropy` (nats, over all ranks) is at or below `target`, else down by it,
    within [low, high]. The coefficient is the whole state: checkpoint it.

    >>> next_entropy_coefficient(0.01, 0.1, target=0.2), next_entropy_coefficient(0, 1, target=0.2)
    (0.015, 0.0)
    """
    if not math.isfinite(entropy):
        raise ValueError(f"entropy={entropy}; expected the finite mean of a step")
    if low > high or step < 0:
        raise ValueError(f"step={step} within [{low}, {high}]; expected step >= 0 and low <= high")
    moved = coefficient + step if entropy <= target else coefficient - step
    return min(max(moved, low), high)


def applied_entropy_coefficient(coefficient: float, entropy: float, *, target: float) -> float:
    """`coefficient` while the step's mean entropy is at or below `target`, else 0."""
    return coefficient if entropy <= target else 0.0
