r"""Lists that are written out of order of a plain list: numbered parts, and dots for what follows.

>>> numbered_parts("(1) 3 (2) 5")
(('(1)', '(2)'), ('3', '5'))
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from workings.grading.reading.answers import Answer, Expression
from workings.grading.reading.number import Number
from workings.grading.text.braces import split_top

MAX_EXPANDED = 1000

_MARKERS = (("(1)", "(2)", "(3)", "(4)", "(5)", "(6)"), ("(a)", "(b)", "(c)", "(d)", "(e)", "(f)"),
            ("(i)", "(ii)", "(iii)", "(iv)", "(v)", "(vi)"))  # fmt: skip
_DOTS = re.compile(r"\\(?:l|c|h)?dots|\\dotsc|\.{3}|…")


def numbered_parts(text: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """(markers, contents) of an answer in parts; None for any other text.

    >>> numbered_parts("(a) x+1, (b) 7")
    (('(a)', '(b)'), ('x+1', '7'))
    >>> numbered_parts("(1)(2)") is None
    True
    """
    for markers in _MARKERS:
        if not text.startswith(markers[0]):
            continue
        pieces = [text]
        found: list[str] = []
        for marker in markers:
            rest = pieces[-1]
            before, here, after = rest.partition(marker)
            if not here:
                break
            pieces[-1:] = [before, after]
            found.append(marker)
        contents = tuple(piece.strip(" ,;.\n") for piece in pieces[1:])
        if len(found) > 1 and pieces[0].strip() == "" and all(contents):
            return tuple(found), contents
    return None


def continued(items: Sequence[Answer]) -> tuple[Answer, ...] | None:
    r"""The items with dots between integers of one step written out; None where that is not so.

    >>> from workings.grading.reading.read import read_answer
    >>> [int(item.value) for item in read_answer(r"1, 3, \ldots, 9").items]
    [1, 3, 5, 7, 9]
    """
    places = [place for place, item in enumerate(items) if _is_dots(item)]
    if len(places) != 1 or not 2 <= places[0] < len(items) - 1:
        return None
    place = places[0]
    values = [
        item.value
        for item in (*items[:place], *items[place + 1 :])
        if isinstance(item, Number) and item.kind == "integer" and item.unit is None
    ]
    if len(values) != len(items) - 1:
        return None
    step = values[1] - values[0]
    before, after = values[:place], values[place:]
    steps = [b - a for part in (before, after) for a, b in pairwise(part)]
    if step == 0 or any(one != step for one in steps):
        return None
    count = (after[0] - before[-1]) / step
    if count.denominator != 1 or not 0 < count <= MAX_EXPANDED:
        return None
    between = [before[-1] + step * number for number in range(1, int(count))]
    return tuple(_integer(value) for value in (*before, *between, *after))


def integers_between(low: Fraction, high: Fraction) -> tuple[Answer, ...] | None:
    """The integers from `low` to `high`, both included; None where they are too many."""
    first, last = -((-low) // 1), high // 1
    if last - first >= MAX_EXPANDED:
        return None
    return tuple(_integer(Fraction(value)) for value in range(int(first), int(last) + 1))


def has_dots(text: str) -> bool:
    """True where dots stand between the items of a list."""
    return any(_DOTS.fullmatch(piece) for piece in split_top(text, "[,;]")[0])


def _is_dots(item: Answer) -> bool:
    return isinstance(item, Expression) and _DOTS.fullmatch(item.text) is not None


def _integer(value: Fraction) -> Number:
    return Number(value=value, kind="integer")
