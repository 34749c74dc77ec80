"""The equality of the r1_zero and question_only rewards: strict on form, exact in arithmetic.

Integers and fractions must be written as such (2/4 is not 1/2, 2^{10} is not 1024), tuples are
compared element by element in order, decimals and fractions as exact rationals. What remains is
two expressions, and only those go to a grader's worker processes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from workings.grading.cache import remembered
from workings.grading.grader import Grader, shared_grader
from workings.grading.reading.number import Number, read_number, same_number, unit_factor
from workings.grading.text.braces import encloses, split_list
from workings.grading.text.extraction import extract_answer
from workings.grading.text.normalise import canonical, normalise, without_name
from workings.types import Grade, Verdict

Equality = Callable[[Sequence[str | None], Sequence[str]], list[Grade]]
"""Answers and golds in, one grade each out."""

MAX_LENGTH = 4096
"""Longer texts are compared as they stand."""
MAX_EXPRESSION_LENGTH = 300
MAX_UNKNOWNS = 4

_UNIT = re.compile(r"(?P<body>.*\S)\s*\\text\{(?P<unit>[^{}]*)\}(?P<power>\^\{?\d\}?)?", re.DOTALL)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_DROPPED_SIGNS = re.compile(r"\\\$|%|\^\s*\{?\s*\\circ\s*\}?")
_FRACTION = re.compile(
    r"(?P<sign>-?)(?:\\frac\{(?P<num>-?\d{1,400})\}\{(?P<den>-?\d{1,400})\}"
    r"|(?P<num2>\d{1,400})/(?P<den2>-?\d{1,400}))"
)
_MACRO = re.compile(r"\\[a-zA-Z]+")
_WORD = re.compile(r"[A-Za-z]{3,}")
_OPERATOR = re.compile(r"[\d\\+\-*/^=<>|]")
_MARKS = ("answer is", "answer:", "####")


def strict_equality(*, fast: bool, grader: Grader | None = None) -> Equality:
    """The equality of the strict rewards; `fast=False` adds what the grader can prove.

    `grader` is asked about pairs of expressions; by default the shared one, started on first need.
    """

    def compare(answers: Sequence[str | None], golds: Sequence[str]) -> list[Grade]:
        grades: dict[tuple[str | None, str], Grade] = {}
        asked: dict[tuple[str | None, str], tuple[str, str]] = {}
        pairs = list(zip(answers, golds, strict=True))
        for pair in dict.fromkeys(pairs):
            answer, gold = pair
            if answer is None or not answer.strip():
                grades[pair] = Grade(verdict=Verdict.NO_ANSWER)
                continue
            decided = _decide(answer, gold) if fast else _decide_slowly(answer, gold)
            if isinstance(decided, Grade):
                grades[pair] = decided
            else:
                asked[pair] = decided
        if asked:
            judge = grader or shared_grader()
            verdicts = judge.compare_batch(*zip(*asked.values(), strict=True))
            grades |= dict(zip(asked, verdicts, strict=True))
        return [grades[pair] for pair in pairs]

    return compare


def same_form(answer: str, gold: str) -> bool | None:
    """True or False where form and exact arithmetic decide; None for two expressions.

    >>> same_form("0.5", "1/2"), same_form("2/4", "1/2"), same_form("1,000", "1000")
    (True, False, True)
    >>> same_form("(1,0.5)", r"(1,\\frac12)"), same_form("(c)", "(d)"), same_form("[1,2]", "(1,2)")
    (True, False, False)
    >>> same_form(r"\\sqrt{12}", r"2\\sqrt{3}") is None
    True
    """
    if max(len(answer), len(gold)) > MAX_LENGTH:
        return answer.strip() == gold.strip()
    parts = _without_lone_unit(normalise(answer), normalise(gold))
    if parts is None:
        return False
    return _same_form(*map(strict_form, parts))


@remembered
def strict_form(text: str) -> str:
    """`text` as it is compared: no spaces, no `$`, `%` or degree sign, no thousands marks, no name.

    >>> strict_form("\\\\$1,234"), strict_form("x = 5")
    ('1234', '5')
    """
    text = _DROPPED_SIGNS.sub("", canonical(text))
    _, text = without_name(text)
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


def _decide(answer: str, gold: str) -> Grade | tuple[str, str]:
    """The grade, or the pair to ask the grader about."""
    same = same_form(answer, gold)
    if same is None:
        return answer, gold
    return Grade(
        verdict=Verdict.EQUAL if same else Verdict.DIFFERENT, tier="string", extracted=answer
    )


def _decide_slowly(answer: str, gold: str) -> Grade | tuple[str, str]:
    """As `_decide`, but what is not the same in form may still be equal.

    Prose around an answer is cut ("The answer is 5"), and numbers count by value. A unit on one
    side only is not overlooked here, unlike by the grader itself.
    """
    if same_form(answer, gold):
        return Grade(verdict=Verdict.EQUAL, tier="string", extracted=answer)
    answer, gold = _without_prose(answer), _without_prose(gold)
    if max(len(answer), len(gold)) > MAX_LENGTH:
        return answer, gold
    left, right = _number(answer), _number(gold)
    if left is not None and right is not None:
        same = (left.unit is None) == (right.unit is None) and same_number(left, right)
        return Grade(
            verdict=Verdict.EQUAL if same else Verdict.DIFFERENT, tier="number", extracted=answer
        )
    return answer, gold


def _number(text: str) -> Number | None:
    return read_number(without_name(normalise(text))[1])


def _same_form(answer: str, gold: str) -> bool | None:
    if answer == gold:
        return True
    elements, gold_elements = _tuple_elements(answer), _tuple_elements(gold)
    if elements or gold_elements:
        return _same_elements(elements, gold_elements)
    if len(split_list(answer)) > 1 or len(split_list(gold)) > 1:
        return False
    left, right = read_number(answer), read_number(gold)
    if _is_integer(left) or _is_integer(right):
        return left is not None and right is not None and _same_integer(left, right)
    if left is not None and right is not None:
        if (left.unit is None) != (right.unit is None) or unit_factor(left.unit, right.unit) != 1:
            return False
        written, gold_written = _as_fraction(answer), _as_fraction(gold)
        if written and gold_written:
            return written == gold_written
        return left.value == right.value
    if any(number is not None and number.unit is not None for number in (left, right)):
        return False
    return None if _is_expression(answer) and _is_expression(gold) else False


def _same_elements(elements: list[str], gold_elements: list[str]) -> bool | None:
    """The verdict on two tuples, their brackets included as first and last element."""
    if len(elements) != len(gold_elements):
        return False
    verdicts = [_same_form(one, other) for one, other in zip(elements, gold_elements, strict=True)]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _tuple_elements(text: str) -> list[str]:
    """The brackets and elements of a tuple or interval of two or more; nothing for other texts.

    >>> _tuple_elements("(1,2]"), _tuple_elements("(1+2)(3+4)")
    (['(', '1', '2', ']'], [])
    """
    if len(text) < 5 or text[0] not in "([" or text[-1] not in ")]" or not encloses(text):
        return []
    elements = split_list(text[1:-1])
    return [text[0], *elements, text[-1]] if len(elements) > 1 else []


def _without_lone_unit(answer: str, gold: str) -> tuple[str, str] | None:
    r"""Both sides without a unit in `\text{...}`; None where both have one and they differ."""
    left, right = _UNIT.fullmatch(answer), _UNIT.fullmatch(gold)
    if left is not None and right is not None:
        same = left["unit"].split() == right["unit"].split() and left["power"] == right["power"]
        return (left["body"], right["body"]) if same else None
    return (left["body"] if left else answer), (right["body"] if right else gold)


def _without_prose(text: str) -> str:
    lowered = text.lower()
    if any(mark in lowered for mark in _MARKS):
        return extract_answer(text, "lenient") or text
    return text


def _is_integer(number: Number | None) -> bool:
    """True for a whole number, "18.0" included; not with a unit, nor written as a fraction."""
    if number is None or number.unit is not None or number.kind == "exact":
        return False
    return number.value.denominator == 1


def _same_integer(left: Number, right: Number) -> bool:
    return _is_integer(left) and _is_integer(right) and left.value == right.value


def _as_fraction(text: str) -> tuple[int, int] | None:
    r"""(numerator, denominator) of a fraction as it is written, the sign on top.

    >>> _as_fraction(r"-\frac{2}{4}"), _as_fraction("1/-2"), _as_fraction("0.5")
    ((-2, 4), (-1, 2), None)
    """
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    numerator = int(match["num"] or match["num2"])
    denominator = int(match["den"] or match["den2"])
    sign = -1 if (match["sign"] == "-") != (denominator < 0) else 1
    return sign * numerator, abs(denominator)


def _is_expression(text: str) -> bool:
    """True where a symbolic comparison may be of use: a formula of few unknowns, not words."""
    if len(text) > MAX_EXPRESSION_LENGTH or not _OPERATOR.search(text):
        return False
    letters = _MACRO.sub(" ", text)
    unknowns = {character for character in letters if character.isalpha()}
    return not _WORD.search(letters) and len(unknowns) <= MAX_UNKNOWNS
