"""Rows held out for validation: an exact number, and no question on both sides."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from workings.data.order import epoch_order
from workings.errors import DataError


def hold_out(questions: Sequence[Hashable], num_held_out: int, *, seed: int) -> frozenset[int]:
    """The numbers of the rows to hold out.

    Rows that share a question go to one side together: questions are taken in a seeded order, and
    one with more rows than are still wanted is passed over. So the number is reached exactly
    wherever enough questions have a single row, and never exceeded. DataError where nothing would
    be left to train on.

    >>> sorted(hold_out(["a", "b", "a", "c"], 2, seed=1))
    [1, 3]
    """
    if num_held_out >= len(questions):
        raise DataError(
            f"{num_held_out} of {len(questions)} rows cannot be held out: none would be left",
            hint="hold out fewer with --held-out, or take more rows",
        )
    rows_of: dict[Hashable, list[int]] = {}
    for row, question in enumerate(questions):
        rows_of.setdefault(question, []).append(row)
    names = list(rows_of)
    held_out: list[int] = []
    for position in epoch_order(len(names), seed=seed):
        rows = rows_of[names[position]]
        if len(held_out) + len(rows) <= num_held_out:
            held_out += rows
        if len(held_out) == num_held_out:
            break
    return frozenset(held_out)
