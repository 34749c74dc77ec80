"""What an evaluation would cost, from bounds on every node; nothing is evaluated.

Each node gets bounds on log10 of its absolute value (unless it is zero) and, where it is rational,
on the digits of its numerator and denominator. They hold for symbols between `SMALLEST_PROBE` and
`LARGEST_PROBE` in absolute value; a sum is taken not to lose more than two digits to
cancellation, so `evaluate` has a backstop on the values that it meets.
"""

from __future__ import annotations

import math
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
    walk,
)

MAX_LOG10 = 20_000
"""Powers and factorials beyond 10^20000 or below 10^-20000 are refused, as are longer numbers."""
MAX_DIGITS_IN_ALL = 400_000
MAX_TERMS = 1000
MAX_NODES = 2000
MAX_PRECISION = 2500
SMALLEST_PROBE, LARGEST_PROBE, PROBE_DIGITS = 0.3, 5.0, 3.5

_GUARD_DIGITS = 60
_FREE_DIGITS = 40  # of cancellation, before the precision is raised
_CANCELLED = 2.0
_EXPONENTIALS = frozenset({"sinh", "cosh", "tanh", "coth", "sech", "csch"})
_GROWING = {"factorial": 1.0, "double_factorial": 0.5}


class Bound(NamedTuple):
    """log10 of the smallest and the largest absolute value; digits where rational, else 0."""

    low: float
    high: float
    digits: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What evaluation needs: decimal digits to work with, and digits of the largest rational."""

    precision: int
    digits: float


def cost_of(node: Node) -> Cost:
    """The cost of evaluating `node` at a probe point; TooCostly where it is out of bounds.

    >>> from workings.grading.expression.parse import parse_expression
    >>> cost_of(parse_expression("9^{9^{9^9}}"))
    Traceback (most recent call last):
        ...
    workings.grading.expression.tree.TooCostly: a power of about 10^369693099 digits...
    """
    if sum(1 for _ in walk(node)) > MAX_NODES:
        raise TooCostly(f"more than {MAX_NODES} nodes")
    meter = _Meter()
    bound = meter.bound(node)
    precision = _GUARD_DIGITS + max(0.0, meter.cancelled - _FREE_DIGITS)
    if precision > MAX_PRECISION:
        raise TooCostly(f"terms of sizes so far apart that {precision:.0f} digits are needed")
    return Cost(precision=math.ceil(precision), digits=bound.digits)


class _Meter:
    """Bounds nodes from the leaves up, adding up what they cost."""

    def __init__(self) -> None:
        self.cancelled = 0.0
        self.digits = 0.0
        self.indices: dict[str, Bound] = {}

    def bound(self, node: Node) -> Bound:
        bound = self._bound(node)
        if bound.digits > MAX_LOG10 or not -MAX_LOG10 <= bound.low <= bound.high <= MAX_LOG10:
            raise TooCostly(f"a value beyond 10^{MAX_LOG10} or below 10^-{MAX_LOG10}")
        self.digits += bound.digits
        if self.digits > MAX_DIGITS_IN_ALL:
            raise TooCostly(f"more than {MAX_DIGITS_IN_ALL} digits of rationals in all")
        return bound

    def _bound(self, node: Node) -> Bound:
        match node:
            case Number(value):
                return _of_rational(value)
            case Symbol(name):
                return self.indices.get(name, _PROBE)
            case Constant():
                return _ABOUT_ONE
            case Sum(terms):
                return self._sum([self.bound(term) for term in terms])
            case Product(factors):
                return _product([self.bound(factor) for factor in factors])
            case Quotient(top, bottom):
                return _product([self.bound(top), _inverse(self.bound(bottom))])
            case Power(base, exponent):
                return self._power(base, exponent)
            case Call(function, arguments):
                return self._call(function, [self.bound(argument) for argument in arguments])
            case Series():
                return self._series(node)

    def _sum(self, bounds: list[Bound]) -> Bound:
        low, high = max(b.low for b in bounds), max(b.high for b in bounds)
        digits = sum(b.digits for b in bounds)
        self.cancelled += high - min(b.low for b in bounds)
        return Bound(low - _CANCELLED, high + math.log10(len(bounds)), digits)

    def _power(self, base: Node, exponent: Node) -> Bound:
        if base == Constant("e"):
            return _exponential(self.bound(exponent).high)
        low, high, digits = self.bound(base)
        if isinstance(exponent, Number):
            power = float(exponent.value) if abs(exponent.value) < 10**9 else math.inf
            if power < 0:
                low, high, power = -high, -low, -power
            whole = exponent.value.denominator == 1 and power != math.inf
            return _checked_power(low * power, high * power, digits * power if whole else 0.0)
        size = _power_of_ten(self.bound(exponent).high)
        largest = max(abs(low), abs(high)) * size
        exact = digits * size if digits and self.bound(exponent).digits else 0.0
        if any(isinstance(part, Symbol) for part, _ in walk(exponent)):
            exact = 0.0
        return _checked_power(-largest, largest, exact)

    def _call(self, function: str, bounds: list[Bound]) -> Bound:
        first = bounds[0]
        if function in _GROWING:
            size = _log10_factorial(_power_of_ten(first.high)) * _GROWING[function]
            return _checked_power(-_FREE_DIGITS / 2, size, size)
        if function in ("binomial", "permutations"):
            size = _log10_choices(*bounds, arranged=function == "permutations")
            return _checked_power(
                -_FREE_DIGITS / 2,
                size,
                size + 8 * _power_of_ten(bounds[1].high) if first.digits > first.high + 1 else size,
            )
        if function in _EXPONENTIALS:
            return _exponential(first.high)
        self.cancelled += max(0.0, first.high)
        digits = sum(bound.digits for bound in bounds)
        high = max(bound.high for bound in bounds)
        if function.endswith(APPLIED):
            return Bound(-_CANCELLED, 3 * max(high, 1.0), 4 * digits + 10)
        if function in ("sqrt", "root", "abs", "re", "im", "max", "min", "mod", "floor", "ceil"):
            low = min(bound.low for bound in bounds)
            return Bound(min(low, 0.0) - _CANCELLED, max(high, 0.0) + 1, digits)
        if function in ("gcd", "lcm"):
            return Bound(0.0, digits, digits)
        return Bound(min(first.low, 0.0) - _CANCELLED, max(high, 0.0) + _CANCELLED, 0.0)

    def _series(self, series: Series) -> Bound:
        ends = [self.bound(series.low), self.bound(series.high)]
        largest = max(end.high for end in ends)
        if largest > math.log10(MAX_TERMS) + 1e-9:
            raise TooCostly(f"a {series.kind} of more than {MAX_TERMS} terms")
        self.indices[series.index] = Bound(0.0, max(largest, 0.0), max(largest, 0.0))
        body = self.bound(series.body)
        count = 2 * 10**largest + 1
        if series.kind == "sum":
            self.cancelled += body.high - body.low
            return Bound(body.low - _CANCELLED, body.high + math.log10(count), body.digits * count)
        return Bound(min(body.low, 0.0) * count, max(body.high, 0.0) * count, body.digits * count)


_ABOUT_ONE = Bound(0.0, 0.5, 0.0)
_PROBE = Bound(math.log10(SMALLEST_PROBE), math.log10(LARGEST_PROBE), PROBE_DIGITS)


def _of_rational(value: Fraction) -> Bound:
    if not value:
        return Bound(0.0, 0.0, 1.0)
    top, bottom = _log10(abs(value.numerator)), _log10(value.denominator)
    return Bound(top - bottom, top - bottom, top + bottom)


def _log10(integer: int) -> float:
    return math.log10(integer) if integer.bit_length() < 1000 else integer.bit_length() * 0.30103


def _product(bounds: list[Bound]) -> Bound:
    return Bound(
        sum(bound.low for bound in bounds),
        sum(bound.high for bound in bounds),
        sum(bound.digits for bound in bounds),
    )


def _inverse(bound: Bound) -> Bound:
    return Bound(-bound.high, -bound.low, bound.digits)


def _power_of_ten(exponent: float) -> float:
    return 10.0**exponent if exponent < 300 else math.inf


def _exponential(log10_of_argument: float) -> Bound:
    size = _power_of_ten(log10_of_argument) * math.log10(math.e)
    return _checked_power(-size, size, 0.0)


def _checked_power(low: float, high: float, digits: float) -> Bound:
    if max(-low, high, digits) > MAX_LOG10:
        raise TooCostly(f"a power or factorial beyond 10^{MAX_LOG10} or below 10^-{MAX_LOG10}")
    return Bound(low, high, digits)


def _log10_factorial(size: float) -> float:
    return math.inf if size > 10**6 else math.lgamma(size + 2) / math.log(10)


def _log10_choices(total: Bound, chosen: Bound, *, arranged: bool) -> float:
    """An upper bound on log10 of a binomial coefficient or a number of arrangements."""
    step_by_step = _power_of_ten(chosen.high) * (max(total.high, chosen.high) + 1)
    subsets = _power_of_ten(total.high) * (math.log10(2) if not arranged else max(total.high, 1))
    return min(step_by_step, subsets) + 2
