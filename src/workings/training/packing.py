"""Hop 5: rows of token ids to microbatches under a token budget.

A row is a prompt and a response. Rows are laid into *lanes*, the rows of `input_ids`, in one of
three ways that give the same loss and gradient:

- padded: one row per lane, right-padded. Plain causal attention, no mask.
- packed: several rows per lane; each sees only itself.
- shared_prompt: the rows of one group follow their prompt, which is computed once; each response
  sees the prompt and itself. The cheapest where prompts are long against responses.

Whatever the layout, everything about responses stands in [B, T] tensors, one line per row, so the
objectives never see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from workings.errors import DataError, TrainingError
from workings.objectives.reductions import StepTotals
from workings.training.distributed import Ranks, sum_counts

Layout = Literal["padded", "packed", "shared_prompt"]


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
            right (padded, padding on the right).
        sources: [B, T] int64, index into the flattened [L * W] of the token that predicts.
        targets: [B, T] int64, the token predicted.
        mask: [B, T] bool, True = trained.
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
    sources: Tensor
    targets: Tensor
    mask: Tensor
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
    """Microbatches that hold every row with a trained token once.

    `max_tokens` bounds L * W of a microbatch and `max_rows` its B; a single row longer than the
    budget gets a microbatch of its own. Rows without a trained token are left out: they carry no
    loss (`step_totals` does not count them either).
    """
    rows = [row for row in rows if row.num_trained > 0]
    for row in rows:
        _check(row)
    if not rows:
        return []
    lanes = _lanes(rows, layout, max_tokens, max_rows)
    return [
        _build(batch, pad_id=pad_id, side=padding_side, plain=layout == "padded", device=device)
        for batch in _batches(lanes, max_tokens, max_rows)
    ]


@dataclass(slots=True)
class _Unit:
    """A prompt and the responses that follow it in one lane."""

    rows: list[TrainRow]

    @property
    def length(self) -> int:
        return len(self.rows[0].prompt_ids) + sum(len(row.response_ids) for row in self.rows)


@dataclass(slots=True)
class _Lane:
    units: list[_Unit] = field(default_factory=list)

    @property
    def length(self) -> int:
        return sum(unit.length for unit in self.units)

    @property
    def num_rows(self) -> int:
        return sum(len(unit.rows) for unit in self.units)


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


def _lanes(
    rows: Sequence[TrainRow], layout: Layout, max_tokens: int, max_rows: int | None
) -> list[_Lane]:
    if layout == "shared_prompt":
        units = _group_units(rows, max_tokens, max_rows)
    else:
        units = [_Unit([row]) for row in rows]
    units.sort(key=lambda unit: (-unit.length, unit.rows[0].key))
    if layout == "padded":
        return [_Lane([unit]) for unit in units]
    return _fill(units, max_tokens, max_rows)


def _group_units(rows: Sequence[TrainRow], max_tokens: int, max_rows: int | None) -> list[_Unit]:
    """Units of rows that share a prompt, split where one would exceed the budget."""
    units: list[_Unit] = []
    open_units: dict[int, _Unit] = {}
    for row in rows:
        unit = open_units.get(row.group)
        if (
            unit is None
            or unit.length + len(row.response_ids) > max_tokens
            or (max_rows is not None and len(unit.rows) >= max_rows)
        ):
            unit = open_units[row.group] = _Unit([])
            units.append(unit)
        elif tuple(unit.rows[0].prompt_ids) != tuple(row.prompt_ids):
            raise TrainingError(
                f"rows {unit.rows[0].key} and {row.key} are of group {row.group} "
                "but have different prompts"
            )
        unit.rows.append(row)
    return units


def _fill(units: list[_Unit], max_tokens: int, max_rows: int | None) -> list[_Lane]:
    """Lanes filled first-fit in falling length, at the width that wastes least.

    Attention costs a lane's width per token, so a wider lane must pay for itself in padding.
    """
    longest = units[0].length
    widths = sorted({min(max(longest, math.ceil(longest * f)), max_tokens) for f in (1, 1.5, 2, 3)})
    best: tuple[float, list[_Lane]] | None = None
    for width in widths:
        lanes = _first_fit(units, max(width, longest), max_rows)
        slots = sum(width * (1 + width / 4096) for _ in lanes)
        if best is None or slots < best[0]:
            best = (slots, lanes)
    assert best is not None
    return best[1]


def _first_fit(units: list[_Unit], width: int, max_rows: int | None) -> list[_Lane]:
    lanes: list[_Lane] = []
    room: list[int] = []
    for unit in units:
        for index, lane in enumerate(lanes):
            if room[index] >= unit.length and (
                max_rows is None or lane.num_rows + len(unit.rows) <= max_rows
            ):
                break
        else:
            index = len(lanes)
            lanes.append(_Lane())
            room.append(width)
        lanes[index].units.append(unit)
        room[index] -= unit.length
    return lanes


def _batches(lanes: list[_Lane], max_tokens: int, max_rows: int | None) -> Iterable[list[_Lane]]:
    lanes = sorted(lanes, key=lambda lane: -lane.length)
    batch: list[_Lane] = []
    num_rows = 0
    for lane in lanes:
        width = batch[0].length if batch else lane.length
        too_wide = (len(batch) + 1) * width > max_tokens
        too_many = max_rows is not None and num_rows + lane.num_rows > max_rows
        if batch and (too_wide or too_many):
            yield batch
            batch, num_rows = [], 0
        batch.append(lane)
        num_rows += lane.num_rows
    if batch:
        yield batch


def _build(
    lanes: list[_Lane],
    *,
    pad_id: int,
    side: str,
    plain: bool,
    device: torch.device | str,
) -> MicroBatch:
    """The tensors of one microbatch."""
    width = max(lane.length for lane in lanes)
    rows = [row for lane in lanes for unit in lane.units for row in unit.rows]
    num_tokens = max(len(row.response_ids) for row in rows)
    input_ids, positions, units, branches = [], [], [], []
    sources: list[list[int]] = []
    for lane_index, lane in enumerate(lanes):
        padding = width - lane.length
        cursor = lane_index * width + (padding if side == "left" else 0)
        ids: list[int] = []
        position: list[int] = []
        unit_of: list[int] = []
        branch_of: list[int] = []
        for unit_index, unit in enumerate(lane.units, start=1):
            prompt = list(unit.rows[0].prompt_ids)
            start = cursor + len(ids)
            ids += prompt
            position += range(len(prompt))
            branch_of += [0] * len(prompt)
            for branch, row in enumerate(unit.rows, start=1):
                first = cursor + len(ids)
                length = len(row.response_ids)
                sources.append([start + len(prompt) - 1, *range(first, first + length - 1)])
                ids += row.response_ids
                position += range(len(prompt), len(prompt) + length)
                branch_of += [branch] * length
            unit_of += [unit_index] * unit.length
        tail = range(len(ids), width) if plain and side == "right" else [0] * padding
        input_ids.append(_padded(ids, [pad_id] * padding, side))
        positions.append(_padded(position, list(tail), side))
        units.append(_padded(unit_of, [0] * padding, side))
        branches.append(_padded(branch_of, [0] * padding, side))
    attention_mask = None
    if not (plain and side == "right"):
        attention_mask = _attention_mask(
            torch.tensor(units, device=device), torch.tensor(branches, device=device)
        )

    def table(values: Iterable[Sequence[float]], fill: float, dtype: torch.dtype) -> Tensor:
        lines = [[*line, *[fill] * (num_tokens - len(line))] for line in values]
        return torch.tensor(lines, dtype=dtype, device=device)

    return MicroBatch(
        input_ids=torch.tensor(input_ids, device=device),
        position_ids=torch.tensor(positions, device=device),
        attention_mask=attention_mask,
        sources=table(sources, 0, torch.int64),
        targets=table((row.response_ids for row in rows), 0, torch.int64),
        mask=table((row.mask for row in rows), False, torch.bool),
        advantages=_advantages(rows, table, device),
        sampling_logprobs=table((row.sampling_logprobs for row in rows), math.nan, torch.float32),
        kept_mass=table((row.kept_mass for row in rows), 1.0, torch.float32),
        off_policy=table((row.off_policy for row in rows), False, torch.bool),
        recorded_logprobs=table((row.recorded_logprobs for row in rows), math.nan, torch.float32),
        group_tokens=torch.tensor([row.group_tokens for row in rows], device=device),
        keys=tuple(row.key for row in rows),
    )


def _advantages(
    rows: Sequence[TrainRow], table: Callable[..., Tensor], device: torch.device | str
) -> Tensor:
    """[B, 1], or [B, T] where a row has one for each token."""
    if not any(isinstance(row.advantage, Sequence) for row in rows):
        return torch.tensor([[row.advantage] for row in rows], device=device).float()
    return table(
        (
            row.advantage
            if isinstance(row.advantage, Sequence)
            else [row.advantage] * len(row.response_ids)
            for row in rows
        ),
        0.0,
        torch.float32,
    )


def _padded(values: list[int], padding: list[int], side: str) -> list[int]:
    return padding + values if side == "left" else values + padding


def _attention_mask(units: Tensor, branches: Tensor) -> Tensor:
    """[L, 1, W, W] bool: causal, within one unit, to the prompt (branch 0) and the own branch.

    Padding is unit 0 and attends to padding, so that no line of the mask is empty (an empty line
    would give NaN in a softmax).
    """
    width = units.shape[1]
    causal = torch.ones(width, width, dtype=torch.bool, device=units.device).tril()
    same_unit = units[:, :, None] == units[:, None, :]
    visible = (branches[:, None, :] == 0) | (branches[:, :, None] == branches[:, None, :])
    return (causal & same_unit & visible)[:, None]
