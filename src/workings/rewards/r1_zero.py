"""The r1_zero, question_only and think_boxed rewards: a format, an answer, and what both are paid.

    response ── read_response ──> format 0/1, answer text ── equality ──> answer 0/1 ──> reward

In all the strict reward equals the answer reward: format alone earns nothing. The mode
"four_class" grades the answer also where the format fails, and pays format x answer.

The answer to a multiple-choice question is a label; a statement "ANSWER: X" counts as a box does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal

from workings.errors import DataError
from workings.grading.gold import unboxed
from workings.grading.grader import Grader, shared_grader
from workings.grading.text.braces import peel
from workings.grading.text.choice_answers import choice_in, stated_choice
from workings.grading.text.extraction import final_text, last_box_content
from workings.rewards.strict_equality import Equality, strict_equality
from workings.types import Grade

AnswerFormat = Literal["r1_zero", "question_only", "think_boxed"]
Mode = Literal["strict", "four_class"]

_TAGS = "</think> <answer>"
_TAGS_WITH_NEWLINE = "</think>\n<answer>"
_CLOSE = "</answer>"
_THOUGHT_END = "</think>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a response holds: whether its format is right, and the answer text found in it."""

    format_right: bool
    answer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerScore:
    """Format, answer and the reward paid, each 0.0 or 1.0, with the grade of the answer."""

    format: float
    answer: float
    reward: float
    grade: Grade

    def as_dict(self) -> dict[str, float]:
        """The three numbers under their public names."""
        return {
            "format_reward": self.format,
            "answer_reward": self.answer,
            "reward": self.reward,
        }


def r1_zero_reward_fn(
    response: str,
    ground_truth: object,
    fast: bool = True,
    *,
    mode: Mode = "strict",
    strict_compat: bool = True,
    grader: Grader | None = None,
) -> dict[str, float]:
    """{"format_reward", "answer_reward", "reward"} of `... </think> <answer>...</answer>`.

    Exactly one space stands between the two tags. `ground_truth` is a text, a number, or a list of
    texts of which any may match; DataError for anything else and for an empty one.

    `fast` compares by form and exact arithmetic, and asks worker processes only about two
    expressions; `fast=False` adds whatever the grader proves. `strict_compat=False` leaves the
    verdict to the grader alone.

    >>> r1_zero_reward_fn("3+4=7 </think> <answer>7</answer>", "7")
    {'format_reward': 1.0, 'answer_reward': 1.0, 'reward': 1.0}
    """
    equality = choose_equality(fast=fast, strict_compat=strict_compat, grader=grader)
    return _score_one(response, ground_truth, "r1_zero", mode, equality)


def question_only_reward_fn(
    response: str,
    ground_truth: object,
    fast: bool = True,
    *,
    mode: Mode = "strict",
    strict_compat: bool = True,
    grader: Grader | None = None,
) -> dict[str, float]:
    r"""{"format_reward", "answer_reward", "reward"} of a response whose answer is in `\boxed{}`.

    The last box counts; the rest is as in `r1_zero_reward_fn`.

    >>> question_only_reward_fn(r"So \boxed{19}.", 18)
    {'format_reward': 1.0, 'answer_reward': 0.0, 'reward': 0.0}
    """
    equality = choose_equality(fast=fast, strict_compat=strict_compat, grader=grader)
    return _score_one(response, ground_truth, "question_only", mode, equality)


def choose_equality(*, fast: bool, strict_compat: bool, grader: Grader | None) -> Equality:
    """The strict equality, or the grader's own; the shared grader where none is given."""
    if strict_compat:
        return strict_equality(fast=fast, grader=grader)
    return (grader or shared_grader()).compare_batch


def score_answers(
    responses: Sequence[str],
    golds: Sequence[Sequence[str]],
    *,
    answer_format: AnswerFormat,
    mode: Mode,
    equality: Equality,
    labels: Sequence[str] | None = None,
) -> list[AnswerScore]:
    """One score per response; `golds[i]` are the texts of which any may match response i.

    `labels[i]` are the labels of the choices, "ABCD", and empty where the answer is free. All pairs
    are compared in one call, so that equal ones are graded once.
    """
    readings = [
        read_response(response, answer_format, mode, labels=choices)
        for response, choices in zip(responses, labels or [""] * len(responses), strict=True)
    ]
    pairs = [
        (reading.answer, unboxed(gold))
        for reading, accepted in zip(readings, golds, strict=True)
        for gold in accepted
    ]
    grades = iter(equality([pair[0] for pair in pairs], [pair[1] for pair in pairs]))
    scores = []
    for reading, accepted in zip(readings, golds, strict=True):
        grade = _best([next(grades) for _ in accepted])
        scores.append(_score(reading, grade, mode))
    return scores


def read_response(
    response: str, answer_format: AnswerFormat, mode: Mode, *, labels: str = ""
) -> Reading:
    """Format and answer text of one response. An unreadable box is no answer.

    think_boxed wants the box after a closed thought: a thought that was cut off may hold a box of
    its own, and is not paid for it. With `labels`, a statement "ANSWER: X" that names one of them
    is as good as a box with a label, and better than a box with anything else.
    """
    if answer_format == "r1_zero":
        formatted = _TAGS in response or (mode == "four_class" and _TAGS_WITH_NEWLINE in response)
        if formatted and _CLOSE in response:
            content = response.rpartition("<answer>")[2].replace(_CLOSE, "")
            return Reading(format_right=True, answer=_chosen(content, labels))
    text = final_text(response)
    ended = answer_format == "think_boxed" and _THOUGHT_END in response
    if answer_format == "question_only" or ended:
        boxed = None if text is None else last_box_content(text, with_fbox=False)
        if labels and text is not None and (boxed is None or not choice_in(boxed, labels)):
            stated = stated_choice(text, labels)
            if stated is not None:
                return Reading(format_right=True, answer=stated)
        if boxed is not None:
            inner = peel(boxed)
            label = choice_in(inner, labels) if labels and inner else None
            return Reading(format_right=True, answer=label or inner)
    if mode == "four_class" and text is not None:
        return Reading(format_right=False, answer=_chosen(text, labels))
    return Reading(format_right=False, answer=None)


def accepted_golds(ground_truth: object) -> list[str]:
    """The texts that count as right; DataError where `ground_truth` is no text or number.

    >>> accepted_golds(18), accepted_golds(["17", "18"])
    (['18'], ['17', '18'])
    """
    if isinstance(ground_truth, (list, tuple)):
        texts = [_text(value, ground_truth) for value in ground_truth]
    elif isinstance(ground_truth, bool):
        texts = [_text(ground_truth, ground_truth)]
    elif isinstance(ground_truth, Integral):  # numpy's integers included
        texts = [str(int(ground_truth))]
    elif isinstance(ground_truth, Real):
        texts = [str(float(ground_truth))]
    else:
        texts = [_text(ground_truth, ground_truth)]
    if not texts or not all(unboxed(text).strip() for text in texts):
        raise DataError(
            f"gold answer {ground_truth!r:.200} is empty or an unreadable box",
            hint="drop the row (data.bad_gold=drop)",
        )
    return texts


def _text(value: object, ground_truth: object) -> str:
    if isinstance(value, str):
        return value
    raise DataError(
        f"gold answer {ground_truth!r:.200}: expected a text, a number or a list of texts",
        hint="turn the gold column into text when the data set is loaded",
    )


def _score_one(
    response: str, ground_truth: object, answer_format: AnswerFormat, mode: Mode, equality: Equality
) -> dict[str, float]:
    golds = [accepted_golds(ground_truth)]
    (score,) = score_answers(
        [response], golds, answer_format=answer_format, mode=mode, equality=equality
    )
    return score.as_dict()


def _boxed_or_whole(text: str) -> str | None:
    """The last box of `text` where it has a box macro, readable or not; else all of it."""
    if "\\boxed" in text:
        content = last_box_content(text, with_fbox=False)
        return None if content is None else peel(content)
    return text.strip() or None


def _chosen(text: str, labels: str) -> str | None:
    """The answer text, reduced to the label where it makes a choice of one."""
    answer = _boxed_or_whole(text)
    if not labels:
        return answer
    label = choice_in(answer, labels) if answer else None
    return label or stated_choice(text, labels) or answer


def _best(grades: Sequence[Grade]) -> Grade:
    return next((grade for grade in grades if grade.correct), grades[-1])


def _score(reading: Reading, grade: Grade, mode: Mode) -> AnswerScore:
    format_reward, answer_reward = float(reading.format_right), float(grade.correct)
    paid = format_reward * answer_reward if mode == "four_class" else answer_reward
    return AnswerScore(format=format_reward, answer=answer_reward, reward=paid, grade=grade)
