"""Rules for answers with parts: families, names, assignments, regions, collections, matrices.

A rule gives None where it does not apply, and the next one is asked. Parts are compared by
`compare`, which asks all rules again.
"""

from __future__ import annotations

import re
from dataclasses import replace

from workings.grading.reading.answers import (
    Answer,
    Assignments,
    Cases,
    Choice,
    Collection,
    Complement,
    Conditioned,
    Expression,
    Family,
    Infinity,
    Interval,
    Matrix,
    Meaning,
    Named,
    Region,
    Relation,
    as_expression,
    kind_of,
)
from workings.grading.reading.number import Number
from workings.grading.reading.read import read_answer
from workings.grading.reading.regions import region_of, spans, without
from workings.grading.rules.heads import with_arguments_of
from workings.grading.rules.matching import Compare, in_order, unordered
from workings.grading.rules.outcome import Comparer, Outcome

_DISTRIBUTIONS = frozenset(["N", "U"])
_PARAMETER = re.compile(r"(?<![a-zA-Z\\])k(?![a-z])")
_OTHER_COUNTS = tuple(
    f"({sign}k{shift:+d})"
    for sign in ("", "-")
    for shift in (-2, -1, 0, 1, 2)
    if (sign, shift) != ("", 0)
)


def families(answer: Answer, gold: Answer, compare: Comparer) -> Outcome | None:
    """Values for every integer k; counting them from elsewhere or backwards changes nothing."""
    if not isinstance(answer, Family) and not isinstance(gold, Family):
        return None
    left = answer.answer if isinstance(answer, Family) else answer
    right = gold.answer if isinstance(gold, Family) else gold
    left = left.answer if isinstance(left, Named) else left
    right = right.answer if isinstance(right, Named) else right
    lists = [
        side.items if isinstance(side, Collection) and not side.is_ordered else (side,)
        for side in (left, right)
    ]

    def shifted(one: Answer, other: Answer) -> Outcome:
        outcome = compare(one, other)
        if outcome.same is not False or not isinstance(one, Expression):
            return outcome
        for letter in _OTHER_COUNTS:
            moved = replace(one, text=_PARAMETER.sub(letter, one.text))
            if compare(moved, other).same is True:
                return Outcome(True, "expression", "the same values for all integers")
        return outcome

    return unordered(lists[0], lists[1], shifted)


def conditions(answer: Answer, gold: Answer, compare: Comparer) -> Outcome | None:
    """A condition on one side is not missed; where both have one they must agree."""
    if not isinstance(answer, Conditioned) and not isinstance(gold, Conditioned):
        return None
    if isinstance(answer, Family) or isinstance(gold, Family):
        return Outcome(None, "structure", "values for integers beside values under a condition")
    left = answer if isinstance(answer, Conditioned) else Conditioned(answer, None)
    right = gold if isinstance(gold, Conditioned) else Conditioned(gold, None)
    outcome = compare(left.answer, right.answer)
    if outcome.same is not True or left.condition is None:
        return outcome
    if right.condition is None:
        if _is_mild(left.condition):
            return outcome
        return Outcome(None, "structure", "a condition that the gold does not have")
    same = compare(left.condition, right.condition)
    if same.same is False:
        return replace(same, reason=f"under other conditions: {same.reason}")
    return outcome if same.same else same


def names(answer: Answer, gold: Answer, compare: Comparer) -> Outcome | None:
    """Answers with a name in front: two names must agree, one alone is dropped."""
    if {type(answer), type(gold)} == {Named, Assignments}:
        left, right = _indexed_values(answer), _indexed_values(gold)
        if left is not None and right is not None and left[0] == right[0]:
            return unordered(left[1], right[1], compare)
        return Outcome(False, "structure", "a value of one name is not values of several")
    if isinstance(answer, Named) and isinstance(gold, Named):
        renamed = with_arguments_of(answer, gold)
        if renamed is not None:
            return compare(read_answer(renamed), gold.answer)
        if answer.name == gold.name:
            return compare(answer.answer, gold.answer)
        if _both_are_graphs(answer, gold):
            return compare(answer.answer, gold.answer)
        if _is_equation(answer) and _is_equation(gold):
            return compare.relations(answer.relation, gold.relation)
        return Outcome(False, "structure", f"the names differ: {answer.name} and {gold.name}")
    if isinstance(answer, Named):
        binomial = _as_binomial(answer)
        if binomial is not None and isinstance(gold, (Expression, Number)):
            return compare(binomial, gold)
        if isinstance(gold, (Collection, Complement)) and answer.name in _DISTRIBUTIONS:
            return Outcome(None, "structure", "a distribution is not a tuple")
        if isinstance(gold, Relation) and not isinstance(answer.answer, Region):
            return compare.relations(answer.relation, gold)
        return compare(answer.answer, gold)
    if isinstance(gold, Named):
        binomial = _as_binomial(gold)
        if binomial is not None and isinstance(answer, (Expression, Number)):
            return compare(answer, binomial)
        if isinstance(answer, (Collection, Complement)) and gold.name in _DISTRIBUTIONS:
            return Outcome(None, "structure", "a distribution is not a tuple")
        if isinstance(answer, Relation):
            if _is_equation(gold) and gold.relation.operators == answer.operators:
                return compare.relations(answer, gold.relation)
            if set(answer.operators) <= {"=", "~"} and len(answer.sides) > 2:
                return compare(answer, gold.answer)
            return compare.relations(answer, gold.relation)
        return compare(answer, gold.answer)
    return None


def assignments(answer: Answer, gold: Answer, compare: Comparer) -> Outcome | None:
    """Values of several names, beside others and beside tuples."""
    if isinstance(answer, Assignments) and isinstance(gold, Assignments):
        if set(answer.names) != set(gold.names):
            return Outcome(False, "structure", "values of other names")
        places = [answer.names.index(name) for name in gold.names]
        return in_order([answer.values[place] for place in places], gold.values, compare)
    if any(
        isinstance(one, Collection) and any(isinstance(item, Named) for item in one.items)
        for one in (answer, gold)
    ) and any(isinstance(one, Assignments) for one in (answer, gold)):
        return Outcome(False, "structure", "values of other names")
    if isinstance(answer, Assignments) and isinstance(gold, Collection):
        match = unordered if _are_points(answer) and not gold.is_ordered else in_order
        return match(answer.values, gold.items, compare)
    if isinstance(gold, Assignments) and isinstance(answer, Collection):
        match = unordered if _are_points(gold) and not answer.is_ordered else in_order
        return match(answer.items, gold.values, compare)
    if isinstance(answer, Assignments) or isinstance(gold, Assignments):
        return Outcome(False, "structure", f"{kind_of(answer)} is not {kind_of(gold)}")
    return None


def regions(answer: Answer, gold: Answer, compare: Comparer) -> Outcome | None:
    """Parts of the real line, however they are written."""
    kinds = (Interval, Region, Complement)
    if isinstance(answer, Meaning) and isinstance(gold, Meaning):
        return None
    if not any(isinstance(side, kinds) or _is_line(side) for side in (answer, gold)):
        return None
    left, right = region_of(answer), region_of(gold)
    if left is None or right is None:
        if isinstance(answer, Relation) or isinstance(gold, Relation):
            return Outcome(None, "structure", "a relation beside a part of the line")
        return Outcome(False, "structure", f"{kind_of(answer)} is not {kind_of(gold)}")
    if isinstance(left, Complement) and isinstance(right, Complement):
        return unordered(left.points, right.points, compare)
    if isinstance(left, Complement):
        left = without(left)
    if isinstance(right, Complement):
        right = without(right)
    if left is None or right is None:
        return Outcome(None, "structure", "the ends cannot be put in order", is_open=False)
    spans_left, spans_right = spans(left), spans(right)
    if spans_left is not None and spans_right is not None:
        same = spans_left == spans_right
        return Outcome(
            same, "structure", "the same part of the line" if same else "other parts of the line"
        )
    return unordered(left.parts, right.parts, _parts_with(compare))


def collections(answer: Answer, gold: Answer, compare: Comparer) -> Outcome | None:
    """Lists, sets, tuples and vectors."""
    if isinstance(answer, Matrix) and isinstance(gold, Collection):
        answer = _as_vector(answer) or answer
    if isinstance(gold, Matrix) and isinstance(answer, Collection):
        gold = _as_vector(gold) or gold
    if not isinstance(answer, Collection) and not isinstance(gold, Collection):
        return None
    if not isinstance(answer, Collection) or not isinstance(gold, Collection):
        return Outcome(False, "structure", f"{kind_of(answer)} is not {kind_of(gold)}")
    if len(answer.items) != len(gold.items):
        return Outcome(
            False, "structure", f"{len(answer.items)} items, where {len(gold.items)} are expected"
        )
    if answer.is_ordered and gold.is_ordered:
        return in_order(answer.items, gold.items, compare)
    if answer.is_ordered or gold.is_ordered:
        if "{}" in (answer.brackets, gold.brackets):
            return Outcome(False, "structure", "a set is not a tuple")
        return in_order(answer.items, gold.items, compare)
    return unordered(answer.items, gold.items, compare)


def matrices(answer: Answer, gold: Answer, compare: Comparer) -> Outcome | None:
    """Matrices, entry by entry, their factors multiplied in."""
    if not isinstance(answer, Matrix) and not isinstance(gold, Matrix):
        return None
    if not isinstance(answer, Matrix) or not isinstance(gold, Matrix):
        if isinstance(answer, Expression) or isinstance(gold, Expression):
            return Outcome(None, "structure", "a matrix beside a formula")
        return Outcome(False, "structure", f"{kind_of(answer)} is not {kind_of(gold)}")
    left, right = _multiplied(answer), _multiplied(gold)
    shapes = [(len(rows), len(rows[0])) for rows in (left, right)]
    if shapes[0] != shapes[1]:
        return Outcome(False, "structure", "matrices of other shapes")
    flat = [[entry for row in rows for entry in row] for rows in (left, right)]
    return in_order(flat[0], flat[1], compare)


def cases(answer: Answer, gold: Answer, compare: Comparer) -> Outcome | None:
    """Definitions by cases, in any order."""
    if not (isinstance(answer, Cases) and isinstance(gold, Cases)):
        return None
    if len(answer.rows) != len(gold.rows) or {len(r) for r in answer.rows} != {
        len(r) for r in gold.rows
    }:
        return Outcome(False, "structure", "another number of cases")
    rows = [
        tuple(Collection(tuple(read_answer(cell) for cell in row), "()") for row in cases.rows)
        for cases in (answer, gold)
    ]
    return unordered(rows[0], rows[1], compare)


def _parts_with(compare: Comparer) -> Compare:
    """Compares the parts of a region: intervals end by end, points as numbers."""

    def parts(answer: Answer, gold: Answer) -> Outcome:
        if isinstance(answer, Interval) and isinstance(gold, Interval):
            ends = ((answer.low, gold.low, answer.has_low, gold.has_low),
                    (answer.high, gold.high, answer.has_high, gold.has_high))  # fmt: skip
            for left, right, has_left, has_right in ends:
                infinite = isinstance(left, Infinity) and isinstance(right, Infinity)
                if has_left != has_right and not infinite:
                    return Outcome(False, "structure", "one end is open and the other closed")
            return in_order((answer.low, answer.high), (gold.low, gold.high), compare)
        if isinstance(answer, Interval) or isinstance(gold, Interval):
            return Outcome(False, "structure", "an interval is not a point")
        return compare(answer, gold)

    return parts


def _as_binomial(answer: Named) -> Expression | None:
    """C(n, k), which reads as a point named C."""
    values = answer.answer
    if answer.name != "C" or not isinstance(values, Collection) or len(values.items) != 2:
        return None
    pair = [as_expression(item) for item in values.items]
    texts = [one.text for one in pair if one is not None]
    return Expression(rf"\binom{{{texts[0]}}}{{{texts[1]}}}") if len(texts) == 2 else None


def _is_mild(condition: Answer) -> bool:
    """True for "x in R", "n >= 1" and "x != 1": where a formula is meant to hold anyway."""
    inner = condition.answer if isinstance(condition, Named) else condition
    if isinstance(inner, Region) and len(inner.parts) == 1:
        piece = inner.parts[0]
        return (
            isinstance(piece, Interval)
            and isinstance(piece.high, Infinity)
            and piece.has_low
            and isinstance(piece.low, Number)
            and piece.low.value in (0, 1)
        )
    return isinstance(inner, (Complement, Meaning, Expression))


def _both_are_graphs(answer: Named, gold: Named) -> bool:
    """True for "y = ..." beside "f(x) = ...", which say the same of a curve."""
    sides = [(one.name, one.relation.sides[0]) for one in (answer, gold)]
    return any(
        name == "y" and other.endswith(")") and not other.startswith("(")
        for (name, _), (_, other) in (sides, reversed(sides))
    )


def _indexed_values(answer: Answer) -> tuple[str, tuple[Answer, ...]] | None:
    """(x, values) of "x = 2, 3" and of "x_1 = 2, x_2 = 3"."""
    if isinstance(answer, Named) and isinstance(answer.answer, Collection):
        return answer.name, answer.answer.items
    if isinstance(answer, Assignments) and all("_" in name for name in answer.names):
        bases = {name.partition("_")[0] for name in answer.names}
        return (bases.pop(), answer.values) if len(bases) == 1 else None
    return None


def _are_points(assignments: Assignments) -> bool:
    """True for "A(1,2), B(3,4)" and "x_1 = 2, x_2 = 3": their order says no more than a list's."""
    bases = {name.partition("_")[0] for name in assignments.names}
    are_indexed = all("_" in name for name in assignments.names) and len(bases) == 1
    return are_indexed or all(isinstance(value, Collection) for value in assignments.values)


def _is_equation(named: Named) -> bool:
    return isinstance(named.answer, (Number, Expression, Choice))


def _is_line(answer: Answer) -> bool:
    return isinstance(answer, Meaning) and answer.phrase in ("everything", "nothing")


def _as_vector(matrix: Matrix) -> Collection | None:
    if matrix.factor is not None:
        return None
    if len(matrix.rows) == 1:
        return Collection(matrix.rows[0], "()")
    if all(len(row) == 1 for row in matrix.rows):
        return Collection(tuple(row[0] for row in matrix.rows), "()")
    return None


def _multiplied(matrix: Matrix) -> tuple[tuple[Answer, ...], ...]:
    """The rows with the factor in front multiplied into them."""
    factor = matrix.factor
    if factor is None:
        return matrix.rows
    return tuple(tuple(_times_factor(factor, entry) for entry in row) for row in matrix.rows)


def _times_factor(factor: Answer, entry: Answer) -> Answer:
    if isinstance(factor, Number) and isinstance(entry, Number):
        return Number(value=factor.value * entry.value, kind="exact")
    left, right = as_expression(factor), as_expression(entry)
    if left is None or right is None:
        return entry
    return Expression(f"({left.text})({right.text})")
