"""The losses of supervised fine-tuning."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from workings.objectives.policy import weighted_loss
from workings.objectives.reductions import StepTotals, token_weights

SupervisedLoss = Literal["nll", "seq_sum"]


def sft_loss(
    logprobs: Tensor,
    mask: Tensor,
    totals: StepTotals,
    *,
    loss: SupervisedLoss = "nll",
    normalize_constant: float = 1.0,
) -> Tensor:
    """The microbatch's share of the step's loss; `logprobs` [B, T] and `mask` [B, T] bool.

    - nll: sum of -logprob over the step's trained tokens, divided by their number
    - seq_sum: sum per row / `normalize_constant`, mean over the step's rows (course function 1.6)

    >>> import torch
    >>> rows = torch.tensor([[-4.0, 0.0, 0.0], [-1.0, -1.0, -1.0]])
    >>> mask = torch.tensor([[True, False, False], [True, True, True]])
    >>> sft_loss(rows, mask, StepTotals(num_rows=2, num_tokens=4)).item()
    1.75
    """
    if loss == "nll":
        weights = token_weights(mask, totals, reduction="token_mean", dtype=logprobs.dtype)
    elif loss == "seq_sum":
        weights = token_weights(mask, totals, reduction="seq_mean_token_sum", dtype=logprobs.dtype)
        weights = weights / normalize_constant
    else:
        raise ValueError(f"unknown SFT loss {loss!r}; expected nll or seq_sum")
    return weighted_loss(-logprobs, weights)
