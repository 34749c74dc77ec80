"""Rules for answers without parts: numbers, choices, times, numerals in a base, phrases, words.

A rule gives None where it does not apply, and the next one is asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from workings.grading.reading.answers import (
    Answer,
    Based,
    Choice,
    Clock,
    Collection,
    Expression,
    Infinity,
    Meaning,
    Ratio,
    Relation,
    Residues,
    Words,
    kind_of,
)
from workings.grading.reading.number import Number, same_number, unit_factor
from workings.grading.reading.residues import read_residues_leniently
from workings.grading.reading.units import Unit
from workings.grading.rules.outcome import Comparer, Outcome

_ANGLES = {(("angle", 1),), (("radian", 1),)}
_SAYING = re.compile(r"(?:\w+ ){1,5}(?:is|are|was|were) (?:(?:an?|the) )?(?P<said>[^,;]+)")
_MATHEMATICS = re.compile(r"[\d=<>\\^]")


def choices(answer: Answer, gold: Answer, _: Comparer) -> Outcome | None:
    """Letters of a multiple choice, alone or several of them."""
    if isinstance(answer, Choice) and isinstance(gold, Choice):
        if answer.letter == gold.letter and answer.text and gold.text:
            same = answer.text == gold.text
            reason = "the same choice" if same else f"other texts of choice {gold.letter}"
            return Outcome(same, "structure", reason)
        if answer.letter == gold.letter:
            return Outcome(True, "structure", f"both are choice {gold.letter}")
        return Outcome(False, "structure", f"choice {answer.letter} is not {gold.letter}")
    left, right = _letters(answer), _letters(gold)
    if (
        left
        and right
        and len(left) > 1
        and len(right) > 1
        and not (_is_ranking(gold) and isinstance(answer, Expression))
    ):
        same = left == right
        return Outcome(same, "structure", "the same choices" if same else "other choices")
    return None


def plain_numbers(answer: Answer, gold: Answer, _: Comparer) -> Outcome | None:
    """Numbers, with their units; a ratio beside a fraction; base ten said or unsaid."""
    if isinstance(answer, Number) or isinstance(gold, Number):
        answer, gold = _without_base_ten(answer), _without_base_ten(gold)
    if isinstance(answer, Ratio) and isinstance(gold, Number):
        return _ratio_and_number(answer, gold)
    if isinstance(answer, Number) and isinstance(gold, Ratio):
        return _ratio_and_number(gold, answer)
    if not (isinstance(answer, Number) and isinstance(gold, Number)):
        return None
    if unit_factor(answer.unit, gold.unit) is None:
        if {answer.unit and answer.unit.dimensions, gold.unit and gold.unit.dimensions} == _ANGLES:
            return None  # degrees and radians: a matter of pi
        return units_differ(answer.unit, gold.unit)
    if (answer.percent and gold.unit) or (gold.percent and answer.unit):
        return Outcome(False, "number", "a percentage is not an amount of something")
    same = same_number(answer, gold)
    if same:
        return Outcome(True, "number", "the same number")
    return Outcome(False, "number", f"{_shown(answer)} is not {_shown(gold)}")


def _shown(number: Number) -> str:
    """The value with its mark, short enough for a sentence."""
    text = str(number.value)
    if len(text) > 40:
        text = f"{text[:18]}...{text[-18:]}"
    unit = f" {number.unit.name}" if number.unit else ""
    return f"{text}{' %' if number.percent else ''}{unit}"


def _ratio_and_number(ratio: Ratio, number: Number) -> Outcome:
    """1:2 is one half where that is written as a fraction."""
    if len(ratio.parts) != 2 or number.kind != "exact" or not ratio.parts[1]:
        return Outcome(False, "structure", "a ratio is not a number")
    same = ratio.parts[0] / ratio.parts[1] == number.value
    return Outcome(same, "number", "a ratio and a fraction")


def residues(answer: Answer, gold: Answer, _: Comparer) -> Outcome | None:
    """Residue classes: the same modulus and the same classes. A number is no class."""
    if not isinstance(answer, Residues) and not isinstance(gold, Residues):
        return None
    left, right = _as_residues(answer), _as_residues(gold)
    if left is None or right is None:
        return Outcome(None, "structure", "a residue class beside something else")
    if left.modulus != right.modulus:
        return Outcome(False, "structure", "other moduli")
    classes = [{value % one.modulus for value in one.values} for one in (left, right)]
    same = classes[0] == classes[1]
    return Outcome(same, "structure", "the same classes" if same else "other classes")


def _as_residues(answer: Answer) -> Residues | None:
    if isinstance(answer, Residues):
        return answer
    if isinstance(answer, Expression):
        return read_residues_leniently(answer.text)
    return None


def _without_base_ten(answer: Answer) -> Answer:
    if isinstance(answer, Based) and answer.base == 10 and answer.digits.lstrip("-").isdecimal():
        return Number(value=Fraction(answer.digits), kind="integer")
    return answer


def short_forms(answer: Answer, gold: Answer, _: Comparer) -> Outcome | None:
    """Times, ratios, numerals in a base, infinity and phrases."""
    for kind in (Based, Clock, Ratio, Infinity, Meaning):
        if isinstance(answer, kind) and isinstance(gold, kind):
            same = answer == gold
            if isinstance(answer, Ratio) and isinstance(gold, Ratio):
                are_times = answer.is_time and gold.is_time
                same = answer == gold if are_times else _proportional(answer.parts, gold.parts)
            name = kind_of(gold)
            return Outcome(same, "structure", f"the same as {name}" if same else f"not {name}")
    if isinstance(answer, Clock) and isinstance(gold, Ratio):
        return _time_without_half(answer, gold)
    if isinstance(answer, Ratio) and isinstance(gold, Clock):
        return _time_without_half(gold, answer)
    shapes = (Based, Clock, Ratio, Infinity, Meaning)
    if isinstance(answer, shapes) or isinstance(gold, shapes):
        if isinstance(answer, (Expression, Infinity)) and isinstance(gold, (Expression, Infinity)):
            return None
        if isinstance(answer, Relation) or isinstance(gold, Relation):
            return None
        return Outcome(False, "structure", f"{kind_of(answer)} is not {kind_of(gold)}")
    return None


def words(answer: Answer, gold: Answer, _: Comparer) -> Outcome | None:
    """Words beside words; what is no word never equals one."""
    if not isinstance(answer, Words) and not isinstance(gold, Words):
        return None
    if isinstance(answer, Words) and isinstance(gold, Words):
        if _joined(answer.spoken) == _joined(gold.spoken):
            return Outcome(True, "structure", "the same words")
        if _is_said_of_something(answer.spoken, gold.spoken):
            return Outcome(True, "structure", "a sentence that ends in the same words")
        if answer.head or gold.head:
            return _heads(answer, gold)
        return Outcome(False, "structure", "other words")
    if isinstance(gold, Expression) or isinstance(answer, Expression):
        text = gold.text if isinstance(gold, Expression) else answer.text  # type: ignore[union-attr]
        spoken = answer.spoken if isinstance(answer, Words) else gold.spoken  # type: ignore[union-attr]
        if _joined(spoken) == _joined(text.lower()):
            return Outcome(True, "structure", "the same words")
    return Outcome(False, "structure", f"{kind_of(answer)} is not {kind_of(gold)}")


def _is_said_of_something(answer: str, gold: str) -> bool:
    """True for "the lines are parallel" beside "parallel", without a doubt or a second answer."""
    match = _SAYING.fullmatch(answer)
    return match is not None and _joined(match["said"]) == _joined(gold)


def _heads(answer: Words, gold: Words) -> Outcome:
    """Sentences that begin with yes or no: the word decides, unless the gold goes on with more."""
    said = (answer.head or answer.spoken, gold.head or gold.spoken)
    if said[0] != said[1]:
        return Outcome(False, "structure", "other words")
    if gold.head and (answer.head or _MATHEMATICS.search(gold.spoken)):
        return Outcome(None, "structure", f"both say {said[1]}, and more after it")
    return Outcome(True, "structure", f"both say {said[1]}")


def units_differ(answer: Unit | None, gold: Unit | None) -> Outcome:
    """What is said of two units that do not convert."""
    names = [unit.name.strip() if unit else "none" for unit in (answer, gold)]
    return Outcome(False, "number", f"the units differ: {names[0]} and {names[1]}")


def _letters(answer: Answer) -> str | None:
    """The letters of several choices, in order: "A, C" and "AC" are "AC"."""
    if isinstance(answer, Choice):
        return answer.letter
    if isinstance(answer, Collection) and answer.brackets != "[]":
        letters = [
            item.letter for item in answer.items if isinstance(item, Choice) and not item.text
        ]
        return "".join(sorted(letters)) if len(letters) == len(answer.items) else None
    if isinstance(answer, Expression) and answer.text.isupper() and answer.text.isalpha():
        text = "".join(sorted(answer.text))
        if len(set(text)) == len(text) and text[-1] <= "J":
            return text
    return None


def _is_ranking(gold: Answer) -> bool:
    """True for letters whose order may count: "BAC" is a ranking, and "ABCD" has four corners."""
    if not isinstance(gold, Expression):
        return False
    return list(gold.text) != sorted(gold.text) or len(gold.text) > 3


def _proportional(parts: Sequence[Fraction], others: Sequence[Fraction]) -> bool:
    if len(parts) != len(others) or not all((*parts, *others)):
        return parts == others
    return all(a * others[0] == b * parts[0] for a, b in zip(parts, others, strict=True))


def _time_without_half(clock: Clock, ratio: Ratio) -> Outcome:
    """A time with "am" or "pm" and one without, which may count to 12 or to 24."""
    hour, minute, *second = (*ratio.parts, Fraction(0))[:3]
    seconds = (hour * 60 + minute) * 60 + second[0]
    same = seconds == clock.seconds or (hour < 13 and (seconds - clock.seconds) % 43_200 == 0)
    return Outcome(same, "structure", "the same time" if same else "another time")


def _joined(words: str) -> str:
    return "".join(words.split())
