"""Two answers that have been read: the same, not the same, or no telling; and why.

Numbers, words and the shape of a structure are settled by rules. Where two formulas meet, a
`Formulas` is asked, which evaluates them; without one, in the caller's process, the pair stays
open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from workings.grading.policy import Tier
from workings.grading.reading.answers import Answer, Expression, Relation, as_expression, kind_of
from workings.grading.reading.number import Number, unit_factor
from workings.grading.reading.read import read_answer
from workings.grading.reading.relations import is_constant, name_in
from workings.grading.rules.outcome import Formulas, Outcome
from workings.grading.rules.structure import (
    assignments,
    cases,
    collections,
    conditions,
    families,
    matrices,
    names,
    regions,
)
from workings.grading.rules.values import (
    choices,
    plain_numbers,
    residues,
    short_forms,
    units_differ,
    words,
)
from workings.grading.text.normalise import compact

_SECOND_NAME = re.compile(r"[\d)}]\s+[a-zA-Z]$")
_RULES = (
    conditions, families, names, choices, plain_numbers, assignments, regions, collections,
    residues, short_forms, matrices, cases, words,
)  # fmt: skip
"""In the order in which they are asked; the first that applies settles the pair."""


class Comparison:
    """Compares answers with one another.

    Args:
        formulas: what evaluates formulas; None leaves pairs of formulas open.
        only: tiers that may decide.
    """

    def __init__(self, formulas: Formulas | None, only: Sequence[Tier]) -> None:
        self._formulas = formulas
        self._only = frozenset(only)

    def __call__(self, answer: Answer, gold: Answer) -> Outcome:
        """Whether `answer` is `gold`."""
        for rule in _RULES:
            outcome = rule(answer, gold, self)
            if outcome is not None:
                return outcome
        return self._formula(answer, gold)

    def allows(self, tier: Tier) -> bool:
        """True where `tier` may decide."""
        return tier in self._only

    def _formula(self, answer: Answer, gold: Answer) -> Outcome:
        if isinstance(answer, Relation) and isinstance(gold, Relation):
            return self.relations(answer, gold)
        if isinstance(answer, Relation) or isinstance(gold, Relation):
            return self._relation_and_value(answer, gold)
        left, right = as_expression(answer), as_expression(gold)
        if left is None or right is None:
            return Outcome(False, "structure", f"{kind_of(answer)} is not {kind_of(gold)}")
        return self._expressions(left, right, answer, gold)

    def relations(self, answer: Relation, gold: Relation) -> Outcome:
        """Whether two equations or inequalities are one."""
        if [compact(side) for side in answer.sides] == [compact(side) for side in gold.sides]:
            if answer.operators == gold.operators:
                return Outcome(True, "structure", "the same relation")
            return Outcome(False, "structure", "the relations differ in their signs")
        if len(answer.operators) != len(gold.operators):
            return Outcome(None, "structure", "relations of other lengths")
        if sorted(answer.operators) != sorted(gold.operators):
            return Outcome(False, "structure", "the relations differ in their signs")
        if self._formulas is None or not self.allows("expression"):
            return _open("equations have to be evaluated", self._formulas is None)
        same = self._formulas.same_relation(answer, gold)
        return Outcome(same, "expression", _EQUATION_REASON[same])

    def _relation_and_value(self, answer: Answer, gold: Answer) -> Outcome:
        """An equation equals no number that merely occurs in it; a chain of equal values does."""
        if isinstance(answer, Relation) and _is_computation(answer):
            return self._chain(answer, [read_answer(side) for side in answer.sides], gold)
        if isinstance(gold, Relation) and _is_computation(gold):
            return self(answer, read_answer(gold.sides[-1]))
        return Outcome(False, "structure", f"{kind_of(answer)} is not {kind_of(gold)}")

    def _chain(self, chain: Relation, sides: Sequence[Answer], gold: Answer) -> Outcome:
        """`6/2 = 3` against 3: the last exact side counts, and the others must agree with it."""
        signs = ("=", *chain.operators)
        exact = [
            (side, text)
            for side, text, sign in zip(sides, chain.sides, signs, strict=True)
            if sign == "="
        ]
        last, others = exact[-1][0], exact[:-1]
        if "~" in chain.operators and not _is_rounding(sides[-1], last):
            return Outcome(False, "number", "the sides of the equation disagree")
        result = self(last, gold)
        if result.same is not True and len(exact) < len(sides) and _is_decimal(gold):
            result = self(sides[-1], gold)
        if result.same is not True:
            return result
        for other, text in others:
            if not is_constant(text) and (is_constant(exact[-1][1]) or text == exact[0][1]):
                continue  # a name, or the formula that the values were put into
            agreed = self(other, last)
            if agreed.same is not True:
                if agreed.same is False:
                    return Outcome(False, agreed.tier, "the sides of the equation disagree")
                return agreed
        return result

    def _expressions(
        self, left: Expression, right: Expression, answer: Answer, gold: Answer
    ) -> Outcome:
        if (
            left.text.isupper()
            and right.text.isupper()
            and left.text.isalpha()
            and len(left.text) > 1
        ):
            same = left.text == right.text
            return Outcome(same, "structure", "the same name" if same else "other names")
        left, right = _in_radians(left, right), _in_radians(right, left)
        factor = unit_factor(left.unit, right.unit)
        if factor is None:
            return units_differ(left.unit, right.unit)
        if factor == 1 and left.percent == right.percent and _alike(left.text, right.text):
            return Outcome(True, "string", "the same text")
        if self._formulas is None or not self.allows("expression"):
            return _open("formulas have to be evaluated", self._formulas is None)
        scales = [factor]
        if left.percent != right.percent:
            scales.append(factor / 100 if left.percent else factor * 100)
        outcomes = [
            self._formulas.same_value(_scaled(left.text, scale), right.text) for scale in scales
        ]
        if True in outcomes:
            return Outcome(True, "expression", _VALUE_REASON[True])
        if _rounds_to(answer, gold, self._formulas):
            return Outcome(True, "expression", "equal to the precision that is written")
        unsettled = None if None in outcomes else False
        return Outcome(unsettled, "expression", _VALUE_REASON[unsettled])


_VALUE_REASON = {
    True: "the formulas have the same value",
    False: "the formulas have different values",
    None: "the formulas cannot be evaluated",
}
_EQUATION_REASON = {
    True: "the same relation, moved around or scaled",
    False: "the relations are not multiples of one another",
    None: "the relations cannot be evaluated",
}


def _is_rounding(rounded: Answer, exact: Answer) -> bool:
    """False where two numbers are said to be nearly equal and are not."""
    if not (isinstance(rounded, Number) and isinstance(exact, Number)):
        return True
    return 2 * abs(rounded.value - exact.value) <= Fraction(1, 10**rounded.places) and (
        rounded.kind == "decimal" or rounded.value == exact.value
    )


def _is_computation(relation: Relation) -> bool:
    """True for "6/2 = 3", "S = ab = 12" and "lim f(x) = 3": values that are said to be equal."""
    first = relation.sides[0]
    if not set(relation.operators) <= {"=", "~"}:
        return False
    if is_constant(first) or first.startswith(("\\lim", "\\int", "\\sum", "\\prod")):
        return True
    if len(relation.sides) < 3 or name_in(first) is None:
        return False
    return not any(first in side or _SECOND_NAME.search(side) for side in relation.sides[1:])


def _rounds_to(answer: Answer, gold: Answer, formulas: Formulas) -> bool:
    """A decimal gold takes an exact value that rounds to it; an exact gold six correct digits."""
    if isinstance(gold, Number) and isinstance(answer, Expression):
        formula, decimal, is_precise = answer, gold, gold.places >= 2
    elif isinstance(answer, Number) and isinstance(gold, Expression):
        formula, decimal, is_precise = gold, answer, answer.digits >= 6
    else:
        return False
    if decimal.kind != "decimal" or not is_precise:
        return False
    half_unit = Fraction(1, 2 * 10**decimal.places)
    return formulas.close_to(formula.text, decimal.value, half_unit) is True


def _in_radians(angle: Expression, other: Expression) -> Expression:
    r"""Degrees as radians where the other side is in radians, said or by its \pi."""
    if angle.unit is None or angle.unit.dimensions != (("angle", 1),):
        return angle
    is_radian = other.unit is not None and other.unit.dimensions == (("radian", 1),)
    if is_radian or (other.unit is None and r"\pi" in other.text):
        return Expression(rf"\frac{{\pi}}{{180}}({angle.text})", other.unit, angle.percent)
    return angle


def _scaled(text: str, factor: Fraction) -> str:
    if factor == 1:
        return text
    return rf"\frac{{{factor.numerator}}}{{{factor.denominator}}}({text})"


def _alike(text: str, other: str) -> bool:
    return compact(text) == compact(other)


def _open(reason: str, is_open: bool) -> Outcome:
    return Outcome(None, "expression", reason, is_open)


def _is_decimal(answer: Answer) -> bool:
    return isinstance(answer, Number) and answer.kind == "decimal"
