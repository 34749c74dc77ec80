"""Whether two trees have one value, by evaluation at rational points; nothing is simplified."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from workings.grading.expression.cost import cost_of
from workings.grading.expression.evaluate import Outcome, context, evaluate
from workings.grading.expression.functions import Undefined, Value, inexact, is_real
from workings.grading.expression.tree import (
    APPLIED,
    Call,
    Constant,
    Node,
    Number,
    Power,
    TooCostly,
    symbols_of,
    walk,
)

SEED = 20_260_512
NUM_POINTS = 4
FEWEST_POINTS = 3

Point = Mapping[str, Fraction]

_DIFFERENT = 25  # a relative difference above 10^-25 tells two values apart
_EQUAL = 60  # one below 10^-60, from values of more digits, makes them equal
_SETTLED = 28
_STEPS = (50, 150)
_VANISHING = 20
_SCALES = (
    ((1.0, 5.0), False), ((0.3, 0.95), False), ((1.0, 5.0), True), ((0.3, 0.95), True),
    ((1.0, 5.0), True), ((0.3, 0.95), True), ((1.0, 5.0), False), ((0.3, 5.0), True),
    ((5.0, 30.0), False), ((5.0, 30.0), True), ((1.0, 5.0), False), ((0.3, 0.95), False),
)  # fmt: skip
"""(range of the absolute value, both signs) of each probe point."""
_NUM_INTEGER_POINTS = 6
_INTEGER_NAMES = frozenset("nkmNKMjl")
_PERIODIC = frozenset(
    ("sin", "cos", "tan", "cot", "sec", "csc", "floor", "ceil", "mod", "factorial", "binomial")
)


class _Unsettled(Exception):
    """More digits do not bring the value to rest."""


def same_value(answer: Node, gold: Node) -> bool | None:
    r"""True where `answer` equals `gold` wherever `gold` is real; None where that is not decided.

    Without symbols, the values are compared as complex numbers, and an undefined one equals
    nothing. With symbols, a point outside the real domain of `gold` decides only when the values
    agree there; where `answer` leaves the reals and `gold` does not, agreement elsewhere is None.
    None also stands for fewer than three usable points; for a difference that rests on a function
    without definition, or on symbols named like integers not being such; and where `\log` would
    have to be one of natural and decimal. Raises TooCostly.

    >>> from workings.grading.expression.parse import parse_expression as parse
    >>> same_value(parse(r"2\sin x\cos x"), parse(r"\sin 2x"))
    True
    >>> same_value(parse(r"1+\frac{1}{e}"), parse(r"1-\frac{1}{e}"))
    False
    >>> same_value(parse(r"x+\log 2"), parse(r"\ln 2+x")) is None
    True
    """
    pair = _Pair.of(answer, gold)
    verdict = pair.verdict(decimal_log=False)
    if pair.has_bare_log and verdict is not pair.verdict(decimal_log=True):
        return None
    if verdict is False and (pair.has_applied or pair.agrees_at_integers()):
        return None
    return verdict


def constant_ratio(answer: Node, gold: Node) -> Fraction | None:
    """The nonzero real c with `answer` = c times `gold` at all points; None where there is none.

    A rational c that is exact on both sides is exact, any other correct to 60 digits. Two
    expressions without symbols have no such c.
    """
    pair = _Pair.of(answer, gold)
    if not pair.symbols:
        return None
    ratio: Value = None
    usable = 0
    for point in pair.points():
        try:
            left, right = pair.settled(answer, point), pair.settled(gold, point)
        except (Undefined, _Unsettled):
            continue
        mp = context(pair.digits + sum(_STEPS))
        if left.value == 0 or right.value == 0:
            if left.value == right.value:
                continue
            return None
        here = _divided(mp, left.value, right.value)
        if not is_real(mp, here) or (ratio is not None and not _alike(mp, here, ratio)):
            return None
        ratio, usable = here, usable + 1
        if usable == NUM_POINTS:
            break
    return None if usable < FEWEST_POINTS else _rational(ratio)


def real_value(node: Node) -> Fraction | float | None:
    """The value of `node`; None where it has symbols, is not real or not defined.

    A rational is exact, another real a rational correct to 50 digits or more (ask `same_value`
    whether two are equal), an infinity `math.inf` or `-math.inf`. Raises TooCostly.
    """
    if symbols_of(node):
        return None
    pair = _Pair.of(node, node)
    try:
        value = pair.settled(node, {}).value
    except (Undefined, _Unsettled):
        return None
    mp = context(pair.digits)
    if not is_real(mp, value):
        return None
    if type(value) is not Fraction and mp.isinf(value):
        return math.inf if value > 0 else -math.inf
    return _rational(value)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two trees to compare, and what is known of both before any evaluation."""

    answer: Node
    gold: Node
    symbols: tuple[str, ...]
    digits: int
    has_i: bool
    has_bare_log: bool
    has_applied: bool
    has_periodic: bool

    @staticmethod
    def of(answer: Node, gold: Node) -> _Pair:
        costs = cost_of(answer), cost_of(gold)
        nodes = [node for tree in (answer, gold) for node, _ in walk(tree)]
        calls = [node for node in nodes if isinstance(node, Call)]
        return _Pair(
            answer=answer,
            gold=gold,
            symbols=tuple(sorted(symbols_of(answer) | symbols_of(gold))),
            digits=max(cost.precision for cost in costs),
            has_i=Constant("i") in nodes,
            has_bare_log=any(c.function == "log" and len(c.arguments) == 1 for c in calls),
            has_applied=any(call.function.endswith(APPLIED) for call in calls),
            has_periodic=any(
                node.function in _PERIODIC
                if isinstance(node, Call)
                else isinstance(node, Power)
                and isinstance(node.base, Number)
                and node.base.value < 0
                for node in nodes
            ),
        )

    def verdict(self, *, decimal_log: bool) -> bool | None:
        usable = 0
        narrower = False
        for point in self.points():
            alike = self.alike_at(point, decimal_log=decimal_log)
            if alike is _Alike.DIFFERENT:
                return False
            narrower = narrower or alike is _Alike.NARROWER
            usable += alike is _Alike.EQUAL
            if usable == (NUM_POINTS if self.symbols else 1):
                break
        if narrower or usable < (FEWEST_POINTS if self.symbols else 1):
            return None
        return True

    def alike_at(self, point: Point, *, decimal_log: bool) -> str:
        try:
            gold = self.settled(self.gold, point, decimal_log=decimal_log)
        except Undefined:
            return _Alike.UNDEFINED if self.symbols else _Alike.DIFFERENT
        except _Unsettled:
            return _Alike.UNDEFINED
        try:
            answer = self.settled(self.answer, point, decimal_log=decimal_log)
        except Undefined:
            return _Alike.NARROWER if self.symbols else _Alike.DIFFERENT
        except _Unsettled:
            return _Alike.UNDEFINED
        if _alike(context(self.digits + sum(_STEPS)), answer.value, gold.value):
            return _Alike.EQUAL
        if self.has_i or not self.symbols:
            return _Alike.DIFFERENT
        if not gold.real:
            return _Alike.UNDEFINED
        return _Alike.DIFFERENT if answer.real else _Alike.NARROWER

    def agrees_at_integers(self) -> bool:
        """True where all integer values of symbols that are named like integers make both equal."""
        integers = [name for name in self.symbols if name[0] in _INTEGER_NAMES]
        if not integers or not self.has_periodic:
            return False
        source = random.Random(SEED)
        try:
            for _ in range(_NUM_INTEGER_POINTS):
                point = {name: _rational_in(source, 0.3, 5.0, signed=True) for name in self.symbols}
                point |= {name: Fraction(source.randint(1, 12)) for name in integers}
                if self.alike_at(point, decimal_log=False) is not _Alike.EQUAL:
                    return False
        except TooCostly:
            return False
        return True

    def points(self) -> Iterator[Point]:
        """Values of the symbols, as many points as may be tried."""
        if not self.symbols:
            yield {}
            return
        source = random.Random(SEED)
        for (low, high), signed in _SCALES:
            yield {name: _rational_in(source, low, high, signed=signed) for name in self.symbols}

    def settled(self, node: Node, point: Point, *, decimal_log: bool = False) -> Outcome:
        """The value with digits enough, seen from its not moving as the precision rises.

        A value that dwindles with the precision is zero, one that grows with it a pole.
        """
        previous = evaluate(node, point, digits=self.digits, decimal_log=decimal_log)
        if type(previous.value) is Fraction:
            return previous
        first = previous
        for step in _STEPS:
            current = evaluate(node, point, digits=self.digits + step, decimal_log=decimal_log)
            mp = context(self.digits + sum(_STEPS))
            if current.value == previous.value or _close(
                mp, current.value, previous.value, _SETTLED
            ):
                return current
            previous = current
        if (
            previous.value == 0
            or abs(previous.value) < abs(first.value) * mp.mpf(10) ** -_VANISHING
        ):
            return Outcome(Fraction(0), previous.real)
        if abs(previous.value) > abs(first.value) * mp.mpf(10) ** _VANISHING:
            raise Undefined("a pole")
        raise _Unsettled


class _Alike:
    """How two values compare at one point."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDEFINED = "the gold is undefined or not real here"
    NARROWER = "only the answer is undefined or not real here"


def _alike(mp: Value, left: Value, right: Value) -> bool:
    if type(left) is Fraction and type(right) is Fraction:
        return left == right
    if left == right:
        return True
    return _close(mp, left, right, _EQUAL)


def _close(mp: Value, left: Value, right: Value, digits: int) -> bool:
    left, right = inexact(mp, left), inexact(mp, right)
    if mp.isinf(left) or mp.isinf(right):
        return bool(left == right)
    scale = max(abs(left), abs(right))
    return bool(abs(left - right) <= scale * mp.mpf(10) ** -digits)


def _divided(mp: Value, left: Value, right: Value) -> Value:
    if type(left) is Fraction and type(right) is Fraction:
        return left / right
    return inexact(mp, left) / inexact(mp, right)


def _rational(value: Value) -> Fraction:
    if type(value) is Fraction:
        return value
    sign, mantissa, exponent, _ = value._mpf_
    scaled = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -scaled if sign else scaled


def _rational_in(source: random.Random, low: float, high: float, *, signed: bool) -> Fraction:
    denominator = source.choice(_DENOMINATORS)
    value = Fraction(
        source.randint(math.ceil(low * denominator), int(high * denominator)), denominator
    )
    return -value if signed and source.random() < 0.5 else value


_DENOMINATORS = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157)
