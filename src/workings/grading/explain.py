"""The way of one response and one gold to their verdict, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workings.grading.extraction import extract_answer, final_text, has_box
from workings.grading.gold import Reading, read, unboxed
from workings.grading.grader import shared_grader
from workings.grading.number import read_number
from workings.grading.policy import ExtractionPolicy, GradingPolicy
from workings.types import Grade, Verdict

Outcome = Literal["equal", "different", "cannot tell", "not asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of the comparison.

    Attributes:
        text: as it came.
        normalised: in the one spelling that the tiers compare.
        kind: what it is, e.g. "integer", "decimal", "text".
        read_as: its value in words, e.g. "1/2, unit length".
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
    >>> explanation.answer.kind, explanation.answer.read_as, explanation.gold.kind
    ('decimal', '1/2', 'exact')
    >>> [step.outcome for step in explanation.steps][:2]
    ['cannot tell', 'equal']
    """
    policy = policy or GradingPolicy()
    grader = shared_grader(policy)
    grade = grader.compare(response, gold) if bare else grader.grade(response, gold)
    extracted = grade.extracted
    if extracted is None and grade.verdict is not Verdict.NO_ANSWER:
        extracted = response if bare else extract_answer(response, policy.extraction)
    return Explanation(
        grade=grade,
        policy=policy.extraction,
        extracted=extracted,
        extraction_note=(
            "compared as the answer itself" if bare else _note(response, extracted, policy)
        ),
        answer=None if extracted is None else _side(extracted),
        gold=_side(unboxed(gold), written=gold),
        steps=_steps(grade, policy),
    )


def _note(response: str, extracted: str | None, policy: GradingPolicy) -> str:
    text = final_text(response)
    if text is None:
        return "the thinking is still open, so there is no final text to read"
    after = " after the thinking" if len(text) < len(response) else ""
    if extracted is None:
        return _why_nothing(text, policy.extraction) + after
    if has_box(text):
        return f"the content of the last box{after}"
    if policy.extraction == "tag" or "</answer>" in text:
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


def _side(text: str, *, written: str | None = None) -> Side:
    reading = read(text)
    kind, read_as = _value(reading)
    return Side(text=written or text, normalised=reading.text, kind=kind, read_as=read_as)


def _value(reading: Reading) -> tuple[str, str]:
    number = read_number(reading.text)
    if number is None:
        return "list" if reading.num_elements > 1 else "text", reading.text
    return number.kind, str(number.value) + (" %" if number.percent else "")


def _steps(grade: Grade, policy: GradingPolicy) -> tuple[Step, ...]:
    """What each tier said, as far as the grade tells."""
    open_to_all = grade.verdict is Verdict.UNDECIDED
    asked = grade.tier is not None or open_to_all
    steps = []
    for tier in policy.tiers:
        if tier == grade.tier:
            outcome: Outcome = "equal" if grade.correct else "different"
            steps.append(Step(tier=tier, outcome=outcome, reason=grade.reason or ""))
            asked = False
        else:
            outcome = "cannot tell" if asked else "not asked"
            steps.append(Step(tier=tier, outcome=outcome, reason=""))
    return tuple(steps)
