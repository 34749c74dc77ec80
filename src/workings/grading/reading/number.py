"""Numbers as exact rationals, with what is needed to compare them fairly: places, percent, unit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from workings.grading.cache import remembered
from workings.grading.reading.units import Unit, conversion, read_unit
from workings.grading.text.normalise import plain_text

MAX_DIGITS = 4000
"""Longer numerals are compared as text: Python refuses to convert more than 4,300 digits."""
MAX_EXPONENT = 1000

NumberKind = Literal["integer", "decimal", "exact"]

_UNSIGNED_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = rf"(?:{_UNSIGNED_INTEGER}(?:\.\d*)?|\.\d+)"
_CURRENCY = r"(?:US|HK|A)?\\\$|Rs\.?|(?:\\text\{\s*)?(?:USD|EUR|GBP|CNY|RMB|INR)(?:\s*\})?|[€£¥₩₹]"
_NUMERAL = re.compile(
    rf"""(?P<sign>[+-]?)\s*(?P<currency>{_CURRENCY})?\s*(?P<sign2>[+-]?)\s*
    (?:
        (?P<whole>{_UNSIGNED_INTEGER})?\s*\\frac\{{\s*(?P<num>[+-]?\s*{_DECIMAL})\s*\}}
            \{{\s*(?P<den>[+-]?\s*{_DECIMAL})\s*\}}
      | (?P<whole2>{_UNSIGNED_INTEGER})\s+(?P<num2>\d+)\s*/\s*(?P<den2>\d+)
      | (?P<num3>{_DECIMAL})\s*/\s*(?P<den3>-?{_DECIMAL})
      | (?P<fixed>\d*\.\d*)(?:\\overline\{{(?P<bar>\d+)\}}
            |\\dot\{{?(?P<dot>\d)\}}?(?:(?P<between>\d*)\\dot\{{?(?P<dot2>\d)\}}?)?)
      | (?P<plain>{_DECIMAL})
        (?:\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*\{{?\s*(?P<power>[+-]?\d+)\s*\}}?|[eE](?P<exponent>[+-]?\d+))?
    )(?![\d.])\s*""",
    re.VERBOSE,
)
_PERCENT = re.compile(r"(?:\\?%|percent|per cent)\s*")
_DEGREE = re.compile(r"\^\s*\{?\s*\\circ\s*\}?\s*")
_FUNCTION_WORD = re.compile(
    r"\b(?:or|and|to|from|sin|cos|tan|log|ln|sqrt|pi|mod|is|at|if|less|more|than|over|under|above"
    r"|below|plus|minus|times|about|around|least|most|not|no|except|but|base|then|with)\b|或|和|且|[+=<>(){}\[\]|!]"
)
_TEXT_GROUP = re.compile(r"\\text\s*\{(?:[^{}]|\{[^{}]*\})*\}")
_LETTERS_OUTSIDE = re.compile(r"(?<!\\)(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])")
_UNIT_FRACTION = re.compile(r"\\frac\s*\{\s*([^{}]*?)\s*\}\s*\{\s*([^{}]*?)\s*\}")
_BRACED_POWER = re.compile(r"\^\{(-?\d)\}")
_COUNTED = re.compile(r"\s+[^\W\d_]{4,}(?:\s+[^\W\d_]+){0,3}\.?|\s*[\u4e00-\u9fff]+")
_SCALES = {
    "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12,
    "dozen": 12, "百": 100, "千": 1000, "万": 10_000, "亿": 10**8,
}  # fmt: skip
_SCALE_WORD = "|".join(_SCALES)
_SCALE = re.compile(
    rf"\s*(?:\\text\s*\{{\s*(?P<text>{_SCALE_WORD})(?![A-Za-z])\s*(?P<closed>\}})?"
    rf"|(?P<bare>{_SCALE_WORD})(?![A-Za-z]))",
)
_CODE = re.compile(r"(?:\\text\{\s*)?([A-Z]{3})(?:\s*\})?")
_CURRENCIES = {
    "USD": "dollar", "EUR": "euro", "GBP": "gbp", "CNY": "yuan", "RMB": "yuan", "INR": "rupee",
    "\\$": "dollar", "US\\$": "usd", "HK\\$": "hkd", "A\\$": "aud", "Rs": "rupee", "€": "euro",
    "£": "gbp", "¥": "yuan", "₩": "won", "₹": "rupee",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A numeral as read.

    Attributes:
        value: exact, before any percent sign is applied.
        kind: "integer" ("2024"), "decimal" ("2024.0") or "exact" (a fraction, a repeating decimal).
        places: digits after the decimal point; 0 unless `kind` is "decimal".
        digits: significant digits written.
        percent: True where a percent sign follows.
        unit: the unit behind it, None where there is none.
    """

    value: Fraction
    kind: NumberKind
    places: int = 0
    digits: int = 0
    percent: bool = False
    unit: Unit | None = None


@remembered
def read_number(text: str) -> Number | None:
    r"""The number that the normalised `text` is, or None where it is anything more or less.

    >>> read_number(r"-3\frac{1}{2}").value
    Fraction(-7, 2)
    >>> read_number("1,234").value, read_number("12,34")
    (Fraction(1234, 1), None)
    >>> read_number(r"5\text{ cm}").unit.dimensions
    (('length', 1),)
    """
    if len(text) > MAX_DIGITS:
        return None
    if text.startswith("(") and text.endswith(")") and "," not in text:
        text = text[1:-1].strip()
    match = _NUMERAL.match(text)
    if match is None or (match["sign"] and match["sign2"]):
        return None
    rest, scale = _without_scale(text[len(match[0].rstrip()) :])
    tail = read_tail(rest, match["currency"])
    if tail is None:
        return None
    read = _read_value(match)
    if read is None:
        return None
    value, kind, places = read
    if scale:
        value, places = value * _SCALES[scale], 0
        kind = "integer" if value.denominator == 1 else kind
    if "-" in (match["sign"], match["sign2"]):
        value = -value
    percent, unit = tail
    digits = sum(map(str.isdigit, (match["plain"] or "").lstrip("0.,")))
    return Number(value=value, kind=kind, places=places, digits=digits, percent=percent, unit=unit)


def _without_scale(tail: str) -> tuple[str, str]:
    """(rest, scale word) of what stands behind a numeral: "million" of "3 million people"."""
    match = _SCALE.match(tail)
    if match is None:
        return tail, ""
    scale = match["text"] or match["bare"]
    return ("\\text{" if match["text"] and not match["closed"] else "") + tail[match.end() :], scale


def same_number(answer: Number, gold: Number) -> bool:
    """True where `answer` is the number `gold` under the rounding, percent and unit rules."""
    if answer.unit is not None and gold.unit is not None:
        factor = conversion(answer.unit, gold.unit)
        if factor is None:
            return False
        if factor != 1:
            return answer.value * factor == gold.value
    if answer.percent == gold.percent:
        return _same_value(answer, gold, Fraction(1))
    if answer.percent:
        return _same_value(answer, gold, Fraction(1)) or answer.value / 100 == gold.value
    return _same_value(answer, gold, Fraction(1)) or answer.value * 100 == gold.value


def unit_factor(answer: Unit | None, gold: Unit | None) -> Fraction | None:
    """What turns the unit of the answer into that of the gold; None where they do not convert."""
    if answer is None or gold is None:
        return Fraction(1)
    return conversion(answer, gold)


def _same_value(answer: Number, gold: Number, scale: Fraction) -> bool:
    """Equal, or as close as the way one of them was written allows."""
    difference = abs(answer.value * scale - gold.value)
    if difference == 0:
        return True
    if gold.kind == "decimal" and gold.places >= 2 and answer.kind == "exact":
        return 2 * difference <= Fraction(1, 10**gold.places)
    if gold.kind == "exact" and answer.kind == "decimal" and answer.digits >= 6:
        return 2 * difference <= Fraction(1, 10**answer.places)
    return False


def _read_value(match: re.Match[str]) -> tuple[Fraction, NumberKind, int] | None:
    if match["plain"] is not None:
        return _read_plain(match)
    if match["fixed"] is not None:
        return _read_repeating(match)
    whole = match["whole"] or match["whole2"]
    numerator = _fraction(match["num"] or match["num2"] or match["num3"])
    denominator = _fraction(match["den"] or match["den2"] or match["den3"])
    if denominator == 0 or (whole is not None and not 0 <= numerator < denominator):
        return None  # no value, or a product written like a mixed number
    value = numerator / denominator
    return (value if whole is None else _fraction(whole) + value), "exact", 0


def _read_plain(match: re.Match[str]) -> tuple[Fraction, NumberKind, int] | None:
    numeral = match["plain"]
    exponent = int((match["power"] or match["exponent"] or "0")[:8])
    if abs(exponent) > MAX_EXPONENT:
        return None
    value = _fraction(numeral) * Fraction(10) ** exponent
    _, point, decimals = numeral.partition(".")
    if not point and exponent >= 0:
        return value, "integer", 0
    return value, "decimal", max(len(decimals) - exponent, 0)


def _read_repeating(match: re.Match[str]) -> tuple[Fraction, NumberKind, int] | None:
    fixed = match["fixed"]
    if match["bar"]:
        period = match["bar"]
    else:
        period = match["dot"] + (match["between"] or "") + (match["dot2"] or "")
    places = len(fixed.partition(".")[2])
    repeated = Fraction(int(period), (10 ** len(period) - 1) * 10**places)
    return (_fraction(fixed) if fixed != "." else Fraction(0)) + repeated, "exact", 0


def _fraction(numeral: str) -> Fraction:
    cleaned = numeral.replace(",", "").replace(" ", "").rstrip(".")
    if cleaned.startswith("."):
        cleaned = "0" + cleaned
    return Fraction(cleaned)


def read_tail(tail: str, currency: str | None = None) -> tuple[bool, Unit | None] | None:
    r"""(percent, unit) of what stands behind a value; None where it is more than a unit.

    A single letter is a variable unless it stands in `\text`, and so is a run of unknown letters
    unless it is a word of its own.

    >>> read_tail(r"\%"), read_tail(r"\text{ apples}")[1].name, read_tail("x"), read_tail("abc")
    ((True, None), 'apples', None, None)
    """
    unit = read_unit(_CURRENCIES[_CODE.sub(r"\1", currency).rstrip(".")]) if currency else None
    if not tail.strip():
        return False, unit
    if tail.lstrip().startswith(("\\cdot", "*", "\\times", "-")):
        return None
    in_text = "\\text{" in tail
    if in_text and _LETTERS_OUTSIDE.search(_TEXT_GROUP.sub("", tail)):
        return None
    words = _UNIT_FRACTION.sub(r"\1/\2", plain_text(tail)).strip()
    if _PERCENT.fullmatch(words):
        return (True, unit) if unit is None else None
    if _DEGREE.fullmatch(words):
        return (False, read_unit("degree")) if unit is None else None
    if words == "times":
        return False, None
    if len(words) > 80 or _FUNCTION_WORD.search(_BRACED_POWER.sub(r"^\1", _DEGREE.sub("", words))):
        return None
    if unit is not None and words.startswith(("/", "per ")):
        return False, read_unit(f"{unit.name} {words}")
    spelt = read_unit(words)
    if spelt is None:
        return None
    if not in_text and not spelt.is_known and not _COUNTED.fullmatch(tail):
        return None
    if not in_text and re.match(r"[A-Za-z](?![A-Za-z])", words) and "/" not in words:
        return None  # "5m" may be five times m
    if unit is not None and conversion(spelt, unit) != 1:
        return None
    return False, unit or spelt
