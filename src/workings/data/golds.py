"""The gold answer of a row, reduced to what is compared."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from workings.errors import DataError

GSM8K_MARK = "####"
LONGEST_UNBOXED = 100
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_SPACED_BOX = re.compile(r"\\boxed\s+([^\s${}\\]+)")
"""MATH's own solutions have a few such boxes, around one sign."""
_IN_DOLLARS = re.compile(r"\$([^$]+)\$")
_WITH_COMMAS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")


def reduce_gold(value: object, *, worked: bool = False) -> str:
    """The text to compare with, from a gold column of any known kind.

    Numbers become text (an integral float its integer); a text with `####` gives the number after
    the last mark, thousands separators removed; a text with a box gives the last balanced box; a
    pair of dollar signs around the whole is left out; a list of one gives its element. DataError
    holds the reason where nothing can be compared with.

    `worked` says that the column holds whole solutions: a long text without a box or mark is then
    not an answer.

    >>> reduce_gold("He sold 48/2 = 24 clips.\\n#### 1,234")
    '1234'
    >>> reduce_gold("Hence $x = \\\\boxed{\\\\frac{1}{2}}$.")
    '\\\\frac{1}{2}'
    >>> reduce_gold(142.0), reduce_gold("$2^{10}$")
    ('142', '2^{10}')
    """
    if isinstance(value, bool) or value is None:
        raise DataError(f"the gold is {value}")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DataError(f"the value is {value}; expected a finite number")
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, str):
        return _reduce_text(value, worked)
    if isinstance(value, Sequence) and len(value) == 1:
        return reduce_gold(value[0], worked=worked)
    count = f"of {len(value)} " if isinstance(value, Sequence) else ""
    raise DataError(f"the gold is a {type(value).__name__} {count}and not one text or number")


def last_box(text: str) -> str | None:
    """The content of the last `\\boxed{...}`; None where there is none, or it never closes.

    >>> last_box("first \\\\boxed{1}, then \\\\boxed{\\\\{2\\\\}}")
    '\\\\{2\\\\}'
    """
    openings = list(_BOX.finditer(text))
    if not openings:
        return None
    start = openings[-1].end()
    depth = 1
    position = start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
            continue
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return text[start:position]
        position += 1
    return None


def _reduce_text(text: str, worked: bool) -> str:
    gold = text.strip()
    if GSM8K_MARK in gold:
        gold = gold.rsplit(GSM8K_MARK, 1)[1].strip()
        if _WITH_COMMAS.fullmatch(gold):
            gold = gold.replace(",", "")
    elif _BOX.search(gold):
        boxed = last_box(gold)
        if boxed is None:
            raise DataError("the gold holds a box that never closes")
        gold = boxed.strip()
    elif spaced := _SPACED_BOX.findall(gold):
        gold = spaced[-1].rstrip(".,")
    elif worked and len(gold) > LONGEST_UNBOXED:
        raise DataError(f"the solution of {len(gold)} characters has no box and no ####")
    wrapped = _IN_DOLLARS.fullmatch(gold)
    gold = wrapped[1].strip() if wrapped else gold
    if not gold:
        raise DataError("the gold is empty")
    return gold
