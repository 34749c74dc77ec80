"""Several answers against several: in order, or each with a partner of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from workings.grading.reading.answers import Answer
from workings.grading.reading.number import Number
from workings.grading.rules.outcome import Outcome

Compare = Callable[[Answer, Answer], Outcome]

MAX_UNORDERED = 48
"""Longer unordered lists are compared only where all their items are plain numbers."""


def in_order(answers: Sequence[Answer], golds: Sequence[Answer], compare: Compare) -> Outcome:
    """All items the same, one after the other; one that differs settles it."""
    if len(answers) != len(golds):
        return Outcome(False, "structure", f"{len(answers)} items, where {len(golds)} are expected")
    unsure: Outcome | None = None
    for place, (answer, gold) in enumerate(zip(answers, golds, strict=True)):
        outcome = compare(answer, gold)
        if outcome.same is False:
            return replace(outcome, tier="structure", reason=f"item {place + 1}: {outcome.reason}")
        if outcome.same is None and (unsure is None or outcome.is_open):
            unsure = outcome
    return unsure or Outcome(True, "structure", "the same items in the same order")


def unordered(answers: Sequence[Answer], golds: Sequence[Answer], compare: Compare) -> Outcome:
    """Each item of one has a partner of its own in the other."""
    if len(answers) != len(golds):
        return Outcome(False, "structure", f"{len(answers)} items, where {len(golds)} are expected")
    if len(golds) > MAX_UNORDERED:
        keys = [_plain_values(items) for items in (answers, golds)]
        if keys[0] is None or keys[1] is None:
            return Outcome(None, "structure", "too many items to match")
        same = keys[0] == keys[1]
        return Outcome(same, "structure", "the same items" if same else "other items")
    table = [[compare(answer, gold) for gold in golds] for answer in answers]
    if _can_match([[cell.same is True for cell in row] for row in table]):
        return Outcome(True, "structure", "the same items")
    if _can_match([[cell.same is not False for cell in row] for row in table]):
        unsure = [cell for row in table for cell in row if cell.same is None]
        return next((cell for cell in unsure if cell.is_open), unsure[0])
    return Outcome(False, "structure", "an item has no partner")


def _can_match(edges: Sequence[Sequence[bool]]) -> bool:
    """True where every row can have a column of its own (augmenting paths)."""
    partner: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for column, edge in enumerate(edges[row]):
            if edge and column not in seen:
                seen.add(column)
                if column not in partner or place(partner[column], seen):
                    partner[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(edges)))


def _plain_values(items: Sequence[Answer]) -> list[Fraction] | None:
    values = [
        item.value
        for item in items
        if isinstance(item, Number) and item.unit is None and not item.percent
    ]
    return sorted(values) if len(values) == len(items) else None
