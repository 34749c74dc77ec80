"""The losses of supervised fine-tuning."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from workings.objectives.reductions import StepTotals, token_weights

SupervisedLoss = Literal["nll", "seq_sum", "dft"]


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
    - dft: sum of `dft_loss` over the step's trained tokens, divided by their number

    Whatever stands off the mask, inf and NaN included, stays out of loss and gradient; a step with
    nothing to train has a loss of exactly 0.

    >>> import torch
    >>> rows = torch.tensor([[-4.0, 0.0, 0.0], [-1.0, -1.0, -1.0]])
    >>> mask = torch.tensor([[True, False, False], [True, True, True]])
    >>> sft_loss(rows, mask, StepTotals(num_rows=2, num_tokens=4)).item()
    1.75
    """
    mask = mask.bool()
    logprobs = torch.where(mask, logprobs, 0.0)
    if loss == "seq_sum":
        weights = token_weights(mask, totals, reduction="seq_mean_token_sum", dtype=logprobs.dtype)
        return -(weights / normalize_constant * logprobs).sum()
    weights = token_weights(mask, totals, reduction="token_mean", dtype=logprobs.dtype)
    if loss == "nll":
        return -(weights * logprobs).sum()
    if loss == "dft":
        return (weights * dft_loss(logprobs)).sum()
    raise ValueError(f"unknown SFT loss {loss!r}; expected nll, seq_sum or dft")


def dft_loss(logprobs: Tensor) -> Tensor:
    """Per-token loss of dynamic fine-tuning: -sg[p] log p, of the shape of `logprobs`.

    The gradient in log p is -p, so that a token the model finds unlikely pulls less than under nll
    (2508.05629, the loss per token).

    >>> import torch
    >>> logprobs = torch.tensor([0.5, 0.1], dtype=torch.float64).log()
    >>> [round(value, 6) for value in dft_loss(logprobs).tolist()]
    [0.346574, 0.230259]
    """
    return -logprobs.detach().exp() * logprobs
