"""Arithmetic that stays exact on rationals and turns to mpmath where it must."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, TypeAlias

from workings.grading.expression.cost import MAX_EXACT_DIGITS

Value: TypeAlias = Any
"""A Fraction, or an mpf or mpc of the context at work (mpmath has no types)."""
Context: TypeAlias = Any
"""An mpmath context."""


class Undefined(Exception):
    """The expression has no value here."""


def inexact(mp: Context, value: Value) -> Value:
    """`value` as a floating point number of `mp`."""
    if type(value) is not Fraction:
        return value
    numerator = mp.mpf(value.numerator)
    return numerator if value.denominator == 1 else numerator / value.denominator


def is_real(mp: Context, value: Value) -> bool:
    """True for a rational and for a number without imaginary part."""
    return type(value) is Fraction or isinstance(value, mp.mpf)


def is_integer(value: Value) -> bool:
    """True for an exact integer."""
    return type(value) is Fraction and value.denominator == 1


def close(mp: Context, left: Value, right: Value, digits: int) -> bool:
    """True where both are equal: exactly if rational or infinite, else in so many digits."""
    if left == right:
        return True
    if type(left) is Fraction and type(right) is Fraction:
        return False
    left, right = inexact(mp, left), inexact(mp, right)
    if mp.isinf(left) or mp.isinf(right):
        return False
    return bool(abs(left - right) <= max(abs(left), abs(right)) * mp.mpf(10) ** -digits)


def add(mp: Context, *values: Value) -> Value:
    """The sum; the exact part of it is added up exactly."""
    exact, rest = Fraction(0), None
    for value in values:
        if type(value) is Fraction:
            exact = exact + value if exact else value
        else:
            rest = value if rest is None else rest + value
    if rest is None:
        return exact
    return rest + inexact(mp, exact) if exact else rest


def multiply(mp: Context, *values: Value) -> Value:
    """The product; the exact part of it is multiplied exactly."""
    exact, rest = Fraction(1), None
    for value in values:
        if type(value) is Fraction:
            exact = value if exact == 1 else exact * value
        else:
            rest = value if rest is None else rest * value
    if rest is None:
        return exact
    return rest if exact == 1 else rest * inexact(mp, exact)


def divide(mp: Context, top: Value, bottom: Value) -> Value:
    """The quotient; Undefined where `bottom` is zero."""
    if bottom == 0:
        raise Undefined("a division by zero")
    if type(top) is Fraction and type(bottom) is Fraction:
        return top / bottom
    return inexact(mp, top) / inexact(mp, bottom)


def power(mp: Context, base: Value, exponent: Value, *, real_root: bool = False) -> Value:
    """`base` to the `exponent`, principal branch; Undefined for 0^0.

    `real_root` gives a negative base its real value where the exponent's denominator is odd.
    """
    if base == 0:
        if not mp.re(inexact(mp, exponent)) > 0:
            raise Undefined("zero to a power that is not positive")
        return Fraction(0)
    if type(exponent) is not Fraction:
        return mp.power(inexact(mp, base), exponent)
    if real_root and exponent.denominator % 2 and is_real(mp, base) and base < 0:
        positive = power(mp, -base, exponent)
        return -positive if exponent.numerator % 2 else positive
    if type(base) is Fraction:
        exact = _exact_power(mp, base, exponent)
        if exact is not None:
            return exact
    elif exponent == 0 and mp.isinf(base):
        raise Undefined("infinity to the power zero")
    if exponent.denominator == 1:
        return inexact(mp, base) ** exponent.numerator
    return mp.power(inexact(mp, base), inexact(mp, exponent))


def _exact_power(mp: Context, base: Fraction, exponent: Fraction) -> Fraction | None:
    """The power where it is seen to be rational and is not too long, else None."""
    if exponent.denominator != 1:
        if base < 0:
            return None
        numerator = _exact_root(mp, base.numerator, exponent.denominator)
        denominator = _exact_root(mp, base.denominator, exponent.denominator)
        if numerator is None or denominator is None:
            return None
        base = Fraction(numerator, denominator)
    digits = (base.numerator.bit_length() + base.denominator.bit_length()) * 0.30103
    if abs(exponent.numerator) * digits > MAX_EXACT_DIGITS and abs(base) != 1:
        return None
    return base**exponent.numerator


def _exact_root(mp: Context, integer: int, degree: int) -> int | None:
    if integer == 1:
        return 1
    if degree == 2:
        root = math.isqrt(integer)
    elif integer.bit_length() > mp.prec or degree > mp.prec:
        return None
    else:
        root = int(mp.nint(mp.root(integer, degree)))
    return root if root**degree == integer else None
