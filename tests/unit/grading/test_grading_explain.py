"""The way of a pair to its verdict agrees with the grade, and readings are told in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.grading.describe import MOST_ITEMS, describe
from workings.grading.explain import explain
from workings.grading.gold import read
from workings.grading.grader import grade
from workings.grading.policy import TIERS, GradingPolicy
from workings.types import Verdict


@pytest.mark.parametrize(
    ("response", "policy", "note"),
    [
        (r"\boxed{5}", "boxed", "the content of the last box"),
        (r"x</think>\boxed{5}", "boxed", "the content of the last box after the thinking"),
        (r"<think>\boxed{5}", "boxed", "the thinking is still open"),
        (r"\boxed{", "boxed", "the last box is empty or never closes"),
        ("5", "boxed", "there is no box"),
        ("5", "tag", "there is no <answer>...</answer>"),
        ("<answer>5</answer>", "tag", "the content of the last <answer>"),
        ("<answer>5</answer>", "lenient", "the content of the last <answer>"),
        ("The answer is 5", "lenient", "what follows the last mark"),
        ("5", "lenient", "no line that is marked as the answer"),
    ],
)
def test_what_was_taken_and_why(response: str, policy: str, note: str) -> None:
    explanation = explain(response, "5", GradingPolicy(extraction=policy))  # type: ignore[arg-type]
    assert note in explanation.extraction_note
    assert (explanation.answer is None) == (explanation.extracted is None)


def test_boxes_side_by_side() -> None:
    explanation = explain(r"\boxed{1} and \boxed{2}", "2, 1")
    assert explanation.extracted == "1, 2"
    assert "joined because the gold is a list of as many" in explanation.extraction_note


def test_a_bare_answer() -> None:
    explanation = explain("5.0", "5", bare=True)
    assert (explanation.grade.verdict, explanation.extracted) == (Verdict.EQUAL, "5.0")
    assert explanation.extraction_note == "compared as the answer itself"


@pytest.mark.parametrize(
    ("response", "gold"),
    [
        *((r"\boxed{5}", "5"), (r"\boxed{6}", "5"), ("", "5"), (r"\boxed{5}", ""), ("", "")),
        *((r"\boxed{0.5}", r"\frac{1}{2}"), (r"\boxed{(1,2)}", "[1,2)"), (r"\boxed{}", "5")),
        *((r"\boxed{(x+1)^2}", "x^2+2x+1"), (r"\boxed{7\text{ kg}}", r"7\text{ g}")),
        (r"\boxed{" + "1" * 5000 + "}", "5"),
    ],
)
def test_steps_agree_with_the_grade(response: str, gold: str) -> None:
    explanation = explain(response, gold)
    expected = grade(response, gold)
    assert (explanation.grade.verdict, explanation.grade.tier) == (expected.verdict, expected.tier)
    assert tuple(step.tier for step in explanation.steps) == TIERS
    outcomes = [step.outcome for step in explanation.steps]
    if expected.tier is not None:
        place = TIERS.index(expected.tier)  # type: ignore[arg-type]
        assert outcomes[:place] == ["cannot tell"] * place
        assert outcomes[place] == expected.verdict.value
        assert set(outcomes[place + 1 :]) <= {"not asked"}
        assert explanation.steps[place].reason == expected.reason
    else:
        assert set(outcomes) <= {"cannot tell", "not asked"}


def test_a_bomb_says_where_its_time_went() -> None:
    policy = GradingPolicy(deadline_seconds=0.2, tiers=("string", "number", "structure", "peer"))
    explanation = explain(r"\boxed{9^{9^{9^{9}}}}", "5", policy)
    assert explanation.grade.verdict in (Verdict.TIMEOUT, Verdict.REFUSED)
    assert [step.outcome for step in explanation.steps] == ["cannot tell"] * 4
    assert explanation.steps[-1].reason == explanation.grade.reason


def test_an_answer_over_the_limits_is_not_read() -> None:
    explanation = explain(r"\boxed{" + "(" * 100 + "1" + ")" * 100 + "}", "5")
    assert explanation.answer is not None
    assert (explanation.answer.kind, explanation.answer.read_as) == (
        *("not read", "over the limits"),
    )


# ---------------------------------------------------------------------------------- in words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("18", "18"),
        (r"50\%", "50 %"),
        (r"3\text{ cm}^2", "3, unit cm^2"),
        (r"\sqrt{2}", r"\sqrt{2}"),
        (r"-\infty", "minus infinity"),
        (r"\text{no solution}", "no solution, the empty set"),
        ("(B)", "choice B"),
        ("212_5", "212 in base 5"),
        ("1:2", "1 : 2"),
        ("10:30 am", "10:30:00"),
        (r"\{3, 1\}", "in any order: 3; 1"),
        ("(3, 1)", "in order: 3; 1"),
        ("[1, 2)", "from 1 (included) to 2 (left out)"),
        (r"(-\infty, 0) \cup (1, 2]", None),
        ("x = 5", "x: 5"),
        ("2x + y = 3", "2x + y = 3"),
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "2 by 2: 1, 2; 3, 4"),
        ("x = 1, y = 2", "x = 1; y = 2"),
    ],
)
def test_readings_in_words(text: str, words: str | None) -> None:
    described = describe(read(text).answer)
    if words is None:
        assert "from minus infinity (left out) to 0 (left out); from 1 (left out)" in described
    else:
        assert described == words


def test_long_things_are_cut() -> None:
    numbers = ", ".join(map(str, range(1, 3 * MOST_ITEMS)))
    described = describe(read(rf"\{{{numbers}\}}").answer)
    assert described.endswith(f"; {MOST_ITEMS}; and {2 * MOST_ITEMS - 1} more")
    assert describe(read("7" * 2000).answer) == "a number of about 10^2000"


@given(st.text(alphabet="0123456789xy{}()[],.:=<>+-^_\\ abcosqrt%&|", max_size=60))
def test_every_reading_has_words(text: str) -> None:
    assert isinstance(describe(read(text).answer), str)
