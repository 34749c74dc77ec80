"""The four classes format x answer, by which every evaluation is broken down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from workings.types import Rollout

CATEGORIES: tuple[str, ...] = (
    "category_1_format1_answer1",
    "category_2_format1_answer0",
    "category_3_format0_answer0",
    "category_4_format0_answer1",
)
"""Classes 11, 10, 00 and 01; the strict rewards never give the last."""

_EXACT_FORMAT = "match_format_exactly"
_EQUAL_ANSWER = 3.5
"""The tag reward `check_answer` gives this or more where answer and gold are the same text."""


def category_of(format_reward: float, answer_reward: float) -> str:
    """The class of one pair of rewards; more than 0 counts as right.

    >>> category_of(1.0, 0.0)
    'category_2_format1_answer0'
    """
    return _NAMES[format_reward > 0, answer_reward > 0]


def category(rollout: Rollout) -> str:
    """The class of a graded rollout."""
    return _NAMES[format_right(rollout), answer_right(rollout)]


def format_right(rollout: Rollout) -> bool:
    """True where the format was hit; the exact one, where the rewards are the tag rewards."""
    components = rollout.components
    return components.get("format", components.get(_EXACT_FORMAT, 0.0)) > 0


def answer_right(rollout: Rollout) -> bool:
    """True where the answer is right: by its reward, else by the grader, else by the same text."""
    components = rollout.components
    if "answer" in components:
        return components["answer"] > 0
    if rollout.grade is not None:
        return rollout.grade.correct
    return components.get("check_answer", 0.0) >= _EQUAL_ANSWER


def count_categories(rollouts: Iterable[Rollout]) -> dict[str, int]:
    """How many rollouts fall into each class; all four keys are there."""
    counts = Counter(category(rollout) for rollout in rollouts)
    return {name: counts[name] for name in CATEGORIES}


_NAMES = dict(
    zip([(True, True), (True, False), (False, False), (False, True)], CATEGORIES, strict=True)
)
