"""Hop 5: graded groups to the optimizer steps of a rollout batch, and what must be known first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby

import torch
from torch import Tensor, nn

from workings.config.grpo import GRPOConfig
from workings.config.objective_settings import ResolvedObjective
from workings.data.sampler import rank_share
from workings.objectives.reductions import StepTotals
from workings.objectives.selection import (
    clip_cov_tokens,
    high_entropy_tokens,
    kl_cov_tokens,
    token_covariances,
)
from workings.rewards.length import kept_when_masking_overlong
from workings.training.credit import Advantage
from workings.training.distributed import Ranks, sum_counts
from workings.training.flops import Work, work_of
from workings.training.packing import Layout, MicroBatch, TrainRow, pack, step_totals
from workings.training.policy_loss import correction_of
from workings.training.reference import Reference
from workings.training.step import score
from workings.types import RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One optimizer step's share of a rollout batch; `work` is that of all ranks."""

    totals: StepTotals
    microbatches: list[MicroBatch]
    work: Work = field(default_factory=Work)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packer:
    """How rows become microbatches in this run."""

    config: GRPOConfig
    objective: ResolvedObjective
    layout: Layout
    pad_id: int
    device: torch.device
    ranks: Ranks

    def pack(self, rows: Sequence[TrainRow]) -> list[MicroBatch]:
        """The rows' microbatches under the run's budget."""
        return pack(
            rows,
            layout=self.layout,
            max_tokens=self.config.batch.settled_tokens,
            max_rows=self.config.batch.microbatch_rows,
            pad_id=self.pad_id,
            device=self.device,
        )

    def updates(self, rows: Sequence[TrainRow], *, whole: bool = False) -> list[Update]:
        """The optimizer steps of one pass over the rows: groups whole, as many steps on every rank.

        A rank that has no group for a step takes part in it with nothing. `whole` packs all rows,
        also those that cannot move the weights.
        """
        groups = [list(group) for _, group in groupby(rows, key=lambda row: row.group)]
        groups_per_update = self.config.rows_per_update // self.config.num_generations
        num_groups = sum(self.ranks.all_objects(len(groups)))
        num_updates = max(1, math.ceil(num_groups / groups_per_update))
        return [
            self._update(
                list(chain(*rank_share(groups, rank=number, num_ranks=num_updates))), whole
            )
            for number in range(num_updates)
        ]

    def _update(self, rows: Sequence[TrainRow], whole: bool) -> Update:
        objective = self.objective
        totals = step_totals(rows, self.ranks, count_masked_rows=objective.count_masked_rows)
        idle = self.config.batch.skip_zero_advantage and objective.idle_without_advantage
        if idle and not whole:
            rows = [row for row in rows if row.has_advantage]
        microbatches = self.pack(rows)
        (number,) = sum_counts([len(microbatches)], self.ranks)
        return Update(
            totals=replace(totals, num_microbatches=number),
            microbatches=microbatches,
            work=work_of(rows, self.layout, self.ranks),
        )


def training_rows(
    groups: Sequence[RolloutGroup],
    advantages: Sequence[Sequence[Advantage]] | None = None,
    *,
    mask_truncated: bool = False,
    first_key: int = 0,
) -> list[TrainRow]:
    """The rollouts as rows to train on; their keys count from `first_key` over all ranks.

    A rollout whose reward is None is not trained, nor is a truncated one under `mask_truncated`;
    both then leave the denominators too.
    """
    rows: list[TrainRow] = []
    for number, group in enumerate(groups):
        whole = kept_when_masking_overlong([rollout.finish_reason for rollout in group.rollouts])
        masks = [
            [keep and rollout.reward is not None and (ok or not mask_truncated) for keep in r_mask]
            for rollout, ok in zip(group.rollouts, whole, strict=True)
            for r_mask in (rollout.mask,)
        ]
        group_tokens = sum(map(sum, masks))
        for index, (rollout, mask) in enumerate(zip(group.rollouts, masks, strict=True)):
            rows.append(
                TrainRow(
                    key=first_key + len(rows),
                    group=number,
                    prompt_ids=group.prompt.ids,
                    response_ids=rollout.ids,
                    mask=mask,
                    advantage=0.0 if advantages is None else advantages[number][index],
                    sampling_logprobs=rollout.sampling_logprobs,
                    kept_mass=rollout.kept_mass,
                    off_policy=rollout.off_policy,
                    recorded_logprobs=rollout.recorded_logprobs,
                    group_tokens=group_tokens,
                )
            )
    return rows


def score_updates(
    updates: Sequence[Update],
    model: nn.Module,
    *,
    temperature: float,
    autocast: torch.dtype | None,
    old: bool,
    reference: Reference | None,
    first_is_current: bool = False,
) -> list[Update]:
    """The updates with what stays fixed over them: old log-probabilities, and the reference's.

    `first_is_current`: the first update is trained once, and with the weights that `model` has now,
    so that its old log-probabilities are those of its own forward pass and need none before it.
    """
    result = []
    for number, update in enumerate(updates):
        batches = update.microbatches
        if old and not (first_is_current and number == 0):
            batches = score(model, batches, temperature=temperature, autocast=autocast)
        if reference is not None:
            scores = reference.scores(batches, temperature=temperature, autocast=autocast)
            batches = [
                replace(batch, ref_logprobs=logprobs)
                for batch, logprobs in zip(batches, scores, strict=True)
            ]
        result.append(replace(update, microbatches=batches))
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatistics:
    """What is known of a whole step before its first backward pass."""

    update: Update
    entropy: float | None = None


def step_statistics(
    update: Update,
    objective: ResolvedObjective,
    model: nn.Module,
    *,
    temperature: float,
    autocast: torch.dtype | None,
    seed: int,
    ranks: Ranks,
) -> StepStatistics:
    """The update with tokens chosen over the whole step, and the step's mean entropy.

    Only objectives that ask for it pay for the extra forward pass.
    """
    if not objective.needs_statistics:
        return StepStatistics(update=update)
    current = score(model, update.microbatches, temperature=temperature, autocast=autocast)
    if objective.correction_renormalise:
        update, current = _without_dropped(update, current, objective, ranks)
    masks = [batch.mask for batch in current]
    batches = update.microbatches
    if objective.chooses_by_covariance:
        covariances = token_covariances(
            [batch.advantages for batch in current],
            [_logprobs(batch) for batch in current],
            masks,
            gather=ranks.all_concat,
        )
        keys = [batch.keys for batch in current]
        share, gather = objective.cov_share, ranks.all_concat
        if objective.surrogate == "clip_cov":
            bounds = {"low": objective.cov_low, "high": objective.cov_high}
            chosen = clip_cov_tokens(
                covariances, masks, keys, seed=seed, share=share, gather=gather, **bounds
            )
        else:
            chosen = kl_cov_tokens(covariances, masks, keys, seed=seed, share=share, gather=gather)
        batches = [replace(b, chosen=c) for b, c in zip(batches, chosen, strict=True)]
    entropies = [_entropies(batch) for batch in current]
    if objective.top_entropy_quantile < 1:
        kept = high_entropy_tokens(
            entropies, masks, share=objective.top_entropy_quantile, gather=ranks.all_concat
        )
        batches = [replace(b, kept=k) for b, k in zip(batches, kept, strict=True)]
    total = torch.zeros((), dtype=torch.float64)
    for values, mask in zip(entropies, masks, strict=True):
        total += torch.where(mask, values, 0.0).sum().double().cpu()
    entropy = float(ranks.all_sum(total)) / max(update.totals.num_tokens, 1)
    return StepStatistics(update=replace(update, microbatches=batches), entropy=entropy)


def _without_dropped(
    update: Update, current: list[MicroBatch], objective: ResolvedObjective, ranks: Ranks
) -> tuple[Update, list[MicroBatch]]:
    """Rows that the correction drops leave masks and denominators."""
    kept, scored = [], []
    rows = tokens = off_policy = 0
    for batch, now in zip(update.microbatches, current, strict=True):
        old = _logprobs(now) if batch.old_logprobs is None else batch.old_logprobs
        correction = correction_of(objective, batch, _logprobs(now), old)
        assert correction is not None, "only corrections that drop rows are renormalised"
        dropped = correction.dropped_rows
        mask = batch.mask & ~dropped[:, None]
        rows += int((batch.mask.any(1) & dropped).sum())
        tokens += int((batch.mask & ~mask).sum())
        off_policy += int((batch.mask & ~mask & batch.off_policy).sum())
        kept.append(replace(batch, mask=mask))
        scored.append(replace(now, mask=mask))
    rows, tokens, off_policy = sum_counts([rows, tokens, off_policy], ranks)
    totals = replace(
        update.totals,
        num_rows=update.totals.num_rows - rows,
        num_tokens=update.totals.num_tokens - tokens,
        num_off_policy_tokens=update.totals.num_off_policy_tokens - off_policy,
    )
    return replace(update, totals=totals, microbatches=kept), scored


def _logprobs(batch: MicroBatch) -> Tensor:
    assert batch.old_logprobs is not None, "scored above"
    return batch.old_logprobs


def _entropies(batch: MicroBatch) -> Tensor:
    assert batch.entropies is not None, "scored above"
    return batch.entropies
