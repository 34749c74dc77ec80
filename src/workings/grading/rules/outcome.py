"""What a comparison of two answers finds, and who can be asked for more."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from workings.grading.policy import Tier
from workings.grading.reading.answers import Answer, Relation


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a comparison found.

    Attributes:
        same: None where it could not tell.
        tier: the tier that settled it.
        reason: why, as a sentence without its full stop.
        is_open: True where a formula would have to be evaluated to tell more.
    """

    same: bool | None
    tier: Tier
    reason: str
    is_open: bool = False


class Comparer(Protocol):
    """Compares two answers, or two relations, by all rules."""

    def __call__(self, answer: Answer, gold: Answer) -> Outcome:
        """Whether `answer` is `gold`."""
        ...

    def relations(self, answer: Relation, gold: Relation) -> Outcome:
        """Whether two equations or inequalities are one."""
        ...


class Formulas(Protocol):
    """What can be asked about formulas, as LaTeX; None is "cannot tell"."""

    def same_value(self, answer: str, gold: str) -> bool | None:
        """Whether they have one value wherever both are defined."""
        ...

    def same_relation(self, answer: Relation, gold: Relation) -> bool | None:
        """Whether one is the other, moved around or scaled."""
        ...

    def close_to(self, formula: str, value: Fraction, half_unit: Fraction) -> bool | None:
        """Whether a constant lies within `half_unit` of `value`."""
        ...
