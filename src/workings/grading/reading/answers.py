"""What an answer can be once it has been read; `reading` makes these, `compare` compares them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from workings.grading.reading.number import Number
from workings.grading.reading.units import Unit
from workings.grading.reading.words import Phrase

Operator = Literal["=", "<", "<=", "!=", "~"]
"""Relations are turned round so that none points to the left."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A formula without a relation or a comma at its top, as LaTeX; its unit and percent apart."""

    text: str
    unit: Unit | None = None
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Infinity:
    """Infinity with its sign."""

    sign: int


@dataclass(frozen=True, slots=True)
class Meaning:
    """A phrase with a fixed meaning: "no solution", "undefined", "infinitely many"."""

    phrase: Phrase


@dataclass(frozen=True, slots=True)
class Words:
    """Words, and the "yes" or "no" that they begin with."""

    spoken: str
    head: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One letter of a multiple choice.

    `is_marked` where it is written as one: "(B)", "B. 12"; `text` is that of the option, if given.
    """

    letter: str
    is_marked: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Based:
    """A numeral with its base, which is part of it."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """Numbers between colons; `is_time` where they may be hours and minutes: "5:45"."""

    parts: tuple[Fraction, ...]
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day with "am" or "pm", in seconds after midnight."""

    seconds: int


@dataclass(frozen=True, slots=True)
class Residues:
    """Classes of integers to one modulus, as they were written."""

    values: tuple[int, ...]
    modulus: int


@dataclass(frozen=True, slots=True)
class Collection:
    """Several answers; in order for parentheses, in any order for braces and bare lists.

    `brackets` is "()", "[]", "{}" or "" for a bare list.
    """

    items: tuple[Answer, ...]
    brackets: Literal["()", "[]", "{}", ""]

    @property
    def is_ordered(self) -> bool:
        """True where the order of the items counts."""
        return self.brackets in ("()", "[]")


@dataclass(frozen=True, slots=True)
class Interval:
    """A piece of the real line."""

    low: Answer
    high: Answer
    has_low: bool
    has_high: bool


@dataclass(frozen=True, slots=True)
class Region:
    """A union of intervals and points of the real line; no parts are the empty set."""

    parts: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Complement:
    """Every real number but these."""

    points: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain of equations or inequalities: `sides[i] operators[i] sides[i+1]`."""

    sides: tuple[str, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """An answer with a name in front: "x = 5", "f(x) = 2x", "area: 12"."""

    name: str
    answer: Answer
    relation: Relation


@dataclass(frozen=True, slots=True)
class Assignments:
    """Values of several names: "x = 1, y = 2" and "(x, y) = (1, 2)"."""

    names: tuple[str, ...]
    values: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of entries, times `factor` where one stands in front."""

    rows: tuple[tuple[Answer, ...], ...]
    factor: Answer | None = None


@dataclass(frozen=True, slots=True)
class Cases:
    """The rows of a definition by cases, each as it would be read alone."""

    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """An answer for every integer k: "x = pi/4 + k pi, k an integer"; its letter is always k."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Conditioned:
    """An answer and when it holds; `condition` is None where it says no more than "for all x"."""

    answer: Answer
    condition: Answer | None


Answer: TypeAlias = (
    Number
    | Expression
    | Infinity
    | Meaning
    | Words
    | Choice
    | Based
    | Ratio
    | Clock
    | Residues
    | Collection
    | Interval
    | Region
    | Complement
    | Relation
    | Named
    | Assignments
    | Matrix
    | Cases
    | Family
    | Conditioned
)


_KINDS: dict[type, str] = {
    Number: "a number", Expression: "a formula", Infinity: "infinity", Meaning: "a phrase",
    Words: "words", Choice: "a choice", Based: "a numeral in a base", Ratio: "a ratio",
    Clock: "a time of day",
    Residues: "a residue class", Collection: "a collection", Interval: "an interval",
    Region: "a part of the line", Complement: "a part of the line", Relation: "a relation",
    Named: "a named value", Assignments: "values of several names", Matrix: "a matrix",
    Cases: "a definition by cases", Family: "a family of values",
    Conditioned: "a value under a condition",
}  # fmt: skip


def kind_of(answer: Answer) -> str:
    """What `answer` is, in words.

    >>> kind_of(Ratio((Fraction(1), Fraction(2))))
    'a ratio'
    """
    if isinstance(answer, Meaning):
        return {"nothing": "no solution", "undefined": "undefined"}.get(answer.phrase, "a phrase")
    return _KINDS[type(answer)]


def as_expression(answer: Answer) -> Expression | None:
    """`answer` as a formula, None where it is none."""
    match answer:
        case Expression():
            return answer
        case Number(value=value, unit=unit, percent=percent):
            text = str(value.numerator)
            if value.denominator != 1:
                text = rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
            return Expression(text, unit, percent)
        case Infinity(sign=sign):
            return Expression("\\infty" if sign > 0 else "-\\infty")
        case Choice(letter=letter, is_marked=False):
            return Expression(letter)
    return None
