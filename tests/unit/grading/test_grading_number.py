"""Numbers as exact rationals: reading them, and the rules of rounding, percent and units."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.grading.reading.number import Number, read_number, same_number
from workings.grading.reading.units import conversion, read_unit
from workings.grading.text.normalise import normalise


def number(text: str) -> Number | None:
    return read_number(normalise(text))


def same(answer: str, gold: str) -> bool:
    left, right = number(answer), number(gold)
    assert left is not None, answer
    assert right is not None, gold
    return same_number(left, right)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        ("-18", -18),
        ("+5", 5),
        ("05", 5),
        ("(-3)", -3),
        ("1,234", 1234),
        ("12,345,678", 12345678),
        (r"1\,234", 1234),
        (r"1{,}234.5", Fraction(2469, 2)),
        (".75", Fraction(3, 4)),
        ("5.", 5),
        ("3/4", Fraction(3, 4)),
        (r"\frac34", Fraction(3, 4)),
        (r"-\frac{3}{4}", Fraction(-3, 4)),
        (r"\frac{-3}{4}", Fraction(-3, 4)),
        (r"\frac{3}{-4}", Fraction(-3, 4)),
        (r"\frac{1.5}{2}", Fraction(3, 4)),
        (r"3\frac{1}{2}", Fraction(7, 2)),
        ("3 1/2", Fraction(7, 2)),
        ("3½", Fraction(7, 2)),
        (r"-2\frac14", Fraction(-9, 4)),
        ("1.5e-4", Fraction(3, 20000)),
        (r"1.5\times 10^{-4}", Fraction(3, 20000)),
        (r"3\times 10^8", 3 * 10**8),
        (r"0.\overline{27}", Fraction(3, 11)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        (r"0.\dot{2}\dot{7}", Fraction(3, 11)),
        (r"0.\dot3", Fraction(1, 3)),
        (r"0.\dot{1}4285\dot{7}", Fraction(1, 7)),
        (r"\$12.50", Fraction(25, 2)),
        (r"-\$5", -5),
        ("€30", 30),
        (r"50\%", 50),
        (r"12.5 \text{ percent}", Fraction(25, 2)),
        (r"60^\circ", 60),
        ("60°", 60),
        (r"5\,\mathrm{cm}", 5),
        ("18 apples", 18),
        ("5元", 5),
    ],
)
def test_reading(text: str, value: int | Fraction) -> None:
    read = number(text)
    assert read is not None
    assert read.value == value


@pytest.mark.parametrize(
    "text",
    ["12,34", "1,2", "1,2345", "1234,567", "1 2", "5!", "2^3", "x", "5x", "2i", "5 or 6", "1,2,3",
     r"\frac{5}{0}", r"3\frac{5}{4}", r"3\frac{-1}{2}", "--5", "1.2.3", "", "3k", "5 and", "-",
     r"\sqrt{2}", r"2\pi", "10^{-10^9}", "1e99999999", "4 sin", "(1,234)", "1e", "0x10", "1_000",
     "５,６", "nan", "inf"],
)  # fmt: skip
def test_not_a_plain_number(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("2024.0", "2024"),
        ("0.50", "0.5"),
        ("6/8", "3/4"),
        ("0.75", r"\frac{3}{4}"),
        (r"\frac13", "0.33"),
        ("0.333333", r"\frac13"),
        ("0.6666667", r"\frac23"),
        (r"0.\overline{3}", r"\frac13"),
        ("50%", "0.5"),
        ("0.5", "50%"),
        ("50", "50%"),
        ("12.5 percent", r"12.5\%"),
        ("5 cm", "5"),
        ("5", r"5\text{ cm}"),
        (r"500\text{ cm}", r"5\text{ m}"),
        (r"12.5\text{ dollars}", r"\$12.50"),
        ("24 square inches", r"24\text{ in}^2"),
        ("1 hour", "60 minutes"),
        ("12 feet", "12 ft"),
        ("60 degrees", r"60^\circ"),
    ],
)
def test_the_same_number(answer: str, gold: str) -> None:
    assert same(answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("2024.1", "2024"),
        ("12346", "12345"),
        ("123456789123456780", "123456789123456789"),
        ("3.1415", "3.1416"),
        ("0.002", "0.001"),
        (r"\frac13", "0.3"),
        ("0.3", r"0.\overline{3}"),
        ("0.33333", r"\frac13"),
        ("0.333334", r"\frac13"),
        (r"1.5\times 10^{-15}", r"1.5\times 10^{-14}"),
        ("50", "0.5"),
        (r"1.25\%", r"12.5\%"),
        ("-5/2", r"-3\frac12"),
        (r"7\text{ g}", r"7\text{ kg}"),
        (r"5\text{ m}", r"5\text{ cm}"),
        (r"5\text{ cm}^3", r"5\text{ cm}^2"),
        ("5 apples", "5 pears"),
        (r"75\text{ cents}", r"\$75"),
    ],
)
def test_not_the_same_number(answer: str, gold: str) -> None:
    assert not same(answer, gold)


@given(st.fractions(), st.fractions())
def test_fractions_agree_with_python(first: Fraction, second: Fraction) -> None:
    assert same(
        f"{first.numerator}/{first.denominator}", f"{second.numerator}/{second.denominator}"
    ) == (first == second)


@given(st.integers())
def test_integers_with_thousands_marks(value: int) -> None:
    assert same(f"{value:,}", str(value))
    assert not same(f"{value + 1:,}", str(value))


def test_units_convert_exactly_or_not_at_all() -> None:
    def convert(one: str, other: str) -> Fraction | None:
        left, right = read_unit(one), read_unit(other)
        assert left is not None
        assert right is not None
        return conversion(left, right)

    assert convert("km", "m") == 1000
    assert convert("inch", "cm") == Fraction(127, 50)
    assert convert("square feet", "in^2") == 144
    assert convert("apples", "apple") == 1
    assert convert("apples", "cm") is None
    assert convert("cm", "cm^2") is None
    assert read_unit("") is None
    assert read_unit("1x") is None
    assert convert("m/s", "km/h") == Fraction(18, 5)
    assert convert("N", "kg m/s^2") == 1
    assert convert("red apples", "apples") == 1
    assert convert("square units", "cm^2") == 1
    assert convert("units", "cm^2") is None


@pytest.mark.parametrize(
    "piece", ["1", "1,", "1,234,", ".", "1 ", "a ", "a/", "-", "\\frac{", "1/"]
)
def test_reading_is_linear(piece: str) -> None:
    start = time.process_time()
    for text in (piece * (4000 // len(piece)), "1" + piece * 1000 + "!", "5 " + piece * 500):
        read_number(text)
    assert time.process_time() - start < 10.0
