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

_UNIT = (0.3, 0.95)
_MIDDLE = (1.05, 5.0)
_FAR = (5.0, 30.0)
_SCALES = (
    (_MIDDLE, False), (_UNIT, False), (_MIDDLE, True), (_UNIT, True), (_MIDDLE, True),
    (_UNIT, True), (_MIDDLE, False), (_UNIT, False), (_FAR, False), (_FAR, True), (_FAR, False),
)  # fmt: skip
"""The range of absolute values and whether both signs occur, for each point in turn."""
_DENOMINATORS = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157)


def rational_points(names: list[str]) -> Iterator[Point]:
    """Points to try in turn; the first four suit expressions that are defined everywhere."""
    source = random.Random(SEED)
    for scale, signed in _SCALES:
        yield {name: _rational(source, scale, signed=signed) for name in names}


def integer_points(names: list[str], count: int) -> Iterator[Point]:
    """Points where the symbols with names of integers are positive integers."""
    source = random.Random(SEED)
    for _ in range(count):
        yield {
            name: Fraction(source.randint(1, 12))
            if name[0] in INTEGER_NAMES
            else _rational(source, _MIDDLE, signed=True)
            for name in names
        }


def _rational(source: random.Random, scale: tuple[float, float], *, signed: bool) -> Fraction:
    low, high = scale
    denominator = source.choice(_DENOMINATORS)
    numerator = source.randint(math.ceil(low * denominator), math.floor(high * denominator))
    return Fraction(-numerator if signed and source.random() < 0.5 else numerator, denominator)
