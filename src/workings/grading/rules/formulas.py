"""What `compare` asks about formulas, answered by evaluation. Imported in worker processes only."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from workings.grading.expression.compare import constant_ratio, real_value, same_value
from workings.grading.expression.parse import parse_expression
from workings.grading.expression.tree import Node, Unreadable, difference
from workings.grading.reading.answers import Relation
from workings.grading.reading.relations import is_constant
from workings.grading.rules.trust import stands_for_numbers


class EvaluatedFormulas:
    """Formulas read by our own parser and evaluated at points; raises `TooCostly` beyond bounds."""

    def same_value(self, answer: str, gold: str) -> bool | None:
        """Whether two formulas have one value wherever both are defined."""
        left, right = _parsed(answer), _parsed(gold)
        if left is None or right is None:
            return None
        same = same_value(left, right)
        if same is True and not (stands_for_numbers(answer) and stands_for_numbers(gold)):
            return None
        return same

    def same_relation(self, answer: Relation, gold: Relation) -> bool | None:
        """Whether each relation of the chain is a multiple of its partner, with its direction."""
        if all(is_constant(side) for side in (*answer.sides, *gold.sides)):
            return self._same_sides(answer, gold)
        if len(gold.sides) > 2 and set(gold.operators) == set(answer.operators) == {"="}:
            return self._same_members(answer, gold)
        unsure = False
        for place, operator in enumerate(gold.operators):
            if answer.operators[place] != operator:
                return False
            left, right = _moved(answer, place), _moved(gold, place)
            if left is None or right is None:
                unsure = True
                continue
            if not all(map(stands_for_numbers, (*answer.sides, *gold.sides))):
                unsure = True
                continue
            ratio = constant_ratio(left, right)
            if ratio is None or (operator in ("<", "<=") and ratio < 0):
                return False
        return None if unsure else True

    def _same_sides(self, answer: Relation, gold: Relation) -> bool | None:
        """Statements about numbers are the same where their sides are: any two true ones agree."""
        pairs = [tuple(zip(answer.sides, gold.sides, strict=True))]
        if set(gold.operators) == {"="}:
            pairs.append(tuple(zip(reversed(answer.sides), gold.sides, strict=True)))
        found = [{self.same_value(*pair) for pair in one} for one in pairs]
        if {True} in found:
            return True
        return None if all(None in values and False not in values for values in found) else False

    def _same_members(self, answer: Relation, gold: Relation) -> bool | None:
        """A = B = C says the same in any order."""
        table = [[self.same_value(one, other) for other in gold.sides] for one in answer.sides]
        if all(True in row for row in table) and all(
            True in column for column in zip(*table, strict=True)
        ):
            return True
        return None

    def close_to(self, formula: str, value: Fraction, half_unit: Fraction) -> bool | None:
        """Whether a constant formula lies within `half_unit` of `value`."""
        node = _parsed(formula)
        found = None if node is None else real_value(node)
        if found is None:
            return None
        return isinstance(found, Fraction) and abs(found - value) <= half_unit


def _moved(relation: Relation, place: int) -> Node | None:
    """The right side minus the left side."""
    left, right = _parsed(relation.sides[place]), _parsed(relation.sides[place + 1])
    return None if left is None or right is None else difference(right, left)


_INDEX = re.compile(r"_([A-Za-z0-9])(?=[A-Za-z])")
_MODULE = re.compile(r"(?<![a-zA-Z\\])(?:np|numpy|math|sympy|sp)\.(?=[a-z])")


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Node | None:
    try:
        return parse_expression(_INDEX.sub(r"_{\1} ", _MODULE.sub("", text)))
    except Unreadable:
        return None
