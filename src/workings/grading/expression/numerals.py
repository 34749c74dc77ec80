r"""Numerals: `12`, `1,234`, `0.1\overline{6}`, `1.5e-4`, `3 1/2`; every one has its exact value."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from workings.grading.expression.tokens import Token
from workings.grading.expression.tree import Node, Number, Power, Product, Unreadable

if TYPE_CHECKING:
    from workings.grading.expression.parse import Parser

MAX_DIGITS = 4000
"""Python converts no more than 4,300 digits; what is longer is compared as text."""

_DIGITS = re.compile(r"\d+")
_FRACTIONS = {"\\frac": ["\\frac", "{", "", "}", "{", "", "}"], "/": ["", "/", ""]}
"""The texts of the tokens of a fraction, "" for its numerals."""


def number(parser: Parser) -> Node:
    """The numeral here with its thousands and its proper fraction."""
    divides = parser.at > 0 and parser.before.text == "/"  # 1/2 1/3 has two readings
    text = _with_thousands(parser, parser.take())
    if text.isdigit():
        return Number(read_numeral(text) + (Fraction(0) if divides else _proper_fraction(parser)))
    if text.endswith(".") and parser.sees("(") and parser.token.start == parser.before.end:
        raise Unreadable("a period in brackets has two readings")
    return numeral(text)


def numeral(text: str) -> Node:
    """The value of a numeral; of `1.5e-4` the product, its power left to the bounds on cost."""
    mantissa, _, exponent = text.upper().partition("E")
    if not exponent.lstrip("+-").isdigit():
        return Number(read_numeral(text))
    power = Power(Number(Fraction(10)), Number(Fraction(int(exponent[:9]))))
    return Product((Number(read_numeral(mantissa)), power))


def read_numeral(text: str) -> Fraction:
    r"""The value of `12`, `1.5`, `.5`, `0.1\overline{6}` or `0.\dot{1}2\dot{3}`.

    >>> read_numeral("1.25"), read_numeral(r"0.1\overline{6}"), read_numeral(r"0.\dot{3}")
    (Fraction(5, 4), Fraction(1, 6), Fraction(1, 3))
    """
    if len(text) > MAX_DIGITS:
        raise Unreadable(f"a numeral of more than {MAX_DIGITS} digits")
    if text.isdigit():
        return Fraction(int(text))
    fixed, slash, period = text.partition("\\")
    whole, _, decimals = fixed.partition(".")
    if not whole + decimals and not slash:
        raise Unreadable("a point without digits")
    value = Fraction(int(whole + decimals or "0"), 10 ** len(decimals))
    if not slash:
        return value
    repeated = "".join(_DIGITS.findall(period))
    return value + Fraction(int(repeated), (10 ** len(repeated) - 1) * 10 ** len(decimals))


def _with_thousands(parser: Parser, token: Token) -> str:
    """The numeral that begins with `token` and goes on in groups of three behind commas."""
    text, end = token.text, token.end
    separate = parser.brackets[-1][1] or len(text) > 3
    while not separate and text.isdigit() and parser.sees(",") and parser.token.start == end:
        group = parser.tokens[parser.at + 1]
        three = group.kind == "number" and len(group.text.partition(".")[0]) == 3
        if not three or group.start != end + 1:
            break
        text, end = text + group.text, group.end
        parser.at += 2
    return text


def _proper_fraction(parser: Parser) -> Fraction:
    r"""The value of the `\frac{1}{2}` or `1/2` that makes a mixed number, now read; else 0."""
    kind = "/" if parser.token.kind == "number" else parser.token.text
    pattern = _FRACTIONS.get(kind, [])
    texts = parser.upcoming(len(pattern))
    pairs = list(zip(pattern, texts, strict=False))
    numerals = [text for mark, text in pairs if not mark]
    if len(numerals) < 2 or not all(text.isdigit() for text in numerals):
        return Fraction(0)
    numerator, denominator = map(read_numeral, numerals)
    fits = len(texts) == len(pattern) and all(mark in ("", text) for mark, text in pairs)
    if not fits or not 0 < numerator < denominator:
        return Fraction(0)
    parser.at += len(pattern)
    return numerator / denominator
