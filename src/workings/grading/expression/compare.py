"""Whether two trees have one value, by evaluation at rational points; nothing is simplified."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from itertools import chain

from workings.grading.expression.arithmetic import (
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
    Quotient,
    Sum,
    Symbol,
    TooCostly,
    symbols_of,
    walk,
)

NUM_POINTS = 4
FEWEST_POINTS = 3

_EQUAL = 60
"""Digits in which values are equal. That 25 agree is common for expressions that are close to one
another, such as e to the pi times the root of 163 and an integer; that 60 agree is not."""
_MOST_COSTLY = 5
_NUM_INTEGER_POINTS = 6
_PIECEWISE = frozenset({"abs", "max", "min", "floor", "ceil", "mod", "sign"})
_QUANTITIES = frozenset("mkghlr")
"""Small letters that stand for positive quantities in physics, as capitals and Greek ones do."""
_STEPS = frozenset({"floor", "ceil", "mod"})
_PERIODIC = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "floor", "ceil", "mod", "factorial", "binomial",
})  # fmt: skip


class _Alike(Enum):
    """How two values compare at one point."""

    EQUAL = "both have the same value"
    DIFFERENT = "both have a value, another one"
    SKIPPED = "the gold has no value or is not real"
    NARROWER = "only the answer has no value or is not real"


def same_value(answer: Node, gold: Node) -> bool | None:
    r"""True where `answer` equals `gold` wherever `gold` is real; None where that is not decided.

    Without symbols, values are compared as complex numbers, and an undefined one equals nothing.
    With symbols, a point where one side is not real counts only if the values agree, since text
    books leave it unsaid that x is positive in `2\ln x`; but a `gold` with absolute values says
    it, so that an `answer` without them is None. None also stands for fewer than three usable
    points, and for a difference that rests on a function without definition, on `\log` being
    natural rather than decimal, or on symbols named like integers not being integers. Raises
    TooCostly.

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

    The points are those of `same_value`. c is exact where all values are rational, else correct to
    50 digits; without symbols there is none. Raises TooCostly.
    """
    pair = _Pair.of(answer, gold)
    ratio = pair.ratio(decimal_log=False)
    if pair.has_bare_log and pair.ratio(decimal_log=True) is None:
        return None
    return ratio


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
    has_steps: bool
    minds_domain: bool

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
            derived=_derived(answer, gold) | _derived(gold, answer),
            has_i=Constant("i") in nodes,
            has_bare_log=any(c.function == "log" and len(c.arguments) == 1 for c in calls),
            has_unknown_function=any(call.function.endswith(APPLIED) for call in calls),
            is_periodic=any(call.function in _PERIODIC for call in calls)
            or any(isinstance(base, Number) and base.value < 0 for base in bases),
            has_steps=any(call.function in _STEPS for call in calls),
            is_piecewise=any(call.function in _PIECEWISE for call in calls)
            or any(_radicand(node) for node in nodes),
            minds_domain=any(
                isinstance(node, Call) and node.function == "abs" for node, _ in walk(gold)
            ),
        )

    def points(self) -> Iterator[Point]:
        """Values of the symbols to try in turn; one empty point where there are none."""
        points = iter([Point()])
        if self.symbols:
            points = rational_points(self.symbols, in_pieces=self.is_piecewise)
            if self.has_steps:
                points = chain(
                    points, ({name: Fraction(n) for name in self.symbols} for n in (2, 3))
                )
        for point in points:
            for name, parts in self.derived.items():
                point[name] = math.prod((point[part] for part in parts), start=Fraction(1))
            yield point

    def at(self, point: Point, *, decimal_log: bool) -> tuple[Outcome | None, Outcome | None]:
        """The values of answer and gold, None where there is none."""
        sides: list[Outcome | None] = []
        for node in (self.answer, self.gold):
            try:
                sides.append(settled_value(node, point, decimal_log=decimal_log))
            except Undefined:
                sides.append(None)
        return sides[0], sides[1]

    def values(
        self, *, decimal_log: bool
    ) -> Iterator[tuple[Point, Outcome | None, Outcome | None]]:
        """The values at all points that more digits settle, or TooCostly if there are too few."""
        costly: list[TooCostly] = []
        usable = 0
        for point in self.points():
            try:
                sides = self.at(point, decimal_log=decimal_log)
            except Unsettled:
                continue
            except TooCostly as error:
                costly.append(error)
                if len(costly) == _MOST_COSTLY:
                    break
                continue
            usable += 1
            yield point, *sides
        if costly and usable < FEWEST_POINTS:
            raise costly[0]

    def counts(self, side: Outcome | None) -> bool:
        """True for a value that says something: a real one, if nothing in the pair is complex."""
        return side is not None and (side.real or self.has_i or not self.symbols)

    def alike(self, answer: Outcome | None, gold: Outcome | None) -> _Alike:
        if answer is not None and gold is not None:
            mp = context(max(answer.digits, gold.digits))
            if close(mp, answer.value, gold.value, _EQUAL):
                return _Alike.EQUAL
        if not self.symbols:
            return _Alike.DIFFERENT
        if not self.counts(gold):
            return _Alike.SKIPPED
        return _Alike.DIFFERENT if self.counts(answer) else _Alike.NARROWER

    def verdict(self, *, decimal_log: bool) -> bool | None:
        seen: list[_Alike] = []
        num_positive, sign_matters = 0, False
        for point, answer, gold in self.values(decimal_log=decimal_log):
            seen.append(self.alike(answer, gold))
            is_positive = all(value > 0 for value in point.values())
            if seen[-1] is _Alike.DIFFERENT:
                if is_positive or not self.is_piecewise:
                    return False
                sign_matters = True
            num_positive += is_positive and seen[-1] is _Alike.EQUAL
            if not self.is_piecewise and seen.count(_Alike.EQUAL) == NUM_POINTS:
                break
        if sign_matters and not (self.are_quantities() and num_positive >= FEWEST_POINTS):
            return False
        enough = seen.count(_Alike.EQUAL) >= (FEWEST_POINTS if self.symbols else 1)
        if not enough or (self.minds_domain and _Alike.NARROWER in seen):
            return None
        return True

    def are_quantities(self) -> bool:
        r"""True where the symbols under roots are by custom positive: \rho, r_0, G, m.

        Then the root of r_0 squared is r_0; the root of x squared is not x.
        """
        under_roots = {
            name
            for tree in (self.answer, self.gold)
            for node, _ in walk(tree)
            if (radicand := _radicand(node)) is not None
            for name in symbols_of(radicand)
        }
        return bool(under_roots) and not self.minds_domain and all(map(_is_quantity, under_roots))

    def ratio(self, *, decimal_log: bool) -> Fraction | None:
        ratios: list[Value] = []
        for _, answer, gold in self.values(decimal_log=decimal_log) if self.symbols else ():
            if gold is None or not self.counts(gold):
                continue
            if answer is None or not self.counts(answer):
                if self.minds_domain:
                    return None
                continue
            if answer.value == 0 or gold.value == 0:
                if answer.value != gold.value:
                    return None
                continue
            mp = context(max(answer.digits, gold.digits))
            ratios.append(divide(mp, answer.value, gold.value))
            if not is_real(mp, ratios[-1]) or not close(mp, ratios[0], ratios[-1], _EQUAL):
                return None
            if len(ratios) == NUM_POINTS:
                break
        return _as_rational(ratios[0]) if len(ratios) >= FEWEST_POINTS else None

    def agrees_at_integers(self) -> bool:
        """True where symbols with names of integers make both sides equal by being integers."""
        if not self.is_periodic or not any(name[0] in INTEGER_NAMES for name in self.symbols):
            return False
        try:
            return all(
                self.alike(*self.at(point, decimal_log=False)) is _Alike.EQUAL
                for point in integer_points(self.symbols, _NUM_INTEGER_POINTS)
            )
        except (TooCostly, Unsettled):
            return False


def _radicand(node: Node) -> Node | None:
    """What a fractional power with symbols is taken of: there it has more than one branch."""
    if isinstance(node, Call) and node.function in ("sqrt", "root"):
        radicand = node.arguments[0]
    elif isinstance(node, Power) and _is_fraction(node.exponent):
        radicand = node.base
    else:
        return None
    return radicand if symbols_of(radicand) else None


def _is_fraction(exponent: Node) -> bool:
    if isinstance(exponent, Number):
        return exponent.value.denominator != 1
    return isinstance(exponent, Quotient) and not symbols_of(exponent)


def _is_quantity(name: str) -> bool:
    return len(name) > 1 or name.isupper() or name in _QUANTITIES


def _derived(answer: Node, gold: Node) -> dict[str, tuple[str, ...]]:
    """The parts, in the names of `gold`, of names of `answer` that are products or constants."""
    names, others = symbols_of(answer), symbols_of(gold)
    found: dict[str, tuple[str, ...]] = {}
    for name in names - others:
        if len(name) > 1 and name.isupper() and others.issuperset(name):
            found[name] = tuple(name)
        elif name[0] == "C" and f"c{name[1:]}" in others - names and _is_added(name, answer):
            found[name] = (f"c{name[1:]}",)
    return found


def _is_added(name: str, tree: Node) -> bool:
    """True for a constant of integration: an index of its own, or a term of the whole sum."""
    if len(name) > 1:
        return True
    return isinstance(tree, Sum) and Symbol(name) in tree.terms


def _as_rational(value: Value) -> Fraction:
    if isinstance(value, Fraction):
        return value
    sign, mantissa, exponent, _ = value._mpf_
    size: Fraction = Fraction(mantissa) * Fraction(2) ** exponent
    return -size if sign else size
