"""How sampled responses look to the current policy: one number each, from one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from workings.training.packing import TrainRow, pack
from workings.training.step import score

ROWS_AT_ONCE = 256
"""Responses that are laid out together, so that a long evaluation fits on the device."""


def response_means(
    model: nn.Module,
    responses: Sequence[tuple[Sequence[int], Sequence[int]]],
    measure: Literal["entropy", "surprise"],
    *,
    temperature: float,
    max_tokens: int,
    autocast: torch.dtype | None = None,
    pad_id: int = 0,
) -> Tensor:
    """[N] float32 on the CPU: a mean over the tokens of each response, under the model's weights.

    entropy: of the distributions that the tokens were drawn from, in nats, over the whole
    vocabulary at `temperature`. surprise: the negative log-probability of the tokens. NaN for a
    response without a token. The model is left in evaluation mode.

    Args:
        responses: (prompt ids, response ids).
        max_tokens: bounds one forward pass.
    """
    means = torch.full((len(responses),), torch.nan)
    device = next(model.parameters()).device
    by_length = sorted(range(len(responses)), key=lambda key: sum(map(len, responses[key])))
    for start in range(0, len(by_length), ROWS_AT_ONCE):
        rows = [
            TrainRow(
                key=key,
                group=key,
                prompt_ids=responses[key][0],
                response_ids=responses[key][1],
                mask=(True,) * len(responses[key][1]),
            )
            for key in by_length[start : start + ROWS_AT_ONCE]
        ]
        batches = pack(rows, layout="padded", max_tokens=max_tokens, pad_id=pad_id, device=device)
        for batch in score(model, batches, temperature=temperature, autocast=autocast):
            assert batch.old_logprobs is not None
            assert batch.entropies is not None
            values = batch.entropies if measure == "entropy" else -batch.old_logprobs
            found = torch.where(batch.mask, values, 0.0).sum(1) / batch.mask.sum(1)
            means[list(batch.keys)] = found.float().cpu()
    return means
