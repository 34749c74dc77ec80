"""The supervised loss in the form `policy_step` takes: scores and a microbatch in, a share out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from workings.objectives.reductions import StepTotals
from workings.objectives.supervised import SupervisedLoss, sft_loss
from workings.training.forward import ResponseScores
from workings.training.packing import MicroBatch
from workings.training.step import LossOutput


def supervised_loss(
    totals: StepTotals, *, loss: SupervisedLoss = "nll", normalize_constant: float = 1.0
) -> Callable[[ResponseScores, MicroBatch], LossOutput]:
    """The SFT loss of a step with these totals."""

    def function(scores: ResponseScores, batch: MicroBatch) -> LossOutput:
        value = sft_loss(
            scores.logprobs,
            batch.mask,
            totals,
            loss=loss,
            normalize_constant=normalize_constant,
        )
        return LossOutput(
            loss=value,
            sums={
                "tokens": batch.mask.sum(),
                "entropy": _total(scores.entropies, batch.mask),
                "top": (scores.is_top & batch.mask).sum(),
            },
        )

    return function


def _total(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values.detach(), 0.0).sum().double()
