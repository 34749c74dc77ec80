"""Hop 5: rows of token ids to microbatches under a token budget.

A row is a prompt and a response. Rows are laid into *lanes*, the rows of `input_ids`, in one of
several ways that give the same loss and gradient:

- padded: one row per lane, right-padded. Plain causal attention, no mask.
- packed: several rows per lane; each sees only itself.
- shared_prompt: the rows of one group follow their prompt, which is computed once; each response
  sees the prompt and itself. The cheapest where prompts are long against responses.
- documents, shared_documents: the same two without mask and padding, by `training.attention`: what
  they become on a GPU. Rows of one length are padded there, since that kernel is the faster one.

Whatever the layout, everything about responses stands in [B, T] tensors, one line per row, so the
objectives never see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from workings.errors import DataError, TrainingError
from workings.objectives.reductions import StepTotals
from workings.training.attention import Documents
from workings.training.distributed import Ranks, sum_counts
from workings.training.lane_tensors import Apart, lane_tensors
from workings.training.lanes import (
    Lane,
    document_lanes,
    is_even,
    masked_lanes,
    padded_lanes,
)

Layout = Literal["padded", "packed", "shared_prompt", "documents", "shared_documents"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRow:
    """One prompt and response to train on; sequences have the length of `response_ids`.

    Attributes:
        key: position in the optimizer step; metrics and tests refer to rows by it.
        group: rows of one group have equal `prompt_ids`.
        mask: True where the token is trained.
        advantage: of the whole row, or of each token; 1.0 in supervised training.
        sampling_logprobs, kept_mass: from the engine; empty in supervised training.
        off_policy: True where the policy did not sample the token; empty where it sampled all.
        recorded_logprobs: of off-policy tokens under what produced them; empty where unknown.
        group_tokens: trained tokens of the row's group in the optimizer step.
    """

    key: int
    group: int
    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    mask: Sequence[bool]
    advantage: float | Sequence[float] = 1.0
    sampling_logprobs: Sequence[float] = ()
    kept_mass: Sequence[float] = ()
    off_policy: Sequence[bool] = ()
    recorded_logprobs: Sequence[float] = ()
    group_tokens: int = 0

    @property
    def num_trained(self) -> int:
        """Tokens that carry loss."""
        return sum(self.mask)

    @property
    def has_advantage(self) -> bool:
        """True where any token of the row is worth more or less than nothing."""
        return any(self.advantage) if isinstance(self.advantage, Sequence) else self.advantage != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One forward pass. L lanes of width W hold B rows with responses of up to T tokens.

    Attributes:
        input_ids: [L, W] int64, for example [[5, 8, 8, 2, 0], [5, 9, 2, 0, 0]].
        position_ids: [L, W] int64; restart with every row, responses go on from their prompt.
        attention_mask: [L, 1, W, W] bool, True = may attend; None where plain causal attention is
            right (padded, padding on the right) and where there are `documents`.
        documents: boundaries of what sees itself in a single lane (L = 1); None in other layouts.
        sources: [B, T] int64, index into the flattened [L * W] of the token that predicts.
        targets: [B, T] int64, the token predicted.
        mask: [B, T] bool, True = trained.
        trained: [N] int64, index into the flattened [B * T] of the tokens that are scored: those
            trained when the rows were packed.
        advantages: [B, 1] float32, or [B, T] where they differ within a row.
        sampling_logprobs: [B, T] float32, NaN where the engine has no score.
        kept_mass: [B, T] float32.
        off_policy: [B, T] bool, True where the policy did not sample the token.
        recorded_logprobs: [B, T] float32, of off-policy tokens under what produced them; NaN where
            unknown.
        group_tokens: [B] int64, trained tokens of the row's group in the optimizer step.
        keys: the rows' keys, in order.
        old_logprobs: [B, T] float32, from the trainer at rollout weights; None while the weights
            still are those of the rollout.
        entropies: [B, T] float32, of the same pass; None without one.
        ref_logprobs: [B, T] float32, from the reference; None without one.
        chosen: [B, T] bool, tokens chosen by their covariance over the whole step; None without.
        kept: [B, T] bool, tokens that stay in the numerator of the policy loss; None is all.
    """

    input_ids: Tensor
    position_ids: Tensor
    attention_mask: Tensor | None
    documents: Documents | None
    sources: Tensor
    targets: Tensor
    mask: Tensor
    trained: Tensor
    advantages: Tensor
    sampling_logprobs: Tensor
    kept_mass: Tensor
    off_policy: Tensor
    recorded_logprobs: Tensor
    group_tokens: Tensor
    keys: tuple[int, ...] = ()
    old_logprobs: Tensor | None = None
    entropies: Tensor | None = None
    ref_logprobs: Tensor | None = None
    chosen: Tensor | None = None
    kept: Tensor | None = None


def step_totals(
    rows: Iterable[TrainRow], ranks: Ranks, *, count_masked_rows: bool = False
) -> StepTotals:
    """Rows with a trained token, and trained tokens, over the whole step and all ranks.

    `count_masked_rows` counts rows without a trained token too. Groups lie on one rank each.
    """
    rows = list(rows)
    trained = [row for row in rows if row.num_trained > 0]
    num_rows, num_tokens, num_off_policy_tokens, num_prompts = sum_counts(
        [
            len(rows if count_masked_rows else trained),
            sum(row.num_trained for row in trained),
            sum(_num_off_policy(row) for row in trained),
            len({row.group for row in trained}),
        ],
        ranks,
    )
    return StepTotals(
        num_rows=num_rows,
        num_tokens=num_tokens,
        num_off_policy_tokens=num_off_policy_tokens,
        num_prompts=num_prompts,
    )


def _num_off_policy(row: TrainRow) -> int:
    return sum(off and trained for off, trained in zip(row.off_policy, row.mask, strict=False))


def pack(
    rows: Sequence[TrainRow],
    *,
    layout: Layout,
    max_tokens: int,
    max_rows: int | None = None,
    pad_id: int = 0,
    padding_side: Literal["left", "right"] = "right",
    device: torch.device | str = "cpu",
) -> list[MicroBatch]:
    """Microbatches that hold every row with a trained token once; few, and of like size.

    `max_tokens` bounds L * W of a microbatch and `max_rows` its B; a single row longer than the
    budget gets a microbatch of its own. Rows without a trained token are left out: they carry no
    loss (`step_totals` does not count them either).
    """
    rows = [row for row in rows if row.num_trained > 0]
    for row in rows:
        _check(row)
    if not rows:
        return []
    apart, microbatches = _arranged(rows, layout, padding_side, max_tokens, max_rows)
    return [
        MicroBatch(
            **lane_tensors(
                lanes, apart=apart, pad_id=pad_id, padding_side=padding_side, device=device
            )
        )
        for lanes in microbatches
    ]


def _arranged(
    rows: Sequence[TrainRow],
    layout: Layout,
    padding_side: str,
    max_tokens: int,
    max_rows: int | None,
) -> tuple[Apart, list[list[Lane]]]:
    """What keeps the rows apart, and the lanes of each microbatch."""
    shared = layout in ("shared_prompt", "shared_documents")
    if layout in ("packed", "shared_prompt"):
        return "mask", masked_lanes(rows, shared=shared, max_tokens=max_tokens, max_rows=max_rows)
    if layout == "padded" or not shared:
        padded = padded_lanes(rows, max_tokens=max_tokens, max_rows=max_rows)
        if layout == "padded" or is_even(padded):
            return ("lanes" if padding_side == "right" else "mask"), padded
    return "documents", document_lanes(
        rows, shared=shared, max_tokens=max_tokens, max_rows=max_rows
    )


def _check(row: TrainRow) -> None:
    if not row.prompt_ids:
        raise DataError(
            f"row {row.key} has an empty prompt, so nothing predicts its first response token",
            hint="use a prompt template that renders at least one token",
        )
    if len(row.mask) != len(row.response_ids):
        raise TrainingError(
            f"row {row.key} has {len(row.response_ids)} response ids and a mask of {len(row.mask)}"
        )
    if isinstance(row.advantage, Sequence) and len(row.advantage) != len(row.response_ids):
        raise TrainingError(
            f"row {row.key} has {len(row.response_ids)} response ids and {len(row.advantage)} "
            "advantages"
        )
