"""What an evaluation would cost, from bounds on every node; nothing is evaluated.

Each node gets bounds on log10 of its absolute value, where that is not zero, on the digits of its
numerator and denominator, where it is rational, and on the digits that it loses to cancellation.
They follow from those of its parts and, for symbols, from their values. A sum is taken to be no
smaller than a hundredth of its terms; `evaluate` has a backstop on the values that it meets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from workings.grading.expression.tree import (
    APPLIED,
    Call,
    Constant,
    Node,
    Number,
    Power,
    Product,
    Quotient,
    Series,
    Sum,
    Symbol,
    TooCostly,
    symbols_of,
    walk,
)

MAX_LOG10 = 20_000
"""Values beyond 10^20000 or below 10^-20000 are refused."""
MAX_EXACT_DIGITS = 20_000
"""Rationals of more digits are refused, but for powers: those turn inexact."""
MAX_FACTORS = 100
"""A binomial coefficient of a rational is exact for so many factors."""
MAX_NODES = 2000
MAX_TERMS = 1000
MAX_PRECISION = 700
MAX_SECONDS = 0.03
"""Of one evaluation, as estimated for a slow core; a comparison makes one to some thirty."""

_GAMMA = ("factorial", "double_factorial", "binomial", "permutations")
_COMPLEX_GAMMA = 500
"""Calls of an ordinary function that the gamma function of a complex number costs."""
_I = Constant("i")
_GUARD_DIGITS = 60
_FREE_DIGITS = 30  # that may be lost before the precision is raised
_CANCELLED = 2.0


class Bound(NamedTuple):
    """What is known of a value, as the module says.

    `digits` is 0 where the value is seen not to be rational, and `exact` True where it is seen to
    be: a square root may be either.
    """

    low: float
    high: float
    digits: float = 0.0
    lost: float = 0.0
    exact: bool = False


def precision_for(node: Node, point: Mapping[str, Fraction]) -> int:
    """The decimal digits to evaluate `node` with where its symbols are as in `point`, or TooCostly.

    >>> from workings.grading.expression.parse import parse_expression
    >>> precision_for(parse_expression("9^{9^{9^9}}"), {})
    Traceback (most recent call last):
        ...
    workings.grading.expression.tree.TooCostly: a value beyond 10^20000 or below 10^-20000
    """
    if sum(1 for _ in walk(node)) > MAX_NODES:
        raise TooCostly(f"more than {MAX_NODES} nodes")
    meter = _Meter({name: _of_rational(value) for name, value in point.items()})
    lost = meter.bound(node).lost
    precision = _GUARD_DIGITS + max(0, math.ceil(lost) - _FREE_DIGITS)
    if precision > MAX_PRECISION:
        raise TooCostly("terms of sizes too far apart")
    if meter.seconds + meter.calls * 2e-5 * (precision / _GUARD_DIGITS) ** 2 > MAX_SECONDS:
        raise TooCostly("too many operations on long numbers")
    return precision


class _Meter:
    """Bounds nodes from the leaves up and adds up what they cost."""

    def __init__(self, symbols: dict[str, Bound]) -> None:
        self.symbols = symbols
        self.seconds = 0.0
        self.calls = 0.0
        self.times = 1.0  # that the node at hand is evaluated

    def bound(self, node: Node) -> Bound:
        bound = self.unchecked(node)
        if not -MAX_LOG10 <= bound.low <= bound.high <= MAX_LOG10:
            raise TooCostly(f"a value beyond 10^{MAX_LOG10} or below 10^-{MAX_LOG10}")
        if bound.digits > MAX_EXACT_DIGITS:
            raise TooCostly(f"a rational of more than {MAX_EXACT_DIGITS} digits")
        self.seconds += self.times * (3e-6 + 2e-2 * (bound.digits / 20_000) ** 1.7)
        if self.seconds > MAX_SECONDS:
            raise TooCostly("too many operations on long numbers")
        return bound

    def unchecked(self, node: Node) -> Bound:
        match node:
            case Number(value):
                return _of_rational(value)
            case Symbol(name):
                return self.symbols[name]
            case Constant(name):
                return _CONSTANTS[name]
            case Sum(terms):
                return _sum([self.bound(term) for term in terms])
            case Product(factors):
                return _product([self.bound(factor) for factor in factors])
            case Quotient(top, bottom):
                above, below = self.bound(top), self.bound(bottom)
                return _product([above, below._replace(low=-below.high, high=-below.low)])
            case Power(base, exponent):
                self.calls += self.times
                return self.power(base, exponent)
            case Call(function, arguments):
                is_slow = function in _GAMMA and any(one == _I for one, _ in walk(node))
                self.calls += (_COMPLEX_GAMMA if is_slow else 1) * self.times
                return self.call(function, [self.bound(argument) for argument in arguments])
            case Series():
                return self.series(node)

    def power(self, base: Node, exponent: Node) -> Bound:
        by = self.bound(exponent)
        if base == Constant("e"):
            return _exponential(by)
        low, high, digits, lost, exact = self.bound(base)
        lost = max(lost, by.lost) + max(by.high, 0.0)
        size = _ten_to(by.high)
        if not isinstance(exponent, Number):
            largest = max(abs(low), abs(high)) * size
            low, high, exact = -largest, largest, False
            digits *= size if by.digits and not symbols_of(exponent) else 0.0
        else:
            low, high = sorted((low * size, high * size))
            if exponent.value < 0:
                low, high = -high, -low
            exact = exact and exponent.value.denominator == 1
            digits *= max(size, 1.0) if exponent.value.denominator == 1 else 1.0
        if digits > MAX_EXACT_DIGITS:
            digits, exact = 0.0, False
        return Bound(low, high, digits, lost, exact)

    def call(self, function: str, bounds: list[Bound]) -> Bound:
        low, high, digits, _, exact = bounds[0]
        lost, top = max(b.lost for b in bounds), max(b.high for b in bounds)
        if function in ("factorial", "double_factorial"):
            self.calls += 4 * self.times
            size = _log10_factorial(high)
            return Bound(-_CANCELLED, size, size + 1, lost + max(high, 0.0))
        if function in ("binomial", "permutations"):
            self.calls += 12 * self.times  # three factorials
            chosen = bounds[1].high
            size = _log10_choices(high, chosen, ordered=function == "permutations")
            factors = min(_ten_to(chosen), MAX_FACTORS)
            return Bound(-_CANCELLED, size, max(size, digits * factors) + 1, lost)
        if function in ("sinh", "cosh"):
            return _exponential(bounds[0])
        if function.endswith(APPLIED):
            digits = 4 * sum(b.digits for b in bounds) + 10
            return Bound(-_CANCELLED, 3 * max(top, 1.0), digits, lost, exact)
        if function in _KEEPING:
            digits = sum(b.digits for b in bounds)
            return Bound(min(low, 0.0) - _CANCELLED, max(top, 0.0) + 1, digits, lost)
        if function in _CIRCULAR:  # a large argument leaves it few digits
            return Bound(min(low, 0.0) - _CANCELLED, _CANCELLED, 0.0, lost + max(top, 0.0))
        size = math.log10(3 * max(-low, high, 1.0) + 3)  # a logarithm or an inverse
        return Bound(-_CANCELLED, size + (len(bounds) - 1) * _CANCELLED, 0.0, lost)

    def series(self, series: Series) -> Bound:
        largest = max(0.0, self.bound(series.low).high, self.bound(series.high).high)
        if largest > math.log10(MAX_TERMS) + 1e-9:
            raise TooCostly(f"a {series.kind} of more than {MAX_TERMS} terms")
        self.symbols[series.index] = Bound(0.0, largest, largest + 0.5, 0.0, True)
        count = _ten_to(largest) + 1
        self.times *= count
        low, high, digits, lost, exact = self.bound(series.body)
        self.times /= count
        digits *= count
        if series.kind == "product":
            return Bound(min(low, 0.0) * count, max(high, 0.0) * count, digits, lost, exact)
        lost += 0.0 if exact else high - low
        return Bound(low - _CANCELLED, high + math.log10(count), digits, lost, exact)


_CONSTANTS = {
    "pi": Bound(0.4, 0.5), "e": Bound(0.4, 0.5), "i": Bound(0.0, 0.0), "infinity": Bound(0.0, 1.0),
}  # fmt: skip
_CIRCULAR = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})
_KEEPING = frozenset({
    "sqrt", "root", "abs", "re", "im", "max", "min", "mod", "floor", "ceil", "gcd", "lcm", "sign",
})  # fmt: skip
"""Functions that are rational at some rationals and grow no faster than their arguments."""


def _of_rational(value: Fraction) -> Bound:
    if not value:
        return Bound(0.0, 0.0, 1.0, 0.0, True)
    above, below = _log10(abs(value.numerator)), _log10(value.denominator)
    return Bound(above - below, above - below, above + below + 0.5, 0.0, True)


def _log10(integer: int) -> float:
    return math.log10(integer) if integer.bit_length() < 1000 else integer.bit_length() * 0.30103


def _sum(bounds: list[Bound]) -> Bound:
    lows, highs, digits, losses, exact = zip(*bounds, strict=True)
    return Bound(
        max(lows) - _CANCELLED,
        max(highs) + math.log10(len(bounds)),
        sum(digits) + 1 if all(digits) else 0.0,
        max(losses) + (0.0 if all(exact) else max(highs) - min(lows)),
        all(exact),
    )


def _product(bounds: list[Bound]) -> Bound:
    lows, highs, digits, losses, exact = zip(*bounds, strict=True)
    size = sum(digits) if all(digits) else 0.0
    return Bound(sum(lows), sum(highs), size, max(losses), all(exact))


def _exponential(exponent: Bound) -> Bound:
    size = _ten_to(exponent.high) * math.log10(math.e)
    return Bound(-size, size, 0.0, exponent.lost + max(exponent.high, 0.0))


def _ten_to(exponent: float) -> float:
    return math.pow(10.0, min(exponent, 300.0))


def _log10_factorial(log10_of_argument: float) -> float:
    return math.lgamma(_ten_to(min(log10_of_argument, 9.0)) + 2) / math.log(10)


def _log10_choices(total: float, chosen: float, *, ordered: bool) -> float:
    """At least log10 of a binomial coefficient, or of a number of arrangements if `ordered`."""
    one_by_one = _ten_to(chosen) * (max(total, chosen, 0.0) + 1)
    at_once = _log10_factorial(total) if ordered else _ten_to(total) * math.log10(2)
    return min(one_by_one, at_once) + 2
