"""Answers of a short fixed shape: choices, clock times, ratios, based numbers, added measures.

Each reader takes a text without `\\text` and gives None where the text is anything else.
"""

from __future__ import annotations

import re
from fractions import Fraction

from workings.grading.reading.answers import (
    Answer,
    Based,
    Choice,
    Clock,
    Collection,
    Infinity,
    Ratio,
)
from workings.grading.reading.number import Number
from workings.grading.reading.units import conversion, read_unit
from workings.grading.reading.words import number_in_words
from workings.grading.text.normalise import compact
from workings.grading.text.symbols import CIRCLED

_INFINITY = re.compile(
    r"(?P<sign>[+-]|\\pm|positive |negative |minus |plus )?\s*(?:\\infty|infinity|inf|oo|无穷大?)"
)
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer|选项?|答案)\s*(?:is|:|是|为)?\s*)?"
    r"(?P<open>[(\[【]?)\s*(?P<letter>[A-J]|[a-j](?=\s*[)\]】]))"
    r"(?:\s*(?P<close>[)\]】]?)\s*(?P<stop>[.:]?)|\s*[).:]\s*(?P<text>[^\s+*/^=,].*)"
    r"|\s*\)\s*(?P<text2>[^\s+*/^=,].*))",
    re.DOTALL | re.IGNORECASE,
)
_JOINS = re.compile(r"(?:or|and|nor|not)\b", re.IGNORECASE)
_LETTER = re.compile(r"(?<![A-Za-z\\])[A-J](?![A-Za-z])|\(\s*[a-j]\s*\)")
_BASED = re.compile(
    r"-?\(?(?P<digits>\d[\dA-Za-z]*(?:\.(?:[\dA-Za-z]+|[\dA-Za-z]*\\overline\{[\dA-Za-z]+\}))?)\)?_\{?\(?(?P<base>\d{1,2}|[a-z]+)\)?\}?"
)
_BASE_WORDS = re.compile(
    r"(?P<digits>[\dA-F]+)\s*\(?(?:in )?base[\s-]*(?P<base>\d{1,2}|[a-z]+)\)?", re.IGNORECASE
)
_BASES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16,
}  # fmt: skip
_RATIO = re.compile(r"\d+(?:\.\d+)?(?:\s*(?:\{:\}|:|\bto\b|\\text\{:\}|比)\s*\d+(?:\.\d+)?){1,4}")
_CLOCK = re.compile(
    r"(?P<hour>\d{1,2})(?:\s*\{?:\}?\s*(?P<minute>\d{2}))?(?:\s*\{?:\}?\s*(?P<second>\d{2}))?\s*"
    r"(?P<half>[ap])\.?\s*m\.?",
    re.IGNORECASE,
)
_SIGN = f"[{chr(CIRCLED)}-{chr(CIRCLED + 19)}]"
_CIRCLED = re.compile(rf"{_SIGN}(?:[\s,;]*(?:and|和|与)?\s*{_SIGN})*")
_MEASURE = re.compile(r"(\d+(?:\.\d+)?)\s*([^\W\d_]+)\.?(?:\s*,)?(?:\s+and)?\s*")
_MEASURES = re.compile(rf"(?:{_MEASURE.pattern}){{2,4}}")
_ARC = re.compile(
    r"(\d+)\s*\^\s*\{?\s*\\circ\s*\}?\s*(\d+)\s*(?:'|\^\{\\prime\})\s*(?:(\d+)\s*(?:''|\"))?"
)


def read_short_form(plain: str) -> Answer | None:
    """What a text of at most a few words is, None where no fixed shape fits.

    >>> read_short_form("(B) 12"), read_short_form("212_5")
    (Choice(letter='B', is_marked=True, text='12'), Based(digits='212', base=5))
    >>> read_short_form("5 feet 6 inches").value, read_short_form("2:3").parts
    (Fraction(11, 2), (Fraction(2, 1), Fraction(3, 1)))
    """
    for read_one in (_infinity, _ratio, _based, _compound, _choice, _circled, _spelt):
        answer = read_one(plain)
        if answer is not None:
            return answer
    return None


def read_clock(plain: str) -> Clock | None:
    """The time of day that is written with "am" or "pm".

    >>> read_clock("10:30 p.m.").seconds // 60
    1350
    """
    match = _CLOCK.fullmatch(plain)
    if match is None:
        return None
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if not 1 <= hour <= 12 or minute > 59 or second > 59:
        return None
    hour = hour % 12 + 12 * (match["half"].lower() == "p")
    return Clock((hour * 60 + minute) * 60 + second)


def _infinity(plain: str) -> Answer | None:
    match = _INFINITY.fullmatch(plain.lower())
    if match is None:
        return None
    sign = (match["sign"] or "+").strip()
    if sign == "\\pm":
        return Collection((Infinity(1), Infinity(-1)), "")
    return Infinity(-1 if sign in ("-", "negative", "minus") else 1)


def _ratio(plain: str) -> Answer | None:
    if not _RATIO.fullmatch(plain):
        return None
    parts = re.findall(r"\d+(?:\.\d+)?", plain)
    is_time = all(len(part) == 2 and part < "60" for part in parts[1:])
    return Ratio(tuple(Fraction(part) for part in parts), is_time)


def _based(plain: str) -> Answer | None:
    form = compact(plain)
    match = (_BASED.fullmatch(form) if "_" in form else None) or _BASE_WORDS.fullmatch(plain)
    if match is None:
        return None
    spelt = match["base"].lower()
    base = int(spelt) if spelt.isdigit() else _BASES.get(spelt)
    if base is None or base < 2:
        return None
    digits = match["digits"].upper().lstrip("0") or "0"
    return Based(f"-{digits}" if form.startswith("-") else digits, base)


def _compound(plain: str) -> Answer | None:
    """Measures side by side: "5 feet 6 inches", "2 hours and 30 minutes", degrees and minutes."""
    arc = _ARC.fullmatch(plain)
    if arc is not None:
        degrees, minutes, seconds = (Fraction(arc[place] or 0) for place in (1, 2, 3))
        value = degrees + minutes / 60 + seconds / 3600
        return Number(value=value, kind="exact", unit=read_unit("degree"))
    if len(plain) > 80 or not _MEASURES.fullmatch(plain):
        return None
    parts = [(Fraction(number), read_unit(name)) for number, name in _MEASURE.findall(plain)]
    first = parts[0][1]
    total = Fraction(0)
    for value, unit in parts:
        factor = conversion(unit, first) if unit and first and unit.is_known else None
        if factor is None:
            return None
        total += value * factor
    return Number(value=total, kind="exact", unit=first)


def _choice(plain: str) -> Answer | None:
    match = _CHOICE.fullmatch(plain) if len(plain) < 200 else None
    if match is None:
        return None
    text = match["text"] or match["text2"]
    letter = match["letter"]
    if text and (
        _LETTER.search(text) or _JOINS.match(text) or (letter.islower() and not match["open"])
    ):
        return None
    is_marked = bool(text or match["close"] or match["stop"] or len(plain) > len(letter) + 2)
    if letter.islower() and not is_marked:
        return None
    return Choice(letter.upper(), is_marked, compact(text or ""))


def _circled(plain: str) -> Answer | None:
    """①③, and ① with others in a list, as letters of a multiple choice."""
    if not _CIRCLED.fullmatch(plain):
        return None
    signs = [sign for sign in plain if sign >= chr(CIRCLED)]
    choices = tuple(Choice(sign, is_marked=True) for sign in signs)
    return choices[0] if len(choices) == 1 else Collection(choices, "")


def _spelt(plain: str) -> Answer | None:
    value = number_in_words(plain)
    if value is None:
        return None
    return Number(value=value, kind="integer" if value.denominator == 1 else "exact")
