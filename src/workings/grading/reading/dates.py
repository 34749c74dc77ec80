"""Dates in words, in one order: "5 March", "March 5th" and "Mar. 5" are one day."""

from __future__ import annotations

import re

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_MONTH = r"(?P<month>jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s+(?P<year>\d{4}))?"
_WEEKDAY = r"(?:(?P<weekday>(?:mon|tues|wednes|thurs|fri|satur|sun)day),?\s+)?"
_MONTH_FIRST = re.compile(rf"{_WEEKDAY}{_MONTH}\s*(?:the\s+)?{_DAY}{_YEAR}")
_DAY_FIRST = re.compile(rf"{_WEEKDAY}(?:the\s+)?{_DAY}\s+(?:of\s+)?{_MONTH}{_YEAR}")


def date_in(spoken: str) -> str | None:
    """The date that lower-case words say, in one order; None where they say anything else.

    >>> date_in("5th of march"), date_in("march 5, 1998"), date_in("march")
    ('march 5', 'march 5 1998', None)
    """
    match = _MONTH_FIRST.fullmatch(spoken) or _DAY_FIRST.fullmatch(spoken)
    if match is None:
        return None
    month = next(name for name in _MONTHS if name.startswith(match["month"][:3]))
    parts = (match["weekday"], month, str(int(match["day"])), match["year"])
    return " ".join(part for part in parts if part)
