"""Loss functions in the form `policy_step` takes: scores and a microbatch in, a share out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from workings.objectives.corrections import (
    behaviour_logprobs,
    mismatch_ratio,
    truncated_importance,
)
from workings.objectives.policy import weighted_loss
from workings.objectives.ratios import log_ratio
from workings.objectives.reductions import Reduction, StepTotals, token_weights
from workings.objectives.supervised import SupervisedLoss, sft_loss
from workings.objectives.surrogates import Surrogate, clipped_tokens, surrogate_loss
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


def policy_gradient_loss(
    totals: StepTotals,
    *,
    surrogate: Surrogate,
    reduction: Reduction,
    epsilon: float = 0.0,
    epsilon_high: float = 0.0,
    correction_cap: float | None = None,
    max_length: int | None = None,
) -> Callable[[ResponseScores, MicroBatch], LossOutput]:
    """The policy loss of a step with these totals.

    `correction_cap` turns truncated importance sampling on; `max_length` is the completion limit
    that `seq_mean_token_sum_norm` divides by. Where a batch has no `old_logprobs` the rollout is
    used for exactly one update and the current ones, detached, are the old ones.
    """

    def function(scores: ResponseScores, batch: MicroBatch) -> LossOutput:
        logprobs, mask = scores.logprobs, batch.mask
        old = logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs
        advantages = batch.advantages.to(logprobs.dtype)
        log_ratios = log_ratio(logprobs, old)
        constants: dict[str, Any] = {"epsilon": epsilon, "epsilon_high": epsilon_high}
        token_loss = surrogate_loss(
            logprobs,
            old,
            log_ratios,
            advantages,
            surrogate=surrogate,
            **(constants if surrogate == "ppo_clip" else {}),
        )
        weights = token_weights(
            mask, totals, reduction=reduction, max_length=max_length, dtype=logprobs.dtype
        )
        mismatch = mismatch_ratio(old, behaviour_logprobs(batch.sampling_logprobs, batch.kept_mass))
        correction = None
        if correction_cap is not None:
            correction = truncated_importance(mismatch, cap=correction_cap)
        value = weighted_loss(token_loss, weights, correction)
        low = high = torch.zeros_like(mask)
        if surrogate == "ppo_clip":
            clipped = clipped_tokens(log_ratios, advantages, **constants)
            low, high = clipped.low, clipped.high
        ratio = log_ratios.detach().exp()
        gap = (old - batch.sampling_logprobs).abs()
        scored = mask & ~torch.isnan(gap)
        return LossOutput(
            loss=value,
            sums={
                "tokens": mask.sum(),
                "entropy": _total(scores.entropies, mask),
                "clip_low": (low & mask).sum(),
                "clip_high": (high & mask).sum(),
                "ratio": _total(ratio, mask),
                "mismatch": _total(mismatch, mask),
                "scored": scored.sum(),
                "gap": _total(gap, scored),
            },
            maxima={
                "ratio": _largest(ratio, mask),
                "mismatch": _largest(mismatch, mask),
                "gap": _largest(gap, scored),
            },
        )

    return function


def _total(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values.detach(), 0.0).sum().double()


def _largest(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values.detach(), 0.0).amax()
