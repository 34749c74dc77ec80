"""From per-token losses to one number, with denominators that span the whole optimizer step.

The loss of a step is `sum(weight * token_loss)` over every token of every microbatch on every
rank. The weights come from counts that are known before the first backward pass, so the result
does not depend on how the step is cut up (objectives reference, rule 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from workings.config.objective import Reduction

REDUCTIONS: tuple[str, ...] = get_args(Reduction)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTotals:
    """Counts over a whole optimizer step: all microbatches, all ranks.

    `num_rows` counts rows with at least one trained token, `num_tokens` the trained tokens.
    `num_off_policy_tokens` counts those of them that the policy did not sample, `num_prompts` the
    groups with a trained token, `num_microbatches` the microbatches of all ranks.
    """

    num_rows: int
    num_tokens: int
    num_off_policy_tokens: int = 0
    num_prompts: int = 0
    num_microbatches: int = 1


def token_weights(
    mask: Tensor,
    totals: StepTotals,
    *,
    reduction: Reduction,
    max_length: int | None = None,
    prompt_tokens: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Weight of each token in the step's loss: `mask` [B, T] bool gives [B, T] `dtype`, 0 off mask.

    - seq_mean_token_mean: 1 / (B n_i) (GRPO, 2402.03300, eq. 3)
    - token_mean: 1 / N (DAPO, 2503.14476, eq. 8)
    - local_token_mean: 1 / (M n) with the n tokens of this microbatch, one of M (BNPO). The only
      one that depends on how the step is cut
    - seq_mean_token_sum_norm: 1 / (B L) with L = `max_length` (Dr.GRPO, 2503.20783)
    - seq_mean_token_sum: 1 / B
    - prompt_mean: 1 / (P g), with g the tokens of the row's group, one of P: `prompt_tokens` [B]
      counts them over the whole step

    B, N, M and P are the rows, tokens, microbatches and prompts of `totals`; n_i is the row's own
    count. A step with nothing to train has weights of 0, and so a loss of exactly 0.

    >>> mask = torch.tensor([[True, True, False], [True, True, True]])
    >>> totals = StepTotals(num_rows=2, num_tokens=5)
    >>> token_weights(mask, totals, reduction="token_mean").sum().item()
    1.0
    """
    mask = mask.bool()
    num_rows, num_tokens = max(totals.num_rows, 1), max(totals.num_tokens, 1)
    ones = torch.ones(mask.shape, dtype=dtype, device=mask.device)
    if reduction == "token_mean":
        weights = ones / num_tokens
    elif reduction == "seq_mean_token_mean":
        weights = ones / mask.sum(1, keepdim=True).clamp(min=1) / num_rows
    elif reduction == "seq_mean_token_sum":
        weights = ones / num_rows
    elif reduction == "seq_mean_token_sum_norm":
        if max_length is None:
            raise ValueError("seq_mean_token_sum_norm needs max_length, the completion limit")
        weights = ones / num_rows / max_length
    elif reduction == "local_token_mean":
        weights = ones / mask.sum().clamp(min=1) / max(totals.num_microbatches, 1)
    elif reduction == "prompt_mean":
        if prompt_tokens is None:
            raise ValueError("prompt_mean needs prompt_tokens, the tokens of each row's group")
        counts = prompt_tokens.to(mask.device).clamp(min=1)[:, None]
        weights = ones / counts / max(totals.num_prompts, 1)
    else:
        raise ValueError(
            f"unknown reduction {reduction!r}; expected one of {', '.join(REDUCTIONS)}"
        )
    return torch.where(mask, weights, 0.0)
