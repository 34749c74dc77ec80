"""Values in messages."""

from __future__ import annotations

from workings.config.words import show, show_quoted


def test_values_as_a_file_writes_them() -> None:
    values = (None, True, 0, 1e-5, "text", ("a", None), [[1]])
    assert [show(value) for value in values] == [
        *("null", "true", "0", "1e-05", "text", "[a, null]", "[[1]]")
    ]


def test_quotes_tell_text_from_numbers() -> None:
    assert (show_quoted("5"), show_quoted(5), show_quoted(None)) == ("'5'", "5", "null")


def test_long_values_are_cut() -> None:
    assert show("x" * 81) == "x" * 77 + "..."
    assert show("x" * 80) == "x" * 80
    assert len(show([1] * 100)) == 80
