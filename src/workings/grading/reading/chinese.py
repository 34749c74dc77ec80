"""Numbers in Chinese characters."""

from __future__ import annotations

import re
from fractions import Fraction

_DIGITS = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {
    "〇": 0, "两": 2, "壹": 1, "贰": 2, "叁": 3,
}  # fmt: skip
_SMALL = {"十": 10, "百": 100, "千": 1000}
_LARGE = {"万": 10**4, "亿": 10**8}
_NUMERAL = re.compile(r"[零〇一二两三四五六七八九十百千万亿壹贰叁]+")
_PART = re.compile(r"(?P<whole>[^分又]+又)?(?P<below>[^分]+)分之(?P<above>.+)")


def chinese_number(text: str) -> Fraction | None:
    """The number that `text` writes in Chinese characters, None where it writes none.

    >>> chinese_number("三百零五"), chinese_number("五分之三"), chinese_number("百分之五十")
    (Fraction(305, 1), Fraction(3, 5), Fraction(1, 2))
    >>> chinese_number("十二"), chinese_number("三角")
    (Fraction(12, 1), None)
    """
    if text == "一半":
        return Fraction(1, 2)
    part = _PART.fullmatch(text)
    if part is None:
        return _cardinal(text)
    whole = _cardinal(part["whole"][:-1]) if part["whole"] else Fraction(0)
    below, above = _cardinal(part["below"]), _cardinal(part["above"])
    if whole is None or above is None or not below:
        return None
    return whole + above / below


def _cardinal(text: str) -> Fraction | None:
    if not text or not _NUMERAL.fullmatch(text) or len(text) > 30:
        return None
    total = section = digit = 0
    for sign in text:
        if sign in _DIGITS:
            digit = _DIGITS[sign]
        elif sign in _SMALL:
            section += (digit or 1) * _SMALL[sign]
            digit = 0
        else:
            total = (total + section + digit) * _LARGE[sign]
            section = digit = 0
    return Fraction(total + section + digit)
