"""Multiple choice: options in their shapes, golds as letters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.data.choices import (
    are_indices,
    labels_in,
    labels_of,
    letter_of,
    options_of,
    placed_among,
    stem_of,
    with_options,
)
from workings.errors import DataError


@pytest.mark.parametrize(
    "value",
    [
        ["5", "6", "7"],
        '["5", "6", "7"]',
        ["A)5", "B)6", "C)7"],
        ["(A) 5", "(B) 6", "(C) 7"],
        "A) 5 B) 6 C) 7",
        "a ) 5 , b ) 6 , c ) 7",
        "a) 5 b) 6 c) 7",
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


def test_a_small_letter_is_a_label_and_an_option_goes_before_it() -> None:
    assert letter_of("b", ["five", "six", "seven"]) == "B"
    assert letter_of("a", ["b", "a"]) == "B"


def test_labels_of_the_row_decide_before_an_index() -> None:
    """ARC calls some choices 1 to 4: the gold "1" is then the first, and not the second."""
    numbered = {"text": ["w", "x", "y", "z"], "label": ["1", "2", "3", "4"]}
    assert letter_of("1", options_of(numbered), labels_of(numbered)) == "A"
    assert letter_of("1", ["w", "x", "y", "z"]) == "B"
    assert labels_of(["w", "x"]) == ()


@pytest.mark.parametrize(
    ("question", "labels"),
    [
        ("q\n\nA) x\nB) y\nC) z\n", "ABC"),
        ("q\n(A) x\n(B) y", "AB"),
        ("q\n1) x\n2) y\n3) z", "123"),
        ("q\n1) x\n2) y\nA) only 1\nB) both", "AB"),
        ("q\nA) x", ""),
        ("q\nB) x\nC) y", ""),
        ("q A) x B) y", ""),
        ("", ""),
    ],
)
def test_labels_in_a_question(question: str, labels: str) -> None:
    assert labels_in(question) == labels


def test_every_place_is_taken_as_often() -> None:
    letters = [placed_among("r", ["x", "y", "z"], question=str(n))[1] for n in range(4000)]
    assert all(900 < letters.count(letter) < 1100 for letter in "ABCD")
    options, letter = placed_among("r", ["x", "y"], question="q")
    assert options["ABC".index(letter)] == "r"
    assert [o for o in options if o != "r"] == ["x", "y"]


def test_an_index_goes_before_an_option_that_is_its_number() -> None:
    assert letter_of("2", ["2", "1", "0"], by_index=True) == "C"
    assert letter_of("B", ["2", "1", "0"], by_index=True) == "B"


@pytest.mark.parametrize(
    ("golds", "indices"),
    [
        ([2, 0], True),
        (["2", "0"], True),
        (["2", "1"], False),  # the text of an option each
        (["2", "3"], False),  # there is no fourth
        (["A", "0"], False),
        ([True, False], False),
        ([None, 1], False),
        ([], False),
    ],
)
def test_which_golds_are_indices(golds: list[object], indices: bool) -> None:
    options = [["1", "2", "3"], ["1", "4", "x"]][: len(golds)]
    assert are_indices(golds, options) is indices


@pytest.mark.parametrize(
    ("question", "stem"),
    [
        ("Which?\n\nA) one\nB) two\n", "Which?"),
        ("Which?\n(A) one\n(B) two", "Which?"),
        ("1. First.\n2. Second.\nWhich?\n1) a\n2) b", "1. First.\n2. Second.\nWhich?"),
        ("Which? A) one B) two", ""),
        ("Which?\nB) two", ""),
    ],
)
def test_the_stem_is_the_question_above_its_choices(question: str, stem: str) -> None:
    assert stem_of(question) == stem


@given(st.lists(st.text("xyz 1", min_size=1), min_size=2, max_size=6))
def test_a_question_with_options_has_itself_as_stem(options: list[str]) -> None:
    assert stem_of(with_options("Which of these?", options)) == "Which of these?"
