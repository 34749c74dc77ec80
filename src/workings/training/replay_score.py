"""How stored rollouts look to the current policy: what ExGRPO chooses among them by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn

from workings.rollout.replay_batch import Candidate, Score
from workings.training.response_means import response_means


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
        means = response_means(
            model,
            [(candidate.prompt.ids, candidate.rollout.ids) for candidate in candidates],
            "entropy" if measure == "entropy" else "surprise",
            temperature=temperature,
            max_tokens=max_tokens,
            autocast=autocast,
            pad_id=pad_id,
        )
        if measure == "perplexity":
            means = means.clamp(max=80.0).exp()
        values: list[float] = means.tolist()
        return values

    return scored
