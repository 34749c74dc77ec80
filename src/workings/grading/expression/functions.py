"""The functions of an expression by name, on exact rationals where those have rational values."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from fractions import Fraction

from workings.grading.expression.arithmetic import (
    Context,
    Undefined,
    Value,
    add,
    divide,
    inexact,
    is_integer,
    is_real,
    multiply,
    power,
)
from workings.grading.expression.cost import MAX_EXACT_DIGITS, MAX_FACTORS
from workings.grading.expression.tree import TooCostly

_SNAP_DIGITS = 25
_MOST_GAMMA_DIGITS = 350
_HALF = Fraction(1, 2)


def apply_unknown(mp: Context, name: str, *values: Value) -> Value:
    """A rational function that no identity holds for, in place of one without definition."""
    seed = zlib.crc32(name.encode())
    mixed = Fraction(seed % 97, 89)
    for value in values:
        mixed = add(mp, multiply(mp, mixed, Fraction(7, 3)), value)
    square = multiply(mp, mixed, mixed)
    top = add(mp, multiply(mp, mixed, square), Fraction(seed % 89, 83))
    return divide(mp, top, add(mp, square, Fraction(2)))


def _log(mp: Context, value: Value, base: Value | None = None) -> Value:
    if value == 0 or base == 0 or base == 1:
        raise Undefined("the logarithm of zero, or to base zero or one")
    if value == 1:
        return Fraction(0)
    logarithm = mp.log(inexact(mp, value))
    return logarithm if base is None else logarithm / mp.log(inexact(mp, base))


def _root(mp: Context, value: Value, degree: Value) -> Value:
    return power(mp, value, divide(mp, Fraction(1), degree), real_root=True)


def _floor(mp: Context, value: Value) -> Value:
    if type(value) is Fraction:
        return Fraction(math.floor(value))
    if not is_real(mp, value) or mp.isinf(value):
        raise Undefined("the integer part of something that is no real number")
    nearest = mp.nint(value)
    rounding = max(1, abs(value)) * mp.mpf(10) ** -_SNAP_DIGITS
    return Fraction(int(nearest if abs(value - nearest) <= rounding else mp.floor(value)))


def _mod(mp: Context, value: Value, modulus: Value) -> Value:
    whole = _floor(mp, divide(mp, value, modulus))
    return add(mp, value, -multiply(mp, modulus, whole))


def _factorial(mp: Context, value: Value) -> Value:
    _limit(value)
    if not is_integer(value):
        return _by_gamma(mp, "factorial", value)
    if value < 0:
        raise Undefined("the factorial of a negative integer")
    return Fraction(math.factorial(value.numerator))


def _double_factorial(mp: Context, value: Value) -> Value:
    _limit(value)
    if not is_integer(value):
        return _by_gamma(mp, "fac2", value)
    if value < -1:
        raise Undefined("the double factorial of a negative integer")
    return Fraction(math.prod(range(value.numerator, 0, -2)))


def _binomial(mp: Context, total: Value, chosen: Value) -> Value:
    if is_integer(total) and total >= 0 and is_integer(chosen) and chosen > total / 2:
        chosen = total - chosen
    if is_integer(chosen) and chosen < 0:
        return Fraction(0)
    if is_integer(total) and total >= 0 and is_integer(chosen):
        return Fraction(math.comb(total.numerator, chosen.numerator))
    if is_integer(chosen) and chosen <= MAX_FACTORS:
        ways = _permutations(mp, total, chosen)
        return divide(mp, ways, Fraction(math.factorial(chosen.numerator)))
    _limit(total)
    _limit(chosen)
    return _by_gamma(mp, "binomial", total, chosen)


def _permutations(mp: Context, total: Value, chosen: Value) -> Value:
    if is_integer(total) and is_integer(chosen) and total >= 0 and chosen >= 0:
        _limit(chosen)
        return Fraction(math.perm(total.numerator, chosen.numerator))
    if is_integer(chosen) and 0 <= chosen <= MAX_FACTORS:
        return multiply(mp, *(add(mp, total, Fraction(-step)) for step in range(int(chosen))))
    return divide(mp, _factorial(mp, total), _factorial(mp, add(mp, total, -chosen)))


def _by_gamma(mp: Context, name: str, *values: Value) -> Value:
    if mp.dps > _MOST_GAMMA_DIGITS:  # whose coefficients take seconds to work out
        raise TooCostly("a factorial of a fraction to too many digits")
    return getattr(mp, name)(*(inexact(mp, value) for value in values))


def _limit(value: Value) -> None:
    if abs(value) > MAX_EXACT_DIGITS:
        raise TooCostly(f"a product of more than {MAX_EXACT_DIGITS} factors")


def _extreme(sign: int) -> Callable[..., Value]:
    def extreme(mp: Context, *values: Value) -> Value:
        if not all(is_real(mp, value) for value in values):
            raise Undefined("the extreme of numbers that are not real")
        return max(values, key=lambda value: sign * inexact(mp, value))

    return extreme


def _of_integers(function: Callable[..., int]) -> Callable[..., Value]:
    def of_integers(mp: Context, *values: Value) -> Value:
        if not all(is_integer(value) for value in values):
            raise Undefined("a divisor or multiple of numbers that are not integers")
        return Fraction(function(*(value.numerator for value in values)))

    return of_integers


def _sign(mp: Context, value: Value) -> Value:
    if not is_real(mp, value):
        raise Undefined("the sign of a number that is not real")
    return Fraction((value > 0) - (value < 0))


def _smooth(name: str) -> Callable[..., Value]:
    """The function of mpmath called `name`, its zero at zero exact."""
    odd = name.removeprefix("a").removesuffix("h") in ("sin", "tan")

    def smooth(mp: Context, value: Value) -> Value:
        if odd and value == 0:
            return Fraction(0)
        return getattr(mp, name)(inexact(mp, value))

    return smooth


_CIRCULAR = ("sin", "cos", "tan", "cot", "sec", "csc")
FUNCTIONS: dict[str, Callable[..., Value]] = {
    **{f"{name}{h}": _smooth(f"{name}{h}") for name in _CIRCULAR for h in ("", "h")},
    **{f"arc{name}{h}": _smooth(f"a{name}{h}") for name in _CIRCULAR for h in ("", "h")},
    "arccot": lambda mp, value: mp.pi / 2 - mp.atan(inexact(mp, value)),  # between 0 and pi
    "sqrt": lambda mp, value: power(mp, value, _HALF),
    "root": _root,
    "ln": _log,
    "log": _log,
    "abs": lambda mp, value: abs(value),
    "sign": _sign,
    "floor": _floor,
    "ceil": lambda mp, value: -_floor(mp, -value),
    "mod": _mod,
    "re": lambda mp, value: mp.re(inexact(mp, value)),
    "im": lambda mp, value: mp.im(inexact(mp, value)),
    "factorial": _factorial,
    "double_factorial": _double_factorial,
    "binomial": _binomial,
    "permutations": _permutations,
    "max": _extreme(1),
    "min": _extreme(-1),
    "gcd": _of_integers(math.gcd),
    "lcm": _of_integers(math.lcm),
}
"""Name -> function of a context and its arguments; raises Undefined, ValueError and the like."""
