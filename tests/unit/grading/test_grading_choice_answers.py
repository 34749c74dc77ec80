"""Which choice a response makes, and which it does not."""

from __future__ import annotations

import time

import pytest

from workings.grading.text.choice_answers import choice_in, stated_choice


@pytest.mark.parametrize(
    ("response", "label"),
    [
        ("ANSWER: C", "C"),
        ("Some thought.\n\nANSWER: C\n", "C"),
        ("**ANSWER: C**", "C"),
        ("**Answer:** (C)", "C"),
        (r"Answer: \text{C}", "C"),
        (r"Answer: $\mathbf{(C)}$", "C"),
        ("ANSWER: C) It falls.", "C"),
        ("Answer: A because it falls", None),
        ("Answer: A man", None),
        ("Answer: Because", None),
        ("ANSWER: A\nwait\nANSWER: D", "D"),
        ("ANSWER: A or B", None),
        ("ANSWER: E", None),
        ("The correct answer is B.", "B"),
        ("The correct answer is B. Hence ANSWER: B", "B"),
        ("B", "B"),
        ("Plan B is the best, I think.", None),
        ("the answer: 7", None),
        ("", None),
    ],
)
def test_statements(response: str, label: str | None) -> None:
    assert stated_choice(response, "ABCD") == label


def test_labels_that_are_numbers() -> None:
    assert stated_choice("ANSWER: 2", "1234") == "2"
    assert stated_choice("ANSWER: B", "1234") is None
    assert choice_in("(2)", "1234") == "2"


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("C", "C"),
        (" (C) ", "C"),
        ("C.", "C"),
        ("C) It falls", "C"),
        ("C. It falls\nand rises", "C"),
        (r"\text{C}", "C"),
        (r"\textbf{(C) } 5", "C"),
        (r"\text{(C)}", "C"),
        (r"\mathrm{C. } It falls", "C"),
        ("Option C", "C"),
        ("ANSWER: C", "C"),
        ("c", None),
        ("CD", None),
        ("C, D", None),
        ("7", None),
        ("E", None),
        ("A man", None),
        ("", None),
        ("C) " + "x" * 600, None),
    ],
)
def test_answers(answer: str, label: str | None) -> None:
    assert choice_in(answer, "ABCD") == label


@pytest.mark.parametrize(
    "hostile",
    [
        "answer:" + " " * 60_000 + "x",
        "the correct answer is" + "\n \n" * 20_000,
        "the correct answer is" + " *" * 30_000,
        "answer: " * 8_000,
        "answer" * 10_000 + ":",
        r"\text{" * 10_000,
    ],
)
@pytest.mark.timeout(20)
def test_time_is_linear_in_hostile_text(hostile: str) -> None:
    start = time.process_time()
    stated_choice(hostile, "ABCD")
    choice_in(hostile[:500], "ABCD")
    assert time.process_time() - start < 10.0
