"""Where the answer of a response is, and where it is not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.grading.policy import ExtractionPolicy
from workings.grading.text.extraction import (
    TAIL_LENGTH,
    extract_answer,
    extract_boxes,
    final_text,
    last_box_content,
)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{18}.", "18"),
        (r"first \boxed{5}, better \boxed{7}", "7"),
        (r"\fbox{12}", "12"),
        (r"\boxed {12}", "12"),
        (r"\boxed{\boxed{8}}", "8"),
        (r"\boxed{ {{8}} }", "8"),
        (r"\boxed{{a}{b}}", "{a}{b}"),
        (r"\boxed{\frac{\sqrt{2+\sqrt{3}}}{4}}", r"\frac{\sqrt{2+\sqrt{3}}}{4}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{5\}}", r"5\}"),
        (r"\boxed{5\\} }", r"5\\"),
        ("\\boxed{\n7\n}", "7"),
        (r"a { \boxed{5}", "5"),
        (r"write \boxed{ then \boxed{5}", "5"),
        (r"\boxed{}", None),
        (r"\boxed{ {} }", None),
        (r"Item 9. \boxed{}", None),
        (r"\boxed{5} so \boxed{}", None),
        (r"\boxed{18", None),
        (r"\boxed 18", None),
        (r"\boxed{5} or rather \boxed{6", None),
        ("The answer is 42.", None),
        ("", None),
        (r"<think>maybe \boxed{4}</think> So \boxed{5}", "5"),
        (r"<think>\boxed{5}</think> I could not finish.", None),
        (r"<think>\boxed{5}", None),
        (r"\boxed{5} <think>again", None),
        (r"a</think> \boxed{4} <think>b</think> \boxed{5}", "5"),
    ],
)
def test_boxed(response: str, answer: str | None) -> None:
    assert extract_answer(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<answer>7</answer>", "7"),
        ("<answer>5</answer> no, <answer> 7 </answer>", "7"),
        (r"<answer>It is \boxed{7}.</answer>", "7"),
        (r"<answer>\boxed{7</answer>", None),
        ("<answer></answer>", None),
        ("<answer>7", None),
        ("7</answer>", None),
        (r"\boxed{7}", None),
        ("<think>x</think> <answer>7</answer>", "7"),
        ("<think><answer>7</answer>", None),
    ],
)
def test_tag(response: str, answer: str | None) -> None:
    assert extract_answer(response, "tag") == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"The answer is 3. \boxed{5}", "5"),
        ("The answer is 3. <answer>5</answer>", "5"),
        ("The final answer is 42.", "42"),
        ("All check out.\n\nFinal Answer: **73**", "73"),
        ("Nine remain.\n#### 18", "18"),
        ("Final Answer\n\n$\\frac{1}{2}$\n", r"\frac{1}{2}"),
        ("the answer is \\(\\frac{2}{3}\\).", r"\frac{2}{3}"),
        ("所以答案是42。", "42"),
        ("Answer: 1\nAnswer: 2", "2"),
        (r"the answer is 5, \boxed{}", None),
        ("it is 42", None),
        ("The answer is", None),
    ],
)
def test_lenient(response: str, answer: str | None) -> None:
    assert extract_answer(response, "lenient") == answer


@pytest.mark.parametrize(
    ("response", "boxes"),
    [
        (r"The roots are \boxed{2} and \boxed{3}.", ["2", "3"]),
        (r"$\boxed{2}$, $\boxed{3}$ or $\boxed{4}$", ["2", "3", "4"]),
        (r"\boxed{1}. Then a detour. \boxed{2} and \boxed{3}", ["2", "3"]),
        (r"\boxed{2} and \boxed{3} are the roots", []),
        (r"\boxed{2} and \boxed{3", []),
        (r"\boxed{2} gives \boxed{3}", ["3"]),
    ],
)
def test_boxes_side_by_side_at_the_end(response: str, boxes: list[str]) -> None:
    assert extract_boxes(response) == boxes


def test_the_last_64_kib_count() -> None:
    assert extract_answer(r"\boxed{5}" + "x" * TAIL_LENGTH) is None
    assert extract_answer("x" * 10 * TAIL_LENGTH + r"\boxed{5}") == "5"
    inside = "9" * (TAIL_LENGTH - 100)
    assert extract_answer(f"\\boxed{{{inside}}}") == inside


def test_content_as_it_stands() -> None:
    assert last_box_content(r"\boxed{ {8} }") == " {8} "
    assert last_box_content(r"\fbox{8}", with_fbox=False) is None
    assert final_text("<think>a</think>b") == "b"


@pytest.mark.parametrize(
    "piece",
    ["\\boxed{", "{", "}", "\\boxed{}", "\\boxed{5} ", "\\", "\\boxed ", "<answer>", "</answer>",
     "<think>", "</think>", "\\boxed{5} and ", "answer is ", "####", " ", "\\boxed{{", "{}"],
)  # fmt: skip
@pytest.mark.parametrize("policy", ["boxed", "tag", "lenient"])
def test_every_scan_is_linear(piece: str, policy: ExtractionPolicy) -> None:
    text = piece * (4 * TAIL_LENGTH // len(piece))
    start = time.process_time()
    extract_answer(text, policy)
    extract_answer(f"\\boxed{{{text[:TAIL_LENGTH]}}}", policy)
    extract_boxes(text)
    assert time.process_time() - start < 20.0  # a quadratic one needs minutes


@given(st.text(alphabet="\\boxed{}5 <think/>answr$#,\n", max_size=80))
def test_any_text_has_an_answer_or_none(text: str) -> None:
    for policy in ("boxed", "tag", "lenient"):
        answer = extract_answer(text, policy)  # type: ignore[arg-type]
        assert answer is None or (answer and answer == answer.strip())
