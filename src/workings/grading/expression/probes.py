"""Values for the symbols of two trees: the same in every run, in scales that suit most domains."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import TypeAlias

Point: TypeAlias = dict[str, Fraction]

SEED = 20_260_512
INTEGER_NAMES = frozenset("nkmjlNKM")
"""First letters of the symbols that usually stand for integers."""

_UNIT, _MIDDLE, _FAR, _VAST = (0.3, 0.95), (1.05, 5.0), (5.0, 30.0), (1000.0, 9000.0)
_POSITIVE, _ALTERNATING, _OPPOSITE, _NEGATIVE = (1, 1), (-1, 1), (1, -1), (-1, -1)
_SCALES = (
    (_MIDDLE, _POSITIVE), (_UNIT, _ALTERNATING), (_MIDDLE, _NEGATIVE), (_FAR, _OPPOSITE),
    (_UNIT, _POSITIVE), (_VAST, _ALTERNATING), (_FAR, _POSITIVE), (_VAST, _OPPOSITE),
    (_UNIT, _NEGATIVE), (_MIDDLE, _OPPOSITE), (_MIDDLE, _POSITIVE), (_UNIT, _POSITIVE),
)  # fmt: skip
"""The range of absolute values at each point in turn, and the signs of symbols at even and odd
places. Every symbol takes both signs at the first four."""
_TINY, _HUGE = (0.01, 0.2), (2e7, 9e8)
_MORE_SCALES = (
    (_TINY, _POSITIVE), (_TINY, _NEGATIVE), ((30.0, 300.0), _POSITIVE), ((30.0, 300.0), _NEGATIVE),
    (_VAST, _POSITIVE), (_HUGE, _POSITIVE), (_HUGE, _NEGATIVE),
)  # fmt: skip
"""For functions in pieces: each piece has to be seen."""
_DENOMINATORS = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157)


def rational_points(names: list[str], *, in_pieces: bool = False) -> Iterator[Point]:
    """Points to try in turn; more of them, nearer and farther, for functions in pieces."""
    source = random.Random(SEED)
    for scale, signs in (*_SCALES[:6], *_MORE_SCALES) if in_pieces else _SCALES:
        yield {
            name: signs[place % 2] * _rational(source, scale) for place, name in enumerate(names)
        }


def integer_points(names: list[str], count: int) -> Iterator[Point]:
    """Points where the symbols with names of integers are positive integers."""
    source = random.Random(SEED)
    for _ in range(count):
        yield {
            name: Fraction(source.randint(1, 12))
            if name[0] in INTEGER_NAMES
            else _rational(source, _MIDDLE)
            for name in names
        }


def _rational(source: random.Random, scale: tuple[float, float]) -> Fraction:
    low, high = scale
    denominator = source.choice(_DENOMINATORS)
    numerator = source.randint(math.ceil(low * denominator), math.floor(high * denominator))
    return Fraction(numerator + (numerator % denominator == 0), denominator)  # never an integer
