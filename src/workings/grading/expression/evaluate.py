"""The value of a tree at a point: exact while it is rational, else to a given number of digits."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import mpmath

from workings.grading.expression.functions import (
    FUNCTIONS,
    Context,
    Undefined,
    Value,
    inexact,
    power,
)
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
_MAX_TERMS = 2001

_local = threading.local()


def context(digits: int) -> Context:
    """This thread's mpmath context, set to `digits` decimal digits."""
    mp = getattr(_local, "mp", None)
    if mp is None:
        mp = _local.mp = mpmath.MPContext()
    if mp.dps != digits:
        mp.dps = digits
    return mp


@dataclass(frozen=True, slots=True)
class Outcome:
    """A value, and whether every step towards it was real."""

    value: Value
    real: bool


def evaluate(
    node: Node, point: Mapping[str, Fraction], *, digits: int, decimal_log: bool = False
) -> Outcome:
    r"""The value of `node` where its symbols are as in `point`; raises Undefined or TooCostly.

    `decimal_log` reads `\log` without base as the logarithm to base 10. The caller has asked
    `cost.cost_of` before.
    """
    mp = context(digits)
    evaluator = _Evaluator(mp=mp, point=dict(point), decimal_log=decimal_log)
    try:
        value = evaluator.value(node)
    except (ZeroDivisionError, ValueError, OverflowError) as error:
        raise Undefined(str(error)) from error
    return Outcome(value, evaluator.real)


@dataclass(slots=True)
class _Evaluator:
    mp: Context
    point: dict[str, Value]
    decimal_log: bool
    real: bool = field(default=True)

    def value(self, node: Node) -> Value:
        value = _EVALUATE[type(node)](self, node)
        return value if type(value) is Fraction else self.checked(value)

    def checked(self, value: Value) -> Value:
        """`value` without an imaginary part that is mere rounding; raises where it is no number."""
        mp = self.mp
        if isinstance(value, mp.mpc):
            real, imaginary = value.real, value.imag
            if abs(imaginary) <= abs(real) * mp.mpf(10) ** (_SPARE_DIGITS - mp.dps):
                return self.checked(real)
            self.real = False
            self.checked(real)
            self.checked(imaginary)
            if mp.isinf(value):
                raise Undefined("an infinite complex number")
            return value
        _, mantissa, exponent, bits = value._mpf_
        if not mantissa and exponent:
            if value != value:
                raise Undefined("an operation on infinity without a value")
        elif abs(exponent + bits) > _MOST_BITS:
            raise TooCostly("a value whose exponent is out of bounds")
        return value

    def number(self, node: Number) -> Value:
        return node.value

    def symbol(self, node: Symbol) -> Value:
        return self.point[node.name]

    def constant(self, node: Constant) -> Value:
        mp = self.mp
        match node.name:
            case "pi":
                return +mp.pi
            case "e":
                return +mp.e
            case "i":
                return mp.mpc(0, 1)
        return mp.inf

    def sum(self, node: Sum) -> Value:
        return self.added([self.value(term) for term in node.terms])

    def added(self, values: list[Value]) -> Value:
        exact, rest = Fraction(0), None
        for value in values:
            if type(value) is Fraction:
                exact += value
            else:
                rest = value if rest is None else rest + value
        if rest is None:
            return exact
        return rest + inexact(self.mp, exact) if exact else rest

    def product(self, node: Product) -> Value:
        return self.multiplied([self.value(factor) for factor in node.factors])

    def multiplied(self, values: list[Value]) -> Value:
        exact, rest = Fraction(1), None
        for value in values:
            if type(value) is Fraction:
                exact *= value
            else:
                rest = value if rest is None else rest * value
        if rest is None:
            return exact
        return rest if exact == 1 else rest * inexact(self.mp, exact)

    def quotient(self, node: Quotient) -> Value:
        top, bottom = self.value(node.numerator), self.value(node.denominator)
        if bottom == 0:
            raise Undefined("a division by zero")
        if type(top) is Fraction and type(bottom) is Fraction:
            return top / bottom
        return inexact(self.mp, top) / inexact(self.mp, bottom)

    def power(self, node: Power) -> Value:
        exponent = self.value(node.exponent)
        if node.base == Constant("e"):
            return Fraction(1) if exponent == 0 else self.mp.exp(inexact(self.mp, exponent))
        real_root = isinstance(node.exponent, Number)
        return power(self.mp, self.value(node.base), exponent, real_root=real_root)

    def call(self, node: Call) -> Value:
        arguments = [self.value(argument) for argument in node.arguments]
        name = node.function
        if name.endswith(APPLIED):
            return self.applied(name, arguments)
        if name == "log" and len(arguments) == 1 and self.decimal_log:
            arguments.append(Fraction(10))
        value = FUNCTIONS[name](self.mp, *arguments)
        if self.infinite(value) and not any(map(self.infinite, arguments)):
            raise Undefined("a pole")
        return value

    def infinite(self, value: Value) -> bool:
        return type(value) is not Fraction and bool(self.mp.isinf(value))

    def applied(self, name: str, arguments: list[Value]) -> Value:
        """A rational function that no identity holds for, in place of one without definition."""
        seed = zlib.crc32(name.encode())
        value: Value = Fraction(seed % 97, 89)
        for argument in arguments:
            value = self.added(
                [value * Fraction(7, 3) if type(value) is Fraction else value * 7 / 3, argument]
            )
        square = self.multiplied([value, value])
        top = self.added([self.multiplied([value, square]), Fraction(seed % 89, 83)])
        bottom = self.added([square, Fraction(2)])
        if bottom == 0:
            raise Undefined("a pole")
        if type(top) is Fraction and type(bottom) is Fraction:
            return top / bottom
        return inexact(self.mp, top) / inexact(self.mp, bottom)

    def series(self, node: Series) -> Value:
        ends = [self.value(node.low), self.value(node.high)]
        if not all(type(end) is Fraction and end.denominator == 1 for end in ends):
            raise Undefined("bounds that are not integers")
        low, high = (end.numerator for end in ends)
        if high - low >= _MAX_TERMS:
            raise TooCostly(f"a {node.kind} of too many terms")
        values: list[Value] = []
        for index in range(low, high + 1):
            self.point[node.index] = Fraction(index)
            values.append(self.value(node.body))
        return self.added(values) if node.kind == "sum" else self.multiplied(values)


_EVALUATE: dict[type, Callable[[_Evaluator, Node], Value]] = {
    Number: _Evaluator.number,  # type: ignore[dict-item]
    Symbol: _Evaluator.symbol,  # type: ignore[dict-item]
    Constant: _Evaluator.constant,  # type: ignore[dict-item]
    Sum: _Evaluator.sum,  # type: ignore[dict-item]
    Product: _Evaluator.product,  # type: ignore[dict-item]
    Quotient: _Evaluator.quotient,  # type: ignore[dict-item]
    Power: _Evaluator.power,  # type: ignore[dict-item]
    Call: _Evaluator.call,  # type: ignore[dict-item]
    Series: _Evaluator.series,  # type: ignore[dict-item]
}
