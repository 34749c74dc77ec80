"""The policy objective as the loss of an optimizer step: the axes put together, and what to report.

    log-ratios at their level -> surrogate per token -> off-policy tokens their own loss
    x correction -> summed with the step's weights -> + KL + entropy bonus + likelihood of traces

Each term has its own denominator over the whole step (objectives reference, section 0).
"""

from __future__ import annotations

import torch
from torch import Tensor

from workings.config.objective_settings import ResolvedObjective
from workings.objectives.corrections import (
    CorrectionWeights,
    behaviour_logprobs,
    correction_weights,
    mismatch_ratio,
)
from workings.objectives.entropy import entropy_loss
from workings.objectives.kl import kl_penalty
from workings.objectives.luffy import PROBABILITY_FLOOR, mixed_loss, on_policy_loss
from workings.objectives.policy import weighted_loss
from workings.objectives.ratios import level_log_ratio, log_ratio
from workings.objectives.reductions import StepTotals, token_weights
from workings.objectives.surrogates import clipped_tokens, surrogate_loss
from workings.training.forward import ResponseScores
from workings.training.packing import MicroBatch
from workings.training.step import LossFunction, LossOutput


def policy_gradient_loss(
    totals: StepTotals,
    objective: ResolvedObjective,
    *,
    max_length: int,
    beta: float | None = None,
    entropy_coef: float | None = None,
    num_ranks: int = 1,
) -> LossFunction:
    """The loss of a step with these totals under an objective.

    Args:
        max_length: the completion limit, which `seq_mean_token_sum_norm` divides by.
        beta, entropy_coef: where a controller moved them away from the objective's own.
        num_ranks: for `luffy_scale`, which multiplies by the rows of one rank.

    Where a batch has no `old_logprobs` the rollout is used for exactly one update, and the current
    ones, detached, are the old ones.
    """
    beta = objective.beta if beta is None else beta
    entropy_coef = objective.entropy_coef if entropy_coef is None else entropy_coef
    scale = totals.num_rows / num_ranks if objective.luffy_scale else 1.0

    def function(scores: ResponseScores, batch: MicroBatch) -> LossOutput:
        logprobs, mask = scores.logprobs, batch.mask
        old = logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs
        own = mask & ~batch.off_policy
        log_ratios = _log_ratios(objective, logprobs, old, own, batch.advantages)
        correction = correction_of(objective, batch, logprobs, old)
        weights = token_weights(
            mask,
            totals,
            reduction=objective.reduction,
            max_length=max_length,
            prompt_tokens=batch.group_tokens,
            dtype=logprobs.dtype,
        )
        token_loss, kept = _token_loss(objective, batch, logprobs, old, log_ratios, own, correction)
        policy = scale * weighted_loss(token_loss, torch.where(kept, weights, 0.0))
        terms = {"policy": policy}
        if beta > 0 and objective.kl_in == "loss":
            terms["kl"] = beta * weighted_loss(_kl(objective, batch, logprobs, old), weights)
        if entropy_coef > 0:
            terms["entropy"] = entropy_loss(
                scores.entropies, mask, coefficient=entropy_coef, num_tokens=totals.num_tokens
            )
        if objective.sft_loss_coef > 0:
            traced = mask & batch.off_policy
            nll = torch.where(traced, -logprobs, 0.0).sum()
            terms["sft"] = objective.sft_loss_coef * nll / max(totals.num_off_policy_tokens, 1)
        sums, maxima = _measured(
            objective, batch, scores, old, log_ratios.detach(), own, correction
        )
        return LossOutput(
            loss=torch.stack(list(terms.values())).sum(),
            sums={
                **{f"loss/{name}": term.detach() for name, term in terms.items()},
                **sums,
                "filtered": (mask & ~kept).sum(),
            },
            maxima=maxima,
        )

    return function


def _token_loss(
    objective: ResolvedObjective,
    batch: MicroBatch,
    logprobs: Tensor,
    old: Tensor,
    log_ratios: Tensor,
    own: Tensor,
    correction: CorrectionWeights | None,
) -> tuple[Tensor, Tensor]:
    """Loss of every token [B, T], and which tokens count: those left out stay in denominators."""
    advantages = batch.advantages.to(logprobs.dtype)
    weights = None if correction is None else correction.weights
    if objective.on_shaping != "no_reshape":
        clips = objective.surrogate == "ppo_clip"
        loss = on_policy_loss(
            logprobs,
            old,
            log_ratios,
            advantages,
            shaping=objective.on_shaping,
            gamma=objective.gamma,
            weight=objective.off_shaping_weight,
            power=objective.off_shaping_power,
            epsilon=objective.epsilon if clips else None,
            epsilon_high=objective.epsilon_high if clips else None,
            mask=own,
        )
        loss = loss if weights is None else loss * torch.where(own, weights, 1.0)
    else:
        loss = surrogate_loss(
            logprobs,
            old,
            log_ratios,
            advantages,
            surrogate=objective.surrogate,
            mask=own,
            chosen=batch.chosen,
            correction=weights,
            **objective.surrogate_constants,
        )
    mixed = mixed_loss(
        logprobs,
        advantages,
        loss,
        mask=batch.mask,
        off_policy_mask=batch.off_policy,
        shaping=objective.off_shaping,
        gamma=objective.gamma,
        weight=objective.off_shaping_weight,
        power=objective.off_shaping_power,
        clip_min=objective.off_clip_min,
        clip_max=objective.off_clip_max,
        recorded_logprobs=_recorded(objective, batch),
        shape_recorded=objective.replay or objective.shape_teacher_ratio,
        probability_floor=0.0 if objective.replay else PROBABILITY_FLOOR,
        prob_clip_max=objective.prob_clip_max,
    )
    kept = mixed.mask if batch.kept is None else mixed.mask & batch.kept
    if not objective.off_policy_loss:
        kept = kept & ~batch.off_policy
    return mixed.token_loss, kept


def _log_ratios(
    objective: ResolvedObjective, logprobs: Tensor, old: Tensor, own: Tensor, advantages: Tensor
) -> Tensor:
    """At the objective's level, [B, T]; an objective without ratios reports those of tokens."""
    return level_log_ratio(
        logprobs,
        old,
        own,
        level="token" if objective.ratio == "none" else objective.ratio,
        advantages=advantages,
        log_range=objective.log_range,
    )


def _recorded(objective: ResolvedObjective, batch: MicroBatch) -> Tensor | None:
    """Of off-policy tokens under what produced them, where the loss wants it."""
    return batch.recorded_logprobs if objective.use_teacher_probs or objective.replay else None


def correction_of(
    objective: ResolvedObjective, batch: MicroBatch, logprobs: Tensor, old: Tensor
) -> CorrectionWeights | None:
    """Weights for the mismatch of sampler and trainer; None where the objective has no correction.

    A token without a score of the engine has the weight 1. `logprobs` [B, T] are of the weights in
    training, `old` [B, T] of those at the rollout.
    """
    if objective.correction == "none":
        return None
    return correction_weights(
        old,
        behaviour_logprobs(batch.sampling_logprobs, batch.kept_mass),
        batch.mask & ~batch.off_policy,
        correction=objective.correction,
        cap=objective.correction_cap,
        low=objective.correction_low,
        high=objective.correction_high,
        threshold=objective.correction_threshold,
        advantages=batch.advantages,
        logprobs=logprobs.detach(),
    )


def _kl(objective: ResolvedObjective, batch: MicroBatch, logprobs: Tensor, old: Tensor) -> Tensor:
    assert batch.ref_logprobs is not None, "the loop scores the reference where beta > 0"
    return kl_penalty(
        logprobs,
        batch.ref_logprobs,
        estimator=objective.kl_estimator,
        log_ratios=log_ratio(logprobs, old),
        mask=batch.mask,
    )


@torch.no_grad()
def _measured(
    objective: ResolvedObjective,
    batch: MicroBatch,
    scores: ResponseScores,
    old: Tensor,
    log_ratios: Tensor,
    own: Tensor,
    correction: CorrectionWeights | None,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Sums over tokens, and maxima, for the log. Ratios are raw: not clipped, not corrected."""
    logprobs, mask = scores.logprobs.detach(), batch.mask
    ratio = log_ratio(logprobs, old).exp()
    gap = (old - batch.sampling_logprobs).abs()
    scored = own & ~torch.isnan(gap)
    behaviour = behaviour_logprobs(batch.sampling_logprobs, batch.kept_mass)
    mismatch = mismatch_ratio(old, behaviour)
    sums = {
        "tokens": mask.sum(),
        "own": own.sum(),
        "entropy": _total(scores.entropies, mask),
        "ratio": _total(ratio, own),
        "mismatch": _total(mismatch, own),
        "mismatch_kl": _total(kl_penalty(behaviour, old, estimator="k3", mask=scored), scored),
        "scored": scored.sum(),
        "gap": _total(gap, scored),
    }
    maxima = {
        "ratio": _largest(ratio, own),
        "mismatch": _largest(mismatch, own),
        "gap": _largest(gap, scored),
    }
    if objective.epsilon is not None and objective.epsilon_high is not None:
        regions = clipped_tokens(
            log_ratios,
            batch.advantages,
            epsilon=objective.epsilon,
            epsilon_high=objective.epsilon_high,
            dual_clip=objective.dual_clip,
        )
        sums["clip_low"] = (regions.low & own).sum()
        sums["clip_high"] = (regions.high & own).sum()
        sums["clip_dual"] = (regions.dual & own).sum()
    if batch.ref_logprobs is not None:
        sums["kl"] = _total(
            kl_penalty(logprobs, batch.ref_logprobs, estimator="k3", mask=mask), mask
        )
    if correction is not None:
        sums["correction/dropped_rows"] = correction.dropped_rows.sum()
        sums["correction/outside"] = torch.as_tensor(correction.raw.num_outside)
        sums["correction/num"] = torch.as_tensor(correction.raw.num)
        sums["correction/unscored"] = torch.as_tensor(correction.num_unscored)
        sums["correction/rows"] = mask.any(1).sum()
    if batch.chosen is not None:
        sums["chosen"] = (batch.chosen & mask).sum()
    off = mask & batch.off_policy
    if objective.has_off_policy_rows:
        sums["off_tokens"] = off.sum()
        sums["off_probability"] = _total(logprobs.exp(), off)
        sums["off_logprob"] = _total(logprobs, off)
    return sums, maxima


def _total(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values.detach(), 0.0).sum().double()


def _largest(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values.detach(), 0.0).amax()
