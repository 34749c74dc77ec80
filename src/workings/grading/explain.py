"""The way of one response and one gold to their verdict, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from workings.grading.describe import describe
from workings.grading.gold import read, unboxed
from workings.grading.grader import shared_grader
from workings.grading.policy import ExtractionPolicy, GradingPolicy, Tier
from workings.grading.reading.answers import kind_of
from workings.grading.reading.number import Number
from workings.grading.text.braces import max_depth
from workings.grading.text.extraction import extract_answer, final_text, has_box
from workings.types import Grade, Verdict

Outcome = Literal["equal", "different", "cannot tell", "not asked"]
IN_PROCESS = ("string", "number", "structure")
"""Tiers that need no worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of the comparison.

    Attributes:
        text: as it came.
        normalised: in the one spelling that the tiers compare.
        kind: what it was read as, e.g. "a number", "an interval".
        read_as: its value in words, e.g. "1/2, unit kg".
    """

    text: str
    normalised: str
    kind: str
    read_as: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one tier said, and why."""

    tier: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How a grade came about.

    Attributes:
        grade: the same as `grade` gives.
        policy: name of the extraction policy.
        extracted: the answer taken from the response, None where there is none.
        extraction_note: what was taken and why, or why nothing was.
        answer: None where nothing was extracted.
        gold: as the tiers see it.
        steps: one for each tier, in their order.
    """

    grade: Grade
    policy: str
    extracted: str | None
    extraction_note: str
    answer: Side | None
    gold: Side
    steps: tuple[Step, ...]


def explain(
    response: str, gold: str, policy: GradingPolicy | None = None, *, bare: bool = False
) -> Explanation:
    r"""How the grade of `response` against `gold` came about.

    With `bare` the response is the answer itself, and nothing is extracted.

    >>> explanation = explain(r"so \boxed{0.50}", r"\frac{1}{2}")
    >>> explanation.answer.kind, explanation.answer.read_as
    ('a number', '1/2')
    >>> [step.outcome for step in explanation.steps][:3]
    ['cannot tell', 'equal', 'not asked']
    """
    policy = policy or GradingPolicy()
    grader = shared_grader(policy)
    grade = grader.compare(response, gold) if bare else grader.grade(response, gold)
    extracted = grade.extracted
    note = "compared as the answer itself" if bare else _note(response, extracted, policy)
    answer = None if extracted is None else _side(extracted, policy)
    return Explanation(
        grade=grade,
        policy=policy.extraction,
        extracted=extracted,
        extraction_note=note,
        answer=answer,
        gold=_side(unboxed(gold), policy, written=gold),
        steps=tuple(_steps(grade, extracted, unboxed(gold), policy)),
    )


# ------------------------------------------------------------------------------- extraction


def _note(response: str, extracted: str | None, policy: GradingPolicy) -> str:
    text = final_text(response)
    if text is None:
        return "the thinking is still open, so there is no final text to read"
    after = " after the thinking" if len(text) < len(response) else ""
    if extracted is None:
        return _why_nothing(text, policy.extraction) + after
    if extracted != extract_answer(response, policy.extraction):
        return f"the boxes side by side{after}, joined because the gold is a list of as many"
    if policy.extraction == "tag":
        return f"the content of the last <answer>{after}"
    if has_box(text):
        return f"the content of the last box{after}"
    if "</answer>" in text:
        return f"the content of the last <answer>{after}"
    return f"what follows the last mark such as 'answer is'{after}"


def _why_nothing(text: str, policy: ExtractionPolicy) -> str:
    if policy == "tag":
        return "there is no <answer>...</answer> with something in it"
    if has_box(text):
        return "the last box is empty or never closes"
    if policy == "lenient":
        return "there is no box, no <answer> and no line that is marked as the answer"
    return "there is no box"


# -------------------------------------------------------------------------------- the sides


def _side(text: str, policy: GradingPolicy, *, written: str | None = None) -> Side:
    """A text that is over the limits is not read: that could take long."""
    shown = text if written is None else written
    if not _is_read(text, policy):
        return Side(text=shown, normalised=text, kind="not read", read_as="over the limits")
    reading = read(text)
    return Side(
        text=shown,
        normalised=reading.text,
        kind=kind_of(reading.answer),
        read_as=describe(reading.answer),
    )


def _is_read(text: str, policy: GradingPolicy) -> bool:
    return len(text) <= policy.max_answer_length and max_depth(text) <= policy.max_depth


# ------------------------------------------------------------------------------------ steps


def _steps(grade: Grade, answer: str | None, gold: str, policy: GradingPolicy) -> Iterator[Step]:
    """What each tier said, as far as the grade and the readings tell."""
    if answer is None or grade.verdict in (Verdict.NO_ANSWER, Verdict.BAD_GOLD):
        for tier in policy.tiers:
            yield Step(tier=tier, outcome="not asked", reason="")
        return
    is_open = True
    for tier in policy.tiers:
        if not is_open:
            yield Step(tier=tier, outcome="not asked", reason="")
        elif tier == grade.tier:
            is_open = False
            outcome: Outcome = "equal" if grade.correct else "different"
            yield Step(tier=tier, outcome=outcome, reason=grade.reason or "")
        else:
            yield Step(
                tier=tier, outcome="cannot tell", reason=_why_open(tier, answer, gold, grade)
            )


def _why_open(tier: Tier, answer: str, gold: str, grade: Grade) -> str:
    """Why a tier could not settle the pair."""
    if grade.verdict in (Verdict.REFUSED, Verdict.TIMEOUT, Verdict.INTERNAL_ERROR):
        return "" if tier in IN_PROCESS else grade.reason or ""
    if tier == "string":
        return "the normalised texts differ"
    if tier == "number":
        pair = {"the answer": answer, "the gold": gold}
        others = [side for side, text in pair.items() if not isinstance(read(text).answer, Number)]
        verb = "are no numbers" if len(others) > 1 else "is no number"
        return f"{' and '.join(others)} {verb}" if others else ""
    if tier == "peer":
        return "math-verify does not find them equal, or was not asked"
    return ""
