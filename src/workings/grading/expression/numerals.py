"""The exact value of a numeral without sign."""

from __future__ import annotations

import re
from fractions import Fraction

from workings.grading.expression.tree import Unreadable

MAX_DIGITS = 4000
"""Python converts no more than 4,300 digits; what is longer is compared as text."""

_DIGIT_RUN = re.compile(r"\d+")


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
    repeated = "".join(_DIGIT_RUN.findall(period))
    return value + Fraction(int(repeated), (10 ** len(repeated) - 1) * 10 ** len(decimals))
