"""The second look at a grading case: sympy decides what its label says, without the grader.

A case that is a computation carries two expressions of ours, for the gold and for the answer:

    {"equal": [a, b]}, {"differ": [a, b]}              numbers, expressions, sets, tuples, matrices
    {"same_zeros": [a, b]}, {"other_zeros": [a, b]}    left sides of equations "... = 0"

They are text of the case file, written by us, and never come from a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy

_POINTS = tuple(
    tuple(sympy.Rational(sign * value, 97) for sign, value in zip(signs, values, strict=True))
    for signs, values in (
        ((1, 1, 1, 1, 1, 1), (13, 29, 41, 53, 67, 83)),
        ((1, 1, 1, 1, 1, 1), (7, 23, 43, 59, 71, 89)),
        ((-1, 1, -1, 1, -1, 1), (17, 31, 37, 61, 73, 79)),
        ((1, -1, -1, 1, 1, -1), (11, 19, 47, 59, 83, 101)),
    )
)
"""Values for the letters in alphabetical order; ascending, so that v/w stays below 1."""

_DIGITS = 50
_TOLERANCE = sympy.Float("1e-35", _DIGITS)


def label_holds(check: Mapping[str, Sequence[str]]) -> bool:
    """True where sympy agrees with the one statement that `check` makes."""
    ((claim, (first, second)),) = check.items()
    one, other = sympy.sympify(first), sympy.sympify(second)
    if claim in ("equal", "differ"):
        return same(one, other) is (claim == "equal")
    if claim in ("same_zeros", "other_zeros"):
        return proportional(one, other) is (claim == "same_zeros")
    raise ValueError(f"unknown claim {claim!r}")


def same(one: Any, other: Any) -> bool:
    """True where two sympy objects of the same kind are equal; objects of two kinds never are."""
    if isinstance(one, sympy.FiniteSet) and isinstance(other, sympy.FiniteSet):
        return len(one) == len(other) and all(any(same(a, b) for b in other) for a in one)
    if isinstance(one, sympy.Set) and isinstance(other, sympy.Set):
        return (one - other) is sympy.S.EmptySet and (other - one) is sympy.S.EmptySet
    if isinstance(one, sympy.Tuple) and isinstance(other, sympy.Tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, sympy.MatrixBase) and isinstance(other, sympy.MatrixBase):
        return one.shape == other.shape and all(map(same, one, other))
    if isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr):
        return all(_close(a, b) for a, b in _values(one, other))
    return False


def proportional(one: Any, other: Any) -> bool:
    """True where one expression is a nonzero constant times the other."""
    ratios = [a / b for a, b in _values(one, other)]
    return all(abs(ratio - ratios[0]) <= _TOLERANCE * abs(ratios[0]) for ratio in ratios)


def _close(one: Any, other: Any) -> bool:
    if one.is_Rational and other.is_Rational:
        return bool(one == other)
    return bool(abs(one - other) <= _TOLERANCE * max(abs(one), abs(other)))


def _values(one: Any, other: Any) -> list[tuple[Any, Any]]:
    """Both expressions at the points; points of mixed signs count only where both are real."""
    letters = sorted(one.free_symbols | other.free_symbols, key=str)
    pairs = []
    for point in _POINTS[: len(_POINTS) if letters else 1]:
        values = dict(zip(letters, point, strict=False))
        a, b = (_value(side.subs(values)) for side in (one, other))
        if all(value > 0 for value in point) or (a.is_real and b.is_real):
            pairs.append((a, b))
    return pairs


def _value(expression: Any) -> Any:
    """A rational as it is, anything else to many digits; what is lost in cancelling is 0."""
    return expression if expression.is_Rational else sympy.N(expression, _DIGITS, chop=True)
