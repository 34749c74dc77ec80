"""The policy loss of one microbatch: per-token losses, a correction, and weights to sum by."""

from __future__ import annotations

import torch
from torch import Tensor


def weighted_loss(token_loss: Tensor, weights: Tensor, correction: Tensor | None = None) -> Tensor:
    """sum(weights * correction * token_loss), the microbatch's share of the step's loss.

    `weights` comes from `reductions.token_weights` and is 0 off the mask, where `token_loss` may
    hold anything, inf and NaN included. Leave `correction` out where `surrogate_loss` has had it.
    """
    token_loss = torch.where(weights != 0, token_loss, 0.0)
    if correction is not None:
        token_loss = token_loss * torch.where(weights != 0, correction, 0.0)
    return (weights.to(token_loss.dtype) * token_loss).sum()
