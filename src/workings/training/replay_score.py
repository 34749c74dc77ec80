"""How stored rollouts look to the current policy: what ExGRPO chooses among them by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn

from workings.rollout.replay_batch import Candidate, Score
from workings.training.packing import TrainRow, pack
from workings.training.step import score


def replay_scorer(
    model: nn.Module,
    measure: Literal["entropy", "perplexity"],
    *,
    temperature: float,
    max_tokens: int,
    autocast: torch.dtype | None = None,
    pad_id: int = 0,
) -> Score:
    """`candidates -> one number each` under the model's weights at the time of the call.

    entropy: mean over the response of the entropy in nats. perplexity: exp of the mean negative
    log-probability. `max_tokens` bounds one forward pass.
    """

    def scored(candidates: Sequence[Candidate]) -> list[float]:
        rows = [
            TrainRow(
                key=key,
                group=key,
                prompt_ids=candidate.prompt.ids,
                response_ids=candidate.rollout.ids,
                mask=(True,) * candidate.rollout.num_tokens,
            )
            for key, candidate in enumerate(candidates)
        ]
        device = next(model.parameters()).device
        batches = pack(rows, layout="padded", max_tokens=max_tokens, pad_id=pad_id, device=device)
        found: dict[int, float] = {}
        for batch in score(model, batches, temperature=temperature, autocast=autocast):
            assert batch.old_logprobs is not None
            assert batch.entropies is not None
            values = batch.entropies if measure == "entropy" else -batch.old_logprobs
            means = torch.where(batch.mask, values, 0.0).sum(1) / batch.mask.sum(1)
            if measure == "perplexity":
                means = means.clamp(max=80.0).exp()
            found |= dict(zip(batch.keys, means.tolist(), strict=True))
        return [found[key] for key in range(len(candidates))]

    return scored
