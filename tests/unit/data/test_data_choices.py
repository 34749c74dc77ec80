"""Multiple choice: options in their shapes, golds as letters."""

from __future__ import annotations

import pytest

from workings.data.choices import letter_of, options_of, with_options
from workings.errors import DataError


@pytest.mark.parametrize(
    "value",
    [
        ["5", "6", "7"],
        '["5", "6", "7"]',
        ["A)5", "B)6", "C)7"],
        ["(A) 5", "(B) 6", "(C) 7"],
        "A) 5 B) 6 C) 7",
        {"text": ["5", "6", "7"], "label": ["A", "B", "C"]},
    ],
)
def test_options_in_every_shape(value: object) -> None:
    assert options_of(value) == ("5", "6", "7")


def test_no_options() -> None:
    assert options_of(None) == ()
    assert options_of("") == ()


def test_a_label_that_is_part_of_the_text_stays() -> None:
    assert options_of(["A. Smith", "C. Jones"]) == ("A. Smith", "C. Jones")


@pytest.mark.parametrize("value", ["[1", 7, [1, 2], "B) 5 A) 6", "5 or 6"])
def test_what_are_no_options(value: object) -> None:
    with pytest.raises(DataError, match="the options"):
        options_of(value)


def test_the_question_with_its_options() -> None:
    assert with_options("Which?\n", ["x", "y"]) == "Which?\nA) x\nB) y"


@pytest.mark.parametrize(
    ("gold", "letter"), [("B", "B"), ("(B)", "B"), ("B.", "B"), ("1", "B"), ("six", "B")]
)
def test_golds_as_letters(gold: str, letter: str) -> None:
    assert letter_of(gold, ["five", "six", "seven"]) == letter


def test_an_option_that_equals_the_gold_goes_before_its_index() -> None:
    assert letter_of("2", ["2", "1", "0"]) == "A"


@pytest.mark.parametrize("gold", ["D", "3", "eight"])
def test_a_gold_that_is_none_of_the_options(gold: str) -> None:
    with pytest.raises(DataError, match=f"'{gold}' is none of the 3 options"):
        letter_of(gold, ["five", "six", "seven"])
