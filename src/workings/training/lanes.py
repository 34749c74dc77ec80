"""Which rows lie in which lane, and which lanes make up a microbatch.

A *unit* is a prompt and the responses that follow it, a *lane* holds units one behind the other,
and a microbatch holds lanes: L lanes of width W, or, where documents need no mask, a single lane.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workings.errors import TrainingError
from workings.training.bins import Item, balanced_bins, smallest_budget

if TYPE_CHECKING:
    from workings.training.packing import TrainRow

MASK_TOKENS = 4096
"""Context at which attention under a mask costs as much per token as the rest of a layer."""
DOCUMENT_TOKENS = 8192
"""The same without a mask, for documents of uneven lengths."""
MOST_PADDING = 0.02
"""Share of padding up to which rows count as being of one length. torch's fused attention does 1.7
times as much on those, but every new width costs it a search for a kernel."""


@dataclass(slots=True)
class Unit:
    """A prompt and the responses that follow it in one lane."""

    rows: list[TrainRow]

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        return len(self.rows[0].prompt_ids)

    @property
    def length(self) -> int:
        """Tokens, the prompt counted once."""
        return self.prompt_length + sum(len(row.response_ids) for row in self.rows)

    @property
    def item(self) -> Item:
        """The unit on the scales: tokens, and the pairs of tokens that see each other."""
        prompt = self.prompt_length
        pairs = prompt**2 / 2
        for row in self.rows:
            pairs += len(row.response_ids) * (prompt + len(row.response_ids) / 2)
        return Item(self.length, len(self.rows), self.length + 2 * pairs / DOCUMENT_TOKENS)


@dataclass(slots=True)
class Lane:
    """Units that stand one behind the other."""

    units: list[Unit] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens."""
        return sum(unit.length for unit in self.units)

    @property
    def num_rows(self) -> int:
        """Rows of all units."""
        return sum(len(unit.rows) for unit in self.units)


def padded_lanes(
    rows: Sequence[TrainRow], *, max_tokens: int, max_rows: int | None
) -> list[list[Lane]]:
    """One row in each lane; rows of like length lie together."""
    units = sorted(map(_alone, rows), key=_longest_first)
    return _microbatches([Lane([unit]) for unit in units], max_tokens, max_rows)


def masked_lanes(
    rows: Sequence[TrainRow], *, shared: bool, max_tokens: int, max_rows: int | None
) -> list[list[Lane]]:
    """Several units in each lane, at the width that wastes least; `shared`: a prompt once."""
    units = _group_units(rows, max_tokens, max_rows) if shared else list(map(_alone, rows))
    lanes = _fill(sorted(units, key=_longest_first), max_tokens, max_rows)
    return _microbatches(lanes, max_tokens, max_rows)


def document_lanes(
    rows: Sequence[TrainRow], *, shared: bool, max_tokens: int, max_rows: int | None
) -> list[list[Lane]]:
    """One lane for each microbatch, without padding, all of nearly equal cost."""
    units = _group_units(rows, max_tokens, max_rows) if shared else list(map(_alone, rows))
    units.sort(key=_longest_first)
    chosen = balanced_bins([unit.item for unit in units], max_tokens=max_tokens, max_rows=max_rows)
    return [[Lane([units[index] for index in indices])] for indices in chosen]


def is_even(padded: Sequence[Sequence[Lane]]) -> bool:
    """True where rows are so much of one length that padding costs next to nothing."""
    slots = sum(len(lanes) * max(lane.length for lane in lanes) for lanes in padded)
    return slots <= (1 + MOST_PADDING) * sum(lane.length for lanes in padded for lane in lanes)


def _alone(row: TrainRow) -> Unit:
    return Unit([row])


def _longest_first(unit: Unit) -> tuple[int, int]:
    return (-unit.length, unit.rows[0].key)


def _group_units(rows: Sequence[TrainRow], max_tokens: int, max_rows: int | None) -> list[Unit]:
    """Units of rows that share a prompt, split where one would exceed the budget."""
    units: list[Unit] = []
    open_units: dict[int, Unit] = {}
    for row in rows:
        unit = open_units.get(row.group)
        if (
            unit is None
            or unit.length + len(row.response_ids) > max_tokens
            or (max_rows is not None and len(unit.rows) >= max_rows)
        ):
            unit = open_units[row.group] = Unit([])
            units.append(unit)
        elif tuple(unit.rows[0].prompt_ids) != tuple(row.prompt_ids):
            raise TrainingError(
                f"rows {unit.rows[0].key} and {row.key} are of group {row.group} "
                "but have different prompts"
            )
        unit.rows.append(row)
    return units


def _fill(units: list[Unit], max_tokens: int, max_rows: int | None) -> list[Lane]:
    """Lanes filled first-fit in falling length, at the width that wastes least.

    Attention costs a lane's width per token, so a wider lane must pay for itself in padding.
    """
    longest = units[0].length
    widths = sorted({min(max(longest, math.ceil(longest * f)), max_tokens) for f in (1, 1.5, 2, 3)})
    best: tuple[float, list[Lane]] | None = None
    for width in widths:
        lanes = _first_fit(units, max(width, longest), max_rows)
        slots = sum(width * (1 + width / MASK_TOKENS) for _ in lanes)
        if best is None or slots < best[0]:
            best = (slots, lanes)
    assert best is not None
    return best[1]


def _first_fit(units: list[Unit], width: int, max_rows: int | None) -> list[Lane]:
    lanes: list[Lane] = []
    room: list[int] = []
    for unit in units:
        for index, lane in enumerate(lanes):
            if room[index] >= unit.length and (
                max_rows is None or lane.num_rows + len(unit.rows) <= max_rows
            ):
                break
        else:
            index = len(lanes)
            lanes.append(Lane())
            room.append(width)
        lanes[index].units.append(unit)
        room[index] -= unit.length
    return lanes


def _microbatches(lanes: list[Lane], max_tokens: int, max_rows: int | None) -> list[list[Lane]]:
    """Neighbours in falling length, as few microbatches as the budget allows, of like size."""
    lanes = sorted(lanes, key=lambda lane: -lane.length)
    lengths = [lane.length for lane in lanes]
    rows = [lane.num_rows for lane in lanes]
    budget = smallest_budget(
        lengths[0],
        max(max_tokens, lengths[0]),
        needed=lambda b: len(_cuts(lengths, rows, b, max_rows)),
    )
    cuts = [*_cuts(lengths, rows, budget, max_rows), len(lanes)]
    return [lanes[start:end] for start, end in itertools.pairwise(cuts)]


def _cuts(
    lengths: Sequence[int], rows: Sequence[int], max_tokens: int, max_rows: int | None
) -> list[int]:
    """Where a new microbatch begins, of lanes in falling length."""
    cuts: list[int] = []
    width = num_lanes = num_rows = 0
    for index, (length, own) in enumerate(zip(lengths, rows, strict=True)):
        too_wide = (num_lanes + 1) * width > max_tokens
        too_many = max_rows is not None and num_rows + own > max_rows
        if index == 0 or too_wide or too_many:
            cuts.append(index)
            width, num_lanes, num_rows = length, 0, 0
        num_lanes += 1
        num_rows += own
    return cuts
