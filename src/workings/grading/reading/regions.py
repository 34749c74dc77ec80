"""Pieces of the real line: from brackets, inequalities and unions to one form, and their equality.

Ends are compared by `compare`; where all of them are rational, overlapping pieces are joined first.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

from workings.grading.reading.answers import (
    Answer,
    Collection,
    Complement,
    Infinity,
    Interval,
    Meaning,
    Named,
    Region,
)
from workings.grading.reading.number import Number

_NO_POINTS = (Collection, Interval, Region, Complement, Meaning)
"""A set that holds one of these is no part of the line: {∅} has an element."""

Cut = tuple[Fraction | float, bool]
"""A place on the line: just before the number (False) or just after it (True)."""


def region_of(answer: Answer) -> Region | Complement | None:
    """`answer` as a part of the real line, None where it is no such thing.

    A pair in parentheses is an open interval here: "(0, 1)" can be either.
    """
    match answer:
        case Region() | Complement():
            return answer
        case Interval():
            return Region((answer,))
        case Meaning(phrase="everything"):
            return Region((Interval(Infinity(-1), Infinity(1), False, False),))
        case Meaning(phrase="nothing"):
            return Region(())
        case Named(answer=inner):
            return region_of(inner)
        case Collection(items=(low, high), brackets="()"):
            return Region((Interval(low, high, False, False),))
        case Collection(items=items, brackets="") if items:
            return united(items)
        case Collection(brackets="{}"):
            return united((answer,))
    return None


def united(parts: Iterable[Answer]) -> Region | None:
    """The union of intervals and brace sets; None where a part is neither."""
    pieces: list[Answer] = []
    for part in parts:
        match part:
            case Collection(brackets="{}", items=points):
                if any(isinstance(point, _NO_POINTS) for point in points):
                    return None
                pieces.extend(points)
            case Complement():
                return None
            case Collection(brackets=""):
                return None
            case _:
                region = region_of(part)
                if not isinstance(region, Region):
                    return None
                pieces.extend(region.parts)
    return Region(tuple(pieces))


def intersection(parts: Iterable[Answer]) -> Region | None:
    """Where all parts overlap; None where an end is not rational."""
    meeting: list[tuple[Cut, Cut]] = [((float("-inf"), False), (float("inf"), True))]
    for part in parts:
        region = region_of(part)
        if isinstance(region, Complement):
            region = without(region)
        pieces = spans(region) if isinstance(region, Region) else None
        if pieces is None:
            return None
        meeting = [
            (max(low, start), min(high, end))
            for low, high in meeting
            for start, end in pieces
            if max(low, start) < min(high, end)
        ]
    return Region(tuple(_interval(low, high) for low, high in meeting))


def spans(region: Region) -> list[tuple[Cut, Cut]] | None:
    """The pieces of `region`, joined and in order; None where an end is not rational."""
    pieces: list[tuple[Cut, Cut]] = []
    for part in region.parts:
        match part:
            case Interval(low=low, high=high, has_low=has_low, has_high=has_high):
                start, end = _place(low), _place(high)
                if start is None or end is None or start > end:
                    return None
                piece = ((start, not has_low), (end, has_high))
            case _:
                point = _place(part)
                if point is None:
                    return None
                piece = ((point, False), (point, True))
        if piece[0] < piece[1]:
            pieces.append(piece)
    joined: list[tuple[Cut, Cut]] = []
    for low_cut, high_cut in sorted(pieces):
        if joined and low_cut <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high_cut))
        else:
            joined.append((low_cut, high_cut))
    return joined


def complement(region: Region) -> Region | None:
    """Everything else on the line; None where an end is not rational."""
    pieces = spans(region)
    if pieces is None:
        return None
    cuts: list[Cut] = [(float("-inf"), False)]
    for low, high in pieces:
        cuts += [low, high]
    cuts.append((float("inf"), True))
    gaps = [(low, high) for low, high in zip(cuts[::2], cuts[1::2], strict=True) if low < high]
    return Region(tuple(_interval(low, high) for low, high in gaps))


def without(points: Complement) -> Region | None:
    """The intervals between the points; None where a point is not rational."""
    places = [_place(point) for point in points.points]
    if any(place is None for place in places):
        return None
    pairs = sorted(zip(places, points.points, strict=True), key=lambda pair: pair[0] or 0)
    ends: list[Answer] = [Infinity(-1), *(point for _, point in pairs), Infinity(1)]
    return Region(tuple(Interval(low, high, False, False) for low, high in pairwise(ends)))


def _interval(low: Cut, high: Cut) -> Answer:
    ends = [
        Infinity(1 if place > 0 else -1)
        if isinstance(place, float)
        else Number(value=place, kind="exact")
        for place in (low[0], high[0])
    ]
    if low[0] == high[0]:
        return ends[0]
    return Interval(ends[0], ends[1], has_low=not low[1], has_high=high[1])


def _place(end: Answer) -> Fraction | float | None:
    match end:
        case Number(unit=None, percent=False, value=value):
            return value
        case Infinity(sign=sign):
            return sign * float("inf")
    return None
