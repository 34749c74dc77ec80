"""Whether two trees have one value, by evaluation at rational points; nothing is simplified."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from workings.grading.expression.arithmetic import (
    Context,
    Undefined,
    Value,
    close,
    divide,
    is_real,
)
from workings.grading.expression.evaluate import (
    Outcome,
    Unsettled,
    context,
    settled_value,
)
from workings.grading.expression.probes import (
    INTEGER_NAMES,
    Point,
    integer_points,
    rational_points,
)
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

NUM_POINTS = 4
FEWEST_POINTS = 3

_EQUAL = 60
"""Digits in which values are equal. That 25 agree is common for expressions that are close to one
another, such as e to the pi times the root of 163 and an integer; that 60 agree is not."""
_NUM_INTEGER_POINTS = 6
_PERIODIC = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "floor", "ceil", "mod", "factorial", "binomial",
})  # fmt: skip

_PIECEWISE = frozenset({"abs", "max", "min", "floor", "ceil", "mod", "sign", "sqrt", "root"})


class _Alike(Enum):
    """How two values compare at one point."""

    EQUAL = "both have the same value"
    DIFFERENT = "both have a value, another one"
    SKIPPED = "the gold has no value or is not real"
    NARROWER = "only the answer has no value or is not real"


def same_value(answer: Node, gold: Node) -> bool | None:
    r"""True where `answer` equals `gold` wherever `gold` is real; None where that is not decided.

    Without symbols, values are compared as complex numbers, and an undefined one equals nothing.
    With symbols, a point where `gold` is not real counts only if the values agree; where
    `answer` alone leaves the reals, agreement at the other points is None. None also stands for
    fewer than three usable points, and for a difference that rests on a function without
    definition, on `\log` being natural rather than decimal, or on symbols named like integers not
    being integers. Raises TooCostly.

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
    if verdict is False and (pair.has_unknown_function or pair.agrees_at_integers()):
        return None
    return verdict


def constant_ratio(answer: Node, gold: Node) -> Fraction | None:
    """The nonzero real c with `answer` = c times `gold` at all points; None where there is none.

    Exact where all values are rational, else correct to 50 digits. Two expressions without symbols
    have no such c. Raises TooCostly.
    """
    pair = _Pair.of(answer, gold)
    ratios: list[Value] = []
    for point in pair.points() if pair.symbols else ():
        try:
            above = settled_value(answer, point, decimal_log=False)
            below = settled_value(gold, point, decimal_log=False)
        except (Undefined, Unsettled):
            continue
        if above.value == 0 or below.value == 0:
            if above.value != below.value:
                return None
            continue
        mp = _common_context(above, below)
        ratios.append(divide(mp, above.value, below.value))
        if not is_real(mp, ratios[-1]) or not close(mp, ratios[0], ratios[-1], _EQUAL):
            return None
        if len(ratios) == NUM_POINTS:
            break
    return _as_rational(ratios[0]) if len(ratios) >= FEWEST_POINTS else None


def real_value(node: Node) -> Fraction | float | None:
    """The value of `node`; None where it has symbols, is not real or has no value.

    A rational is exact, another real a rational correct to 50 digits (ask `same_value` whether two
    are equal), an infinity a float. Raises TooCostly.
    """
    if symbols_of(node):
        return None
    try:
        outcome = settled_value(node, {}, decimal_log=False)
    except (Undefined, Unsettled):
        return None
    mp, value = context(outcome.digits), outcome.value
    if not is_real(mp, value):
        return None
    if type(value) is not Fraction and mp.isinf(value):
        return math.inf if value > 0 else -math.inf
    return _as_rational(value)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two trees to compare, and what is known of them before any evaluation."""

    answer: Node
    gold: Node
    symbols: list[str]
    derived: dict[str, tuple[str, ...]]
    """Names of one tree whose value is the product of names of the other: GM of G and M, C of c."""
    has_i: bool
    has_bare_log: bool
    has_unknown_function: bool
    is_periodic: bool
    is_piecewise: bool

    @staticmethod
    def of(answer: Node, gold: Node) -> _Pair:
        names, gold_names = symbols_of(answer), symbols_of(gold)
        nodes = [node for tree in (answer, gold) for node, _ in walk(tree)]
        calls = [node for node in nodes if isinstance(node, Call)]
        bases = [node.base for node in nodes if isinstance(node, Power)]
        return _Pair(
            answer=answer,
            gold=gold,
            symbols=sorted(names | gold_names),
            derived=_derived(names, gold_names) | _derived(gold_names, names),
            has_i=Constant("i") in nodes,
            has_bare_log=any(c.function == "log" and len(c.arguments) == 1 for c in calls),
            has_unknown_function=any(call.function.endswith(APPLIED) for call in calls),
            is_periodic=any(call.function in _PERIODIC for call in calls)
            or any(isinstance(base, Number) and base.value < 0 for base in bases),
            is_piecewise=any(call.function in _PIECEWISE for call in calls),
        )

    def points(self) -> Iterator[Point]:
        """Values of the symbols to try in turn; one empty point where there are none."""
        points = rational_points(self.symbols) if self.symbols else iter([Point()])
        for point in points:
            for name, parts in self.derived.items():
                point[name] = math.prod((point[part] for part in parts), start=Fraction(1))
            yield point

    def verdict(self, *, decimal_log: bool) -> bool | None:
        wanted = 2 * NUM_POINTS if self.is_piecewise else NUM_POINTS
        fewest = FEWEST_POINTS
        if not self.symbols:
            wanted = fewest = 1
        seen: list[_Alike] = []
        costly: list[TooCostly] = []
        for point in self.points():
            try:
                seen.append(self.alike_at(point, decimal_log=decimal_log))
            except TooCostly as error:
                costly.append(error)
                if len(costly) == fewest:
                    break
                continue
            if seen[-1] is _Alike.DIFFERENT:
                return False
            if seen.count(_Alike.EQUAL) == wanted:
                break
        if seen.count(_Alike.EQUAL) >= fewest:
            return None if _Alike.NARROWER in seen else True
        if costly:
            raise costly[0]
        return None

    def alike_at(self, point: Point, *, decimal_log: bool) -> _Alike:
        try:
            gold = settled_value(self.gold, point, decimal_log=decimal_log)
        except Undefined:
            return _Alike.SKIPPED if self.symbols else _Alike.DIFFERENT
        except Unsettled:
            return _Alike.SKIPPED
        try:
            answer = settled_value(self.answer, point, decimal_log=decimal_log)
        except Undefined:
            return _Alike.NARROWER if self.symbols else _Alike.DIFFERENT
        except Unsettled:
            return _Alike.SKIPPED
        if close(_common_context(answer, gold), answer.value, gold.value, _EQUAL):
            return _Alike.EQUAL
        if self.symbols and not self.has_i and not gold.real:
            return _Alike.SKIPPED
        if self.symbols and not self.has_i and not answer.real:
            return _Alike.NARROWER
        return _Alike.DIFFERENT

    def agrees_at_integers(self) -> bool:
        """True where symbols with names of integers make both sides equal by being integers."""
        if not self.is_periodic or not any(name[0] in INTEGER_NAMES for name in self.symbols):
            return False
        points = integer_points(self.symbols, _NUM_INTEGER_POINTS)
        try:
            return all(self.alike_at(x, decimal_log=False) is _Alike.EQUAL for x in points)
        except TooCostly:
            return False


def _derived(names: frozenset[str], others: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """The parts, in `others`, of each of `names` that is a product or a constant of integration."""
    found: dict[str, tuple[str, ...]] = {}
    for name in names - others:
        if len(name) > 1 and name.isupper() and others.issuperset(name):
            found[name] = tuple(name)
        elif name[0] == "C" and f"c{name[1:]}" in others - names:
            found[name] = (f"c{name[1:]}",)
    return found


def _common_context(left: Outcome, right: Outcome) -> Context:
    return context(max(left.digits, right.digits))


def _as_rational(value: Value) -> Fraction:
    if isinstance(value, Fraction):
        return value
    sign, mantissa, exponent, _ = value._mpf_
    size: Fraction = Fraction(mantissa) * Fraction(2) ** exponent
    return -size if sign else size
