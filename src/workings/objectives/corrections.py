"""What to do about the sampler and the trainer not agreeing on a token's probability."""

from __future__ import annotations

import torch
from torch import Tensor

from workings.objectives.surrogates import MAX_LOG_RATIO


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
