"""What an evaluation would cost, from bounds on every node; nothing is evaluated.

Each node gets bounds on log10 of its absolute value, where that is not zero, and on the digits of
its numerator and denominator, where it is rational, given the values of the symbols. A sum is taken
not to lose more than two digits to cancellation; `evaluate` has a backstop on the values it meets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
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
"""Values beyond 10^20000 or below 10^-20000 are refused, and rationals of more digits."""
MAX_NODES = 2000
MAX_TERMS = 1000
MAX_PRECISION = 700
MAX_SECONDS = 0.03
"""Of one evaluation, as estimated for a slow core; a comparison makes one to some thirty."""

_GUARD_DIGITS = 60
_FREE_DIGITS = 40  # of cancellation, before the precision is raised
_CANCELLED = 2.0
_HUGE = 1e300


class Bound(NamedTuple):
    """log10 of the smallest and the largest absolute value; digits where rational, else 0."""

    low: float
    high: float
    digits: float = 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Decimal digits to work with, and the most digits of any rational on the way."""

    precision: int
    digits: float


def cost_of(node: Node, point: Mapping[str, Fraction]) -> Cost:
    """The cost of evaluating `node` where its symbols are as in `point`, or TooCostly.

    >>> from workings.grading.expression.parse import parse_expression
    >>> cost_of(parse_expression("9^{9^{9^9}}"), {})
    Traceback (most recent call last):
        ...
    workings.grading.expression.tree.TooCostly: a value beyond 10^20000 or below 10^-20000
    """
    if sum(1 for _ in walk(node)) > MAX_NODES:
        raise TooCostly(f"more than {MAX_NODES} nodes")
    meter = _Meter({name: _of_rational(value) for name, value in point.items()})
    meter.bound(node)
    precision = _GUARD_DIGITS + max(0, math.ceil(meter.cancelled) - _FREE_DIGITS)
    if precision > MAX_PRECISION:
        raise TooCostly("terms of sizes too far apart")
    if meter.seconds + meter.calls * 2e-5 * (precision / _GUARD_DIGITS) ** 2 > MAX_SECONDS:
        raise TooCostly("too many operations on long numbers")
    return Cost(precision=precision, digits=meter.digits)


class _Meter:
    """Bounds nodes from the leaves up and adds up what they cost."""

    def __init__(self, symbols: dict[str, Bound]) -> None:
        self.cancelled = 0.0
        self.digits = 0.0
        self.seconds = 0.0
        self.calls = 0.0
        self.times = 1.0  # that the node at hand is evaluated
        self.symbols = symbols

    def bound(self, node: Node) -> Bound:
        bound = self.unchecked(node)
        low, high, digits = bound
        if not (-MAX_LOG10 <= low <= high <= MAX_LOG10 and digits <= MAX_LOG10):
            raise TooCostly(f"a value beyond 10^{MAX_LOG10} or below 10^-{MAX_LOG10}")
        self.digits = max(self.digits, digits)
        self.seconds += self.times * (5e-6 + 2e-2 * (digits / MAX_LOG10) ** 1.7)
        if self.seconds > MAX_SECONDS:
            raise TooCostly("too many operations on long numbers")
        return bound

    def unchecked(self, node: Node) -> Bound:
        match node:
            case Number(value):
                return _of_rational(value)
            case Symbol(name):
                return self.symbols[name]
            case Constant():
                return Bound(0.0, 0.5)
            case Sum(terms):
                return self.sum([self.bound(term) for term in terms])
            case Product(factors):
                return _product([self.bound(factor) for factor in factors])
            case Quotient(top, bottom):
                above, (low, high, digits) = self.bound(top), self.bound(bottom)
                return _product([above, Bound(-high, -low, digits)])
            case Power(base, exponent):
                return self.power(base, exponent)
            case Call(function, arguments):
                self.calls += self.times
                return self.call(function, [self.bound(argument) for argument in arguments])
            case Series():
                return self.series(node)

    def sum(self, bounds: list[Bound]) -> Bound:
        lows, highs, digits = zip(*bounds, strict=True)
        if not all(digits):
            self.cancelled += max(highs) - min(lows)
        return Bound(
            max(lows) - _CANCELLED,
            max(highs) + math.log10(len(bounds)),
            sum(digits) if all(digits) else 0.0,
        )

    def power(self, base: Node, exponent: Node) -> Bound:
        self.calls += self.times
        size = self.bound(exponent).high
        if base == Constant("e"):
            return _exponential(size)
        low, high, digits = self.bound(base)
        if isinstance(exponent, Number):
            power = _float(exponent.value)
            low, high = sorted((low * power, high * power))
            whole = exponent.value.denominator == 1
            return Bound(low, high, digits * (abs(power) if whole else 1.0))
        largest = max(abs(low), abs(high)) * _ten_to(size)
        whole = bool(digits) and not symbols_of(exponent)
        return Bound(-largest, largest, digits * _ten_to(size) if whole else 0.0)

    def call(self, function: str, bounds: list[Bound]) -> Bound:
        low, high, digits = bounds[0]
        top = max(bound.high for bound in bounds)
        if function in ("factorial", "double_factorial"):
            size = _log10_factorial(high)
            return Bound(-_CANCELLED, size, size)
        if function in ("binomial", "permutations"):
            size = _log10_choices(bounds[0], bounds[1], ordered=function == "permutations")
            return Bound(-_CANCELLED, size, size + digits * _ten_to(min(bounds[1].high, size)))
        if function in ("sinh", "cosh"):
            return _exponential(high)
        if function.endswith(APPLIED):
            return Bound(-_CANCELLED, 3 * max(top, 1.0), 4 * sum(b.digits for b in bounds) + 10)
        if function in _KEEPING:
            digits = sum(bound.digits for bound in bounds)
            return Bound(min(low, 0.0) - _CANCELLED, max(top, 0.0) + 1, digits)
        self.cancelled += max(0.0, top)  # a large argument of a sine leaves it few digits
        return Bound(min(low, 0.0) - _CANCELLED, max(0.0, math.log10(max(top, 1.0))) + _CANCELLED)

    def series(self, series: Series) -> Bound:
        ends = (self.bound(series.low), self.bound(series.high))
        largest = max(0.0, *(end.high for end in ends))
        if largest > math.log10(MAX_TERMS) + 1e-9:
            raise TooCostly(f"a {series.kind} of more than {MAX_TERMS} terms")
        self.symbols[series.index] = Bound(0.0, largest, max(largest, 0.5))
        count = _ten_to(largest) + (symbols_of(series.low) != frozenset() or ends[0].high > 0)
        self.times *= count
        low, high, digits = self.bound(series.body)
        self.times /= count
        if series.kind == "product":
            return Bound(min(low, 0.0) * count, max(high, 0.0) * count, digits * count)
        self.cancelled += 0.0 if digits else high - low
        return Bound(low - _CANCELLED, high + math.log10(count), digits * count)


_KEEPING = frozenset({
    "sqrt", "root", "abs", "re", "im", "max", "min", "mod", "floor", "ceil", "gcd", "lcm", "sign",
})  # fmt: skip
"""Functions that are rational at some rationals and grow no faster than their arguments."""


def _of_rational(value: Fraction) -> Bound:
    if not value:
        return Bound(0.0, 0.0, 1.0)
    above, below = _log10(abs(value.numerator)), _log10(value.denominator)
    return Bound(above - below, above - below, above + below + 0.5)


def _float(value: Fraction) -> float:
    return float(value) if abs(value) < _HUGE else _HUGE if value > 0 else -_HUGE


def _log10(integer: int) -> float:
    return math.log10(integer) if integer.bit_length() < 1000 else integer.bit_length() * 0.30103


def _product(bounds: list[Bound]) -> Bound:
    lows, highs, digits = zip(*bounds, strict=True)
    return Bound(sum(lows), sum(highs), sum(digits) if all(digits) else 0.0)


def _ten_to(exponent: float) -> float:
    return math.pow(10.0, min(exponent, 300.0))


def _exponential(log10_of_argument: float) -> Bound:
    size = _ten_to(log10_of_argument) * math.log10(math.e)
    return Bound(-size, size)


def _log10_factorial(log10_of_argument: float) -> float:
    return math.lgamma(_ten_to(min(log10_of_argument, 9.0)) + 2) / math.log(10)


def _log10_choices(total: Bound, chosen: Bound, *, ordered: bool) -> float:
    """At least log10 of a binomial coefficient, or of a number of arrangements if `ordered`."""
    one_by_one = _ten_to(chosen.high) * (max(total.high, chosen.high, 0.0) + 1)
    at_once = _log10_factorial(total.high) if ordered else _ten_to(total.high) * math.log10(2)
    return min(one_by_one, at_once) + 2
