"""What an answer was read as, in words."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import chain

from workings.grading.reading.answers import (
    Answer,
    Assignments,
    Based,
    Cases,
    Choice,
    Clock,
    Collection,
    Complement,
    Expression,
    Family,
    Infinity,
    Interval,
    Matrix,
    Meaning,
    Named,
    Ratio,
    Region,
    Relation,
    Residues,
    Words,
)
from workings.grading.reading.number import Number
from workings.grading.reading.units import Unit

MOST_ITEMS = 20
LONGEST_NUMERAL = 60
_PHRASES = {
    "nothing": "no solution, the empty set",
    "undefined": "undefined",
    "everything": "all real numbers",
    "endless": "infinitely many",
}


def describe(answer: Answer) -> str:
    r"""`answer` in words; long lists and numerals are cut.

    >>> from workings.grading.gold import read
    >>> [describe(read(text).answer) for text in (r"\frac{1}{2}", r"7\text{ kg}", "[1,2)", "212_5")]
    ['1/2', '7, unit kg', 'from 1 (included) to 2 (left out)', '212 in base 5']
    """
    match answer:
        case Number():
            return _measured(_fraction(answer.value), answer.percent, answer.unit)
        case Expression():
            return _measured(answer.text, answer.percent, answer.unit)
        case Named(name=name, answer=inner):
            return f"{name}: {describe(inner)}"
        case Collection() | Matrix() | Cases() | Assignments():
            return _several(answer)
        case Interval() | Region() | Complement():
            return _part_of_the_line(answer)
        case Relation(sides=sides, operators=operators):
            return " ".join([sides[0], *chain(*zip(operators, sides[1:], strict=False))])
        case Family(answer=inner):
            return f"for every integer k: {describe(inner)}"
        case _:
            return _short(answer)


def _short(answer: Answer) -> str:
    match answer:
        case Infinity(sign=sign):
            return "infinity" if sign > 0 else "minus infinity"
        case Meaning(phrase=phrase):
            return _PHRASES[phrase]
        case Words(spoken=spoken):
            return spoken
        case Choice(letter=letter, text=text):
            return f"choice {letter}" + (f", {text}" if text else "")
        case Based(digits=digits, base=base):
            return f"{digits} in base {base}"
        case Ratio(parts=parts):
            return " : ".join(map(_fraction, parts))
        case Clock(seconds=seconds):
            return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        case Residues(values=values, modulus=modulus):
            return f"{_listed(map(str, values))} modulo {modulus}"
        case _:
            return str(answer)


def _several(answer: Collection | Matrix | Cases | Assignments) -> str:
    match answer:
        case Collection():
            order = "in order" if answer.is_ordered else "in any order"
            return f"{order}: {_listed(map(describe, answer.items))}"
        case Matrix(rows=rows, factor=factor):
            size = f"{len(rows)} by {len(rows[0]) if rows else 0}"
            text = _listed(", ".join(map(describe, row)) for row in rows)
            return f"{size}: {text}" + (f"; times {describe(factor)}" if factor else "")
        case Cases(rows=texts):
            return _listed(", ".join(row) for row in texts)
        case Assignments(names=names, values=values):
            pairs = zip(names, values, strict=False)
            return _listed(f"{name} = {describe(value)}" for name, value in pairs)


def _part_of_the_line(answer: Interval | Region | Complement) -> str:
    match answer:
        case Interval(low=low, high=high, has_low=has_low, has_high=has_high):
            ends = ("included" if has else "left out" for has in (has_low, has_high))
            return f"from {describe(low)} ({next(ends)}) to {describe(high)} ({next(ends)})"
        case Region(parts=parts):
            return _listed(map(describe, parts)) or "the empty set"
        case Complement(points=points):
            return f"all real numbers but {_listed(map(describe, points))}"


def _measured(value: str, percent: bool, unit: Unit | None) -> str:
    return (
        value
        + (" %" if percent else "")
        + (f", unit {unit.name.replace(' ^', '^')}" if unit else "")
    )


def _fraction(value: Fraction) -> str:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > 3 * LONGEST_NUMERAL:
        return f"a number of about 10^{_magnitude(value)}"
    return str(value)


def _magnitude(value: Fraction) -> int:
    bits = abs(value.numerator).bit_length() - value.denominator.bit_length()
    return round(bits * 0.30103)


def _listed(items: Iterable[str]) -> str:
    texts = list(items)
    more = [f"and {len(texts) - MOST_ITEMS} more"] if len(texts) > MOST_ITEMS else []
    return "; ".join([*texts[:MOST_ITEMS], *more])
