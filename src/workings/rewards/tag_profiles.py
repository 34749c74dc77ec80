"""The scores of the four tag rewards in three profiles.

* contract: the scores as promised to users, each clamped to its range; both sides are stripped, a
  gold of 0 is compared as a number, NaN and infinity are no numbers.
* unsloth: the notebook that the format comes from.
* grpo-tests: an earlier implementation, kept for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from workings.data.tags import Tags
from workings.rewards import tag_text

ProfileName = Literal["contract", "unsloth", "grpo-tests"]

EXACT_HIT = 3.0
TAG_ONCE, TAG_OTHERWISE = 0.5, -1.0
_NO_ANSWER = -2.0
_EQUAL, _EQUAL_BUT_SPACES, _WITHIN_10, _WITHIN_20 = 5.0, 3.5, 2.0, 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one profile finds and scores things; every function is total over texts.

    Attributes:
        has_format: (text, tags, EOS) to whether the exact format is hit.
        solution: (text, tags, EOS) to the extracted answer, None where there is none.
        numeral: (text, tags, EOS) to the extracted numeral, None where there is none.
        answer_score: (answer, gold) to the score of `check_answer`.
        number_score: (numeral, gold) to the score of `check_numbers`.
        no_numeral: the score of `check_numbers` where there is no numeral.
    """

    has_format: Callable[[str, Tags, str | None], bool]
    solution: Callable[[str, Tags, str | None], str | None]
    numeral: Callable[[str, Tags, str | None], str | None]
    answer_score: Callable[[str, str], float]
    number_score: Callable[[str, str], float]
    no_numeral: float
    no_answer: float = _NO_ANSWER


def contract_answer(answer: str, gold: str) -> float:
    """-2 to +5 for an extracted answer.

    >>> [contract_answer(text, "34") for text in ("34", " 34 ", "3 4", "34.0", "28", "7", "x")]
    [5.0, 5.0, 3.5, 2.0, 1.5, -2.0, -2.0]
    """
    answer, gold = answer.strip(), gold.strip()
    if answer == gold:
        return _EQUAL
    if _without_spaces(answer) == _without_spaces(gold):
        return _EQUAL_BUT_SPACES
    value, target = _finite(answer), _finite(gold)
    if value is None or target is None:
        return -2.0
    if target == 0:
        return _WITHIN_10 if value == 0 else -2.0
    return _by_ratio(value / target, -2.0)


def contract_number(numeral: str, gold: str) -> float:
    """-1.5 to +3 for an extracted numeral.

    >>> contract_number("1,234", "1234"), contract_number("7", "34"), contract_number("1", "1/2")
    (3.0, -1.5, 0.0)
    """
    value, target = _finite(numeral.replace(",", "")), _finite(gold.replace(",", ""))
    if value is None or target is None:
        return 0.0
    return 3.0 if value == target else -1.5


def unsloth_answer(answer: str, gold: str) -> float:
    """-4.5 to +5 for an extracted answer."""
    if answer == gold:
        return _EQUAL
    if answer.strip() == gold.strip():
        return _EQUAL_BUT_SPACES
    value, target = _float(answer), _float(gold)
    if value is None or target is None or target == 0:
        return -4.5
    return _by_ratio(value / target, -2.5)


def unsloth_number(numeral: str, gold: str) -> float:
    """-1.5 to +3.5 for an extracted numeral."""
    value, target = _float(numeral.replace(",", "")), _float(gold)
    if value is None or target is None:
        return 0.0
    return 3.5 if value == target else -1.5


def grpo_tests_answer(answer: str, gold: str) -> float:
    """-2.5 to +5 for an extracted answer."""
    if answer.strip() == gold:
        return _EQUAL
    if answer.replace(" ", "") == gold.replace(" ", ""):
        return _EQUAL_BUT_SPACES
    value, target = _float(answer), _float(gold)
    if value is None or target is None:
        return -2.5
    if target == 0:
        return _EQUAL if value == 0 else -2.5
    return _by_ratio(value / target, -2.5)


def grpo_tests_number(numeral: str, gold: str) -> float:
    """-2 to +4 for an extracted numeral."""
    value, target = _float(numeral), _float(gold)
    if value is None or target is None:
        return -1.5
    if abs(value - target) < 1e-6:
        return 4.0
    if target == 0:
        return -2.0
    ratio = value / target
    if 0.9 <= ratio <= 1.1:
        return 2.5
    return 1.5 if 0.8 <= ratio <= 1.2 else -2.0


def _by_ratio(ratio: float, otherwise: float) -> float:
    if 0.9 <= ratio <= 1.1:
        return _WITHIN_10
    return _WITHIN_20 if 0.8 <= ratio <= 1.2 else otherwise


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _finite(text: str) -> float | None:
    value = _float(text)
    return value if value is not None and math.isfinite(value) else None


def _without_spaces(text: str) -> str:
    return "".join(text.split())


_CONTRACT = Profile(
    has_format=lambda text, tags, eos: tag_text.formatted_solution(text, tags, eos) is not None,
    solution=tag_text.formatted_solution,
    numeral=tag_text.first_numeral,
    answer_score=contract_answer,
    number_score=contract_number,
    no_numeral=-1.5,
)
_UNSLOTH = Profile(
    has_format=_CONTRACT.has_format,
    solution=tag_text.formatted_solution,
    numeral=tag_text.first_numeral,
    answer_score=unsloth_answer,
    number_score=unsloth_number,
    no_numeral=-2.5,
)
_GRPO_TESTS = Profile(
    has_format=lambda text, tags, eos: tag_text.has_strict_blocks(text, tags),
    solution=lambda text, tags, eos: tag_text.first_block(text, tags),
    numeral=lambda text, tags, eos: tag_text.first_numeral_in_block(text, tags),
    answer_score=grpo_tests_answer,
    number_score=grpo_tests_number,
    no_numeral=-1.5,
)
PROFILES: dict[ProfileName, Profile] = {
    "contract": _CONTRACT,
    "unsloth": _UNSLOTH,
    "grpo-tests": _GRPO_TESTS,
}
