"""The functions of an expression, on exact rationals where they stay rational, else by mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any, TypeAlias

from workings.grading.expression.tree import TooCostly

Value: TypeAlias = Any
"""A Fraction, or an mpf or mpc of the context at work (mpmath has no types)."""
Context: TypeAlias = Any
"""An mpmath context."""

_MOST_BITS = 100_000
_SNAP_DIGITS = 25
_SNAP = Fraction(1, 10**_SNAP_DIGITS)


class Undefined(Exception):
    """The expression has no value here."""


def inexact(mp: Context, value: Value) -> Value:
    """`value` as a floating point number of `mp`."""
    if isinstance(value, Fraction):
        numerator = mp.mpf(value.numerator)
        return numerator if value.denominator == 1 else numerator / value.denominator
    return value


def is_real(mp: Context, value: Value) -> bool:
    """True for a rational and for a number without imaginary part."""
    return isinstance(value, Fraction | mp.mpf)


def power(mp: Context, base: Value, exponent: Value, *, real_root: bool) -> Value:
    """`base` to the `exponent`, principal branch; 0^0 is undefined.

    `real_root` gives a negative base to a fraction with odd denominator its real value.
    """
    if isinstance(exponent, Fraction):
        if isinstance(base, Fraction):
            exact = _exact_power(mp, base, exponent, real_root=real_root)
            if exact is not None:
                return exact
        elif exponent == 0:
            raise Undefined("a power of zero or infinity")
        if exponent.denominator == 1:
            return base**exponent.numerator
        if real_root and exponent.denominator % 2 and is_real(mp, base) and base < 0:
            sign = -1 if exponent.numerator % 2 else 1
            return sign * mp.power(inexact(mp, -base), inexact(mp, exponent))
    elif base == 0:
        if mp.re(exponent) > 0:
            return Fraction(0)
        raise Undefined("zero to a power that is not positive")
    return mp.power(inexact(mp, base), inexact(mp, exponent))


def _exact_power(
    mp: Context, base: Fraction, exponent: Fraction, *, real_root: bool
) -> Fraction | None:
    """The power where it is rational and found to be, else None."""
    top, bottom = exponent.numerator, exponent.denominator
    if base == 0:
        if top <= 0:
            raise Undefined("zero to a power that is not positive")
        return Fraction(0)
    if bottom != 1:
        if base < 0 and not (real_root and bottom % 2):
            return None
        root = _exact_root(mp, abs(base), bottom)
        if root is None:
            return None
        base = root if base > 0 else -root
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(top) * bits > _MOST_BITS and abs(base) != 1:
        raise TooCostly("a power of too many digits")
    return base**top


def _exact_root(mp: Context, base: Fraction, degree: int) -> Fraction | None:
    numerator = _integer_root(mp, base.numerator, degree)
    denominator = _integer_root(mp, base.denominator, degree) if numerator is not None else None
    return None if denominator is None else Fraction(numerator, denominator)  # type: ignore[arg-type]


def _integer_root(mp: Context, integer: int, degree: int) -> int | None:
    if integer == 1:
        return 1
    if degree == 2:
        root = math.isqrt(integer)
    elif degree > integer.bit_length() or integer.bit_length() > 3 * mp.prec:
        return None
    else:
        root = int(mp.nint(mp.root(integer, degree)))
    return root if root**degree == integer else None


def _sqrt(mp: Context, value: Value) -> Value:
    return power(mp, value, Fraction(1, 2), real_root=False)


def _root(mp: Context, value: Value, degree: Value) -> Value:
    if degree == 0:
        raise Undefined("a root of degree zero")
    return power(mp, value, 1 / degree, real_root=True)


def _log(mp: Context, value: Value, base: Value = None) -> Value:
    if value == 0:
        raise Undefined("the logarithm of zero")
    if value == 1:
        return Fraction(0)
    if base is None:
        return mp.log(inexact(mp, value))
    if base in (0, 1):
        raise Undefined("a logarithm to base zero or one")
    return mp.log(inexact(mp, value)) / mp.log(inexact(mp, base))


def _abs(mp: Context, value: Value) -> Value:
    return abs(value)


def _round_down(mp: Context, value: Value) -> Value:
    if isinstance(value, Fraction):
        return Fraction(math.floor(value))
    if not is_real(mp, value) or mp.isinf(value):
        raise Undefined("the integer part of a number that is not real")
    nearest = mp.nint(value)
    if abs(value - nearest) <= inexact(mp, _SNAP) * max(1, abs(value)):
        return Fraction(int(nearest))
    return Fraction(int(mp.floor(value)))


def _round_up(mp: Context, value: Value) -> Value:
    return -_round_down(mp, -value)


def _mod(mp: Context, value: Value, modulus: Value) -> Value:
    if modulus == 0:
        raise Undefined("a remainder modulo zero")
    quotient = (
        value / modulus
        if type(value) is type(modulus)
        else inexact(mp, value) / inexact(mp, modulus)
    )
    whole = _round_down(mp, quotient)
    if isinstance(modulus, Fraction) and isinstance(value, Fraction):
        return value - modulus * whole
    return inexact(mp, value) - inexact(mp, modulus) * inexact(mp, whole)


def _factorial(mp: Context, value: Value) -> Value:
    if isinstance(value, Fraction) and value.denominator == 1:
        if value < 0:
            raise Undefined("the factorial of a negative integer")
        _limit_factorial(value)
        return Fraction(math.factorial(value.numerator))
    _limit_factorial(value)
    return mp.factorial(inexact(mp, value))


def _double_factorial(mp: Context, value: Value) -> Value:
    _limit_factorial(value)
    if isinstance(value, Fraction) and value.denominator == 1:
        if value < -1:
            raise Undefined("the double factorial of a negative integer")
        return Fraction(math.prod(range(value.numerator, 0, -2)))
    return mp.fac2(inexact(mp, value))


def _limit_factorial(value: Value) -> None:
    if abs(value) > 20_000:
        raise TooCostly("the factorial of a number beyond 20000")


def _binomial(mp: Context, total: Value, chosen: Value) -> Value:
    if isinstance(chosen, Fraction) and chosen.denominator == 1:
        if (
            isinstance(total, Fraction)
            and total.denominator == 1
            and total >= 0
            and chosen > total / 2
        ):
            chosen = total - chosen
        if chosen < 0:
            return Fraction(0)
        _limit_factorial(chosen)
        if isinstance(total, Fraction) and total.denominator == 1 and total >= 0:
            return Fraction(math.comb(total.numerator, chosen.numerator))
        return _falling(total, chosen.numerator) / math.factorial(chosen.numerator)
    _limit_factorial(total)
    _limit_factorial(chosen)
    return mp.binomial(inexact(mp, total), inexact(mp, chosen))


def _permutations(mp: Context, total: Value, chosen: Value) -> Value:
    if isinstance(chosen, Fraction) and chosen.denominator == 1 and chosen >= 0:
        _limit_factorial(chosen)
        return _falling(total, chosen.numerator)
    top, rest = inexact(mp, total), inexact(mp, total) - inexact(mp, chosen)
    _limit_factorial(top)
    _limit_factorial(rest)
    return mp.gammaprod([top + 1], [rest + 1])


def _falling(total: Value, count: int) -> Value:
    return reduce(lambda value, step: value * (total - step), range(count), Fraction(1))


def _extreme(mp: Context, values: tuple[Value, ...], *, largest: bool) -> Value:
    if not all(is_real(mp, value) for value in values):
        raise Undefined("the extreme of numbers that are not real")
    best = values[0]
    for value in values[1:]:
        gap = inexact(mp, value) - inexact(mp, best)
        if gap != 0 and (gap > 0) == largest:
            best = value
    return best


def _of_integers(function: Callable[..., int], values: tuple[Value, ...]) -> Fraction:
    if not all(isinstance(value, Fraction) and value.denominator == 1 for value in values):
        raise Undefined("a divisor or multiple of numbers that are not integers")
    return Fraction(function(*(value.numerator for value in values)))


def _sign(mp: Context, value: Value) -> Value:
    if not is_real(mp, value):
        raise Undefined("the sign of a number that is not real")
    return Fraction((value > 0) - (value < 0))


def _part(name: str) -> Callable[..., Value]:
    def part(mp: Context, value: Value) -> Value:
        return getattr(mp, name)(inexact(mp, value))

    return part


def _smooth(name: str) -> Callable[..., Value]:
    """The function of mpmath called `name`, with the exact value at zero where that is zero."""
    vanishing = name in ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh")

    def smooth(mp: Context, value: Value) -> Value:
        if value == 0 and vanishing:
            return Fraction(0)
        return getattr(mp, name)(inexact(mp, value))

    return smooth


def _arccot(mp: Context, value: Value) -> Value:
    return mp.pi / 2 - mp.atan(inexact(mp, value))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    **{name: _smooth(name) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{f"{name}h": _smooth(f"{name}h") for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{f"arc{name}": _smooth(f"a{name}") for name in ("sin", "cos", "tan", "sec", "csc")},
    **{f"arc{name}h": _smooth(f"a{name}h") for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    "arccot": _arccot,
    "sqrt": _sqrt, "root": _root, "ln": _log, "log": _log, "abs": _abs, "sign": _sign,
    "floor": _round_down, "ceil": _round_up, "mod": _mod, "re": _part("re"), "im": _part("im"),
    "factorial": _factorial, "double_factorial": _double_factorial,
    "binomial": _binomial, "permutations": _permutations,
    "max": lambda mp, *values: _extreme(mp, values, largest=True),
    "min": lambda mp, *values: _extreme(mp, values, largest=False),
    "gcd": lambda mp, *values: _of_integers(math.gcd, values),
    "lcm": lambda mp, *values: _of_integers(math.lcm, values),
}  # fmt: skip
