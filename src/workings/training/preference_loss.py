"""The loss of a step of preference pairs, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from workings.config.dpo import SFT_TERM, SORTED_LOSSES
from workings.objectives.preference import (
    PreferenceLoss,
    SortedPartners,
    chosen_nll,
    preference_loss,
    preferred,
    sorted_partners,
)
from workings.training.distributed import Ranks, sum_counts
from workings.training.forward import ResponseScores
from workings.training.packing import MicroBatch
from workings.training.pairs import PairLogprobs, pair_logprobs
from workings.training.step import LossFunction, LossOutput

TIE = 1e-4
"""Log-ratios no further apart than this, in nats, are equal: float32 sums are no more exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairObjective:
    """What a step of pairs minimises: the weighted sum of `terms`, by name, and their constants."""

    terms: Mapping[str, float]
    beta: float
    label_smoothing: float = 0.0
    ipo_sum: bool = False
    ld_alpha: float = 1.0

    @property
    def sorts(self) -> bool:
        """True where a term compares sorted values of the whole step."""
        return any(name in SORTED_LOSSES for name in self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTotals:
    """Counts over a whole step, all ranks: pairs, tokens of chosen responses, tokens of both."""

    num_pairs: int
    num_chosen_tokens: int
    num_tokens: int


def pair_totals(chosen_lengths: list[int], rejected_lengths: list[int], ranks: Ranks) -> PairTotals:
    """The totals of a step whose pairs have these lengths on this rank."""
    chosen, rejected = sum(chosen_lengths), sum(rejected_lengths)
    counts = sum_counts([len(chosen_lengths), chosen, chosen + rejected], ranks)
    return PairTotals(num_pairs=counts[0], num_chosen_tokens=counts[1], num_tokens=counts[2])


def partners_of_step(logprobs: Tensor, reference: Tensor, ranks: Ranks) -> SortedPartners:
    """The sorted partners of this rank's pairs from values of all ranks; [P, 2] each, discounted.

    `logprobs` are the policy's, of a pass without gradient before the step.
    """
    ratios = logprobs - reference
    margins = reference[:, 0] - reference[:, 1]
    sizes = ranks.all_objects(len(ratios))
    whole = [ranks.all_concat(values) for values in (ratios[:, 0], ratios[:, 1], margins)]
    first = sum(sizes[: ranks.rank])
    own = torch.arange(first, first + len(ratios), device=ratios.device)
    return sorted_partners(*whole).of(own)


def preference_step_loss(
    objective: PairObjective,
    reference: Tensor,
    totals: PairTotals,
    *,
    partners: SortedPartners | None = None,
) -> LossFunction:
    """The loss of a step with these totals.

    `reference` [P, 2] holds the reference's log-probabilities of chosen and rejected, discounted,
    for the pairs of this rank's step; `partners` too are of those, and needed where the objective
    sorts.
    """

    def function(scores: ResponseScores, batch: MicroBatch) -> LossOutput:
        pairs = pair_logprobs(scores.logprobs, batch, ld_alpha=objective.ld_alpha)
        ours = reference.to(scores.logprobs)[pairs.places]
        terms = pair_terms(
            objective,
            pairs,
            ours,
            num_chosen_tokens=totals.num_chosen_tokens,
            partners=None if partners is None else partners.of(pairs.places),
        )
        loss = sum_of_terms(objective, terms, num_pairs=totals.num_pairs)
        sums = pair_sums(objective, pairs, ours, terms)
        sums["entropy"] = torch.where(batch.mask, scores.entropies.detach(), 0.0).sum().double()
        return LossOutput(loss=loss, sums=sums)

    return function


def pair_terms(
    objective: PairObjective,
    pairs: PairLogprobs,
    reference: Tensor,
    *,
    num_chosen_tokens: int,
    partners: SortedPartners | None = None,
) -> dict[str, Tensor]:
    """Every term of the objective by name, unweighted: one number for each pair, [P].

    The mean over the pairs of a step is the term's loss; of sft the sum is.
    """
    chosen = pairs.chosen_discounted - reference[:, 0]
    rejected = pairs.rejected_discounted - reference[:, 1]
    terms: dict[str, Tensor] = {}
    for name in objective.terms:
        if name == SFT_TERM:
            terms[name] = chosen_nll(pairs.chosen, num_chosen_tokens)
        else:
            terms[name] = preference_loss(
                chosen,
                rejected,
                loss=cast(PreferenceLoss, name),
                beta=objective.beta,
                label_smoothing=objective.label_smoothing,
                chosen_lengths=pairs.chosen_lengths,
                rejected_lengths=pairs.rejected_lengths,
                ipo_sum=objective.ipo_sum,
                ref_margins=reference[:, 0] - reference[:, 1],
                partners=partners,
            )
    return terms


def sum_of_terms(
    objective: PairObjective, terms: Mapping[str, Tensor], *, num_pairs: int
) -> Tensor:
    """The scalar share of the step's loss of the pairs that `terms` are of."""
    shares = [
        objective.terms[name] * values.sum() / (1 if name == SFT_TERM else max(num_pairs, 1))
        for name, values in terms.items()
    ]
    return torch.stack(shares).sum()


def pair_sums(
    objective: PairObjective,
    pairs: PairLogprobs,
    reference: Tensor,
    terms: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Detached sums over pairs of everything that is reported."""
    chosen = (pairs.chosen_discounted - reference[:, 0]).detach()
    rejected = (pairs.rejected_discounted - reference[:, 1]).detach()
    values = {
        "rewards/chosen": objective.beta * chosen,
        "rewards/rejected": objective.beta * rejected,
        "rewards/margins": objective.beta * (chosen - rejected),
        "rewards/accuracies": preferred(chosen, rejected, tolerance=TIE),
        "logps/chosen": pairs.chosen,
        "logps/rejected": pairs.rejected,
        "logps/accuracies": preferred(pairs.chosen, pairs.rejected, tolerance=TIE),
        "pairs": torch.ones_like(chosen),
        "tokens": pairs.chosen_lengths + pairs.rejected_lengths,
        **({f"losses/{name}": terms[name] for name in terms} if len(terms) > 1 else {}),
    }
    return {name: value.detach().double().sum() for name, value in values.items()}


def pair_metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means over the pairs of a step of what `pair_sums` added up, by their names in the log.

    rewards/*: of the implicit reward, b times the log-ratio; `rewards/accuracies` counts ties as a
    half. logps/*: of the policy's own log-probabilities; `logps/accuracies` is the raw preference
    for the chosen response, whatever the reference prefers.
    """
    pairs = max(sums.get("pairs", 0.0), 1.0)
    metrics = {
        name: value if name == f"losses/{SFT_TERM}" else value / pairs
        for name, value in sums.items()
        if "/" in name
    }
    if "entropy" in sums:
        metrics["avg_token_entropy"] = sums["entropy"] / max(sums.get("tokens", 0.0), 1.0)
    return metrics
