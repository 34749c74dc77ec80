"""The value of a tree at a point: exact while it is rational, else to a given number of digits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath

from workings.grading.expression.arithmetic import (
    Context,
    Undefined,
    Value,
    add,
    close,
    divide,
    inexact,
    multiply,
    power,
)
from workings.grading.expression.cost import MAX_TERMS, precision_for
from workings.grading.expression.functions import FUNCTIONS, apply_unknown
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
)

_MOST_BITS = 1_000_000  # of the exponent of a floating point number
_SPARE_DIGITS = 12  # an imaginary part smaller than the last of them is rounding
_TEN = Fraction(10)
_MORE_DIGITS = (50, 150)
_SETTLED = 28
"""Digits in which two evaluations must agree; the later has 50 more, so 78 of its digits hold."""
_VANISHING = 20


class Unsettled(Exception):
    """More digits do not bring the value to rest."""


_local = threading.local()


def context(digits: int) -> Context:
    """This thread's mpmath context, set to `digits` decimal digits."""
    if not hasattr(_local, "mp"):
        _local.mp = mpmath.MPContext()
    mp = _local.mp
    if mp.dps != digits:
        mp.dps = digits
    return mp


@dataclass(frozen=True, slots=True)
class Outcome:
    """A value, the decimal digits it was computed with, and whether every step was real."""

    value: Value
    digits: int
    real: bool


def settled_value(node: Node, point: Mapping[str, Fraction], *, decimal_log: bool) -> Outcome:
    r"""The value of `node` where its symbols are as in `point`, once more digits do not move it.

    A value that dwindles as digits are added is zero, one that grows with them a pole.
    `decimal_log` reads `\log` without base as that to base 10. Raises TooCostly, Undefined, or
    Unsettled.
    """
    precision = precision_for(node, point)
    outcomes: list[Outcome] = []
    for more in (0, *_MORE_DIGITS):
        mp = context(precision + more)
        evaluator = _Evaluator(mp=mp, point=dict(point), decimal_log=decimal_log)
        try:
            value = evaluator.value(node)
        except (ZeroDivisionError, ValueError, OverflowError, mpmath.libmp.NoConvergence) as error:
            raise Undefined(str(error)) from error
        outcomes.append(Outcome(value, precision + more, evaluator.real))
        if type(value) is Fraction or (more and close(mp, value, outcomes[-2].value, _SETTLED)):
            return outcomes[-1]
    first, last = abs(outcomes[0].value), abs(outcomes[-1].value)
    ten = mp.mpf(10)
    if last <= first * ten**-_VANISHING:
        return Outcome(Fraction(0), outcomes[-1].digits, outcomes[-1].real)
    if first <= last * ten**-_VANISHING:
        raise Undefined("a pole")
    raise Unsettled


@dataclass(slots=True)
class _Evaluator:
    mp: Context
    point: dict[str, Value]
    decimal_log: bool
    real: bool = True

    def value(self, node: Node) -> Value:
        value = _EVALUATE[type(node)](self, node)
        return value if type(value) is Fraction else self.checked(value)

    def checked(self, value: Value) -> Value:
        """`value` without an imaginary part that is mere rounding; raises where it is no number."""
        mp = self.mp
        if isinstance(value, mp.mpc):
            real, imaginary = self.checked(value.real), self.checked(value.imag)
            if abs(imaginary) <= abs(real) * mp.mpf(10) ** (_SPARE_DIGITS - mp.dps):
                return real
            if mp.isinf(value):
                raise Undefined("an infinite complex number")
            self.real = False
            return value
        _, mantissa, exponent, bits = value._mpf_
        if not mantissa and exponent:
            if value != value:
                raise Undefined("an operation on infinity without a value")
        elif abs(exponent + bits) > _MOST_BITS:
            raise TooCostly("a value whose exponent is out of bounds")
        return value

    def is_infinite(self, value: Value) -> bool:
        return type(value) is not Fraction and bool(self.mp.isinf(value))

    def values(self, nodes: tuple[Node, ...]) -> list[Value]:
        return [self.value(node) for node in nodes]

    def constant(self, node: Constant) -> Value:
        mp = self.mp
        if node.name == "i":
            return mp.mpc(0, 1)
        return +{"pi": mp.pi, "e": mp.e, "infinity": mp.inf}[node.name]

    def quotient(self, node: Quotient) -> Value:
        return divide(self.mp, self.value(node.numerator), self.value(node.denominator))

    def power(self, node: Power) -> Value:
        exponent = self.value(node.exponent)
        if node.base == Constant("e"):
            return Fraction(1) if exponent == 0 else self.mp.exp(inexact(self.mp, exponent))
        base, written = self.value(node.base), isinstance(node.exponent, Number)
        return power(self.mp, base, exponent, real_root=written)

    def call(self, node: Call) -> Value:
        name, arguments = node.function, self.values(node.arguments)
        if name.endswith(APPLIED):
            return apply_unknown(self.mp, name, *arguments)
        if self.decimal_log and name == "log" and len(arguments) == 1:
            arguments.append(_TEN)
        value = FUNCTIONS[name](self.mp, *arguments)
        if self.is_infinite(value) and not any(map(self.is_infinite, arguments)):
            raise Undefined("a pole")
        return value

    def series(self, node: Series) -> Value:
        low, high = self.value(node.low), self.value(node.high)
        if not all(type(end) is Fraction and end.denominator == 1 for end in (low, high)):
            raise Undefined("bounds that are not integers")
        if high - low > 2 * MAX_TERMS:
            raise TooCostly(f"a {node.kind} of more than {MAX_TERMS} terms")
        values: list[Value] = []
        for index in range(low.numerator, high.numerator + 1):
            self.point[node.index] = Fraction(index)
            values.append(self.value(node.body))
        return add(self.mp, *values) if node.kind == "sum" else multiply(self.mp, *values)


_EVALUATE: dict[type, Callable[[_Evaluator, Any], Value]] = {
    Number: lambda evaluator, node: node.value,
    Symbol: lambda evaluator, node: evaluator.point[node.name],
    Constant: _Evaluator.constant,
    Sum: lambda evaluator, node: add(evaluator.mp, *evaluator.values(node.terms)),
    Product: lambda evaluator, node: multiply(evaluator.mp, *evaluator.values(node.factors)),
    Quotient: _Evaluator.quotient,
    Power: _Evaluator.power,
    Call: _Evaluator.call,
    Series: _Evaluator.series,
}
