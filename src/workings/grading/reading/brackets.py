"""Answers that one pair of brackets encloses: tuples, sets, intervals; points with a name.

`read` reads what is inside; None is returned where the brackets enclose something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from workings.grading.reading.answers import (
    Answer,
    Collection,
    Family,
    Infinity,
    Interval,
    Meaning,
    Named,
    Region,
    Relation,
)
from workings.grading.reading.enumerations import continued, integers_between
from workings.grading.reading.matrices import read_environment, read_rows
from workings.grading.reading.parts import (
    MAX_ITEMS,
    assigned,
    both_signs,
    has_both_signs,
    read_items,
)
from workings.grading.reading.regions import region_of, spans
from workings.grading.reading.relations import split_relation
from workings.grading.text.braces import encloses, split_top

Reader = Callable[[str], Answer]

_POINT = re.compile(r"(?P<name>[A-Z](?:_\{?\w\}?|')?)\s*(?P<tuple>\(.+\))", re.DOTALL)

_BUILDER = re.compile(
    r"(?P<name>[a-zA-Z]|\\theta)\s*"
    r"(?:\\in\s*(?:\\mathbb\s*\{?\s*R\s*\}?|R|(?P<integers>\\mathbb\s*\{?\s*Z\s*\}?|Z)))?\s*"
    r"(?:\\mid|\\vert|\||:)\s*(?P<condition>.+)",
    re.DOTALL,
)


def read_bracketed(text: str, read: Reader) -> Answer | None:
    r"""The tuple, set, interval, matrix or definition by cases that `text` is as a whole.

    >>> read_bracketed("(0, 1]", str).has_high
    True
    """
    point = _POINT.fullmatch(text)
    if point is not None:
        answer = read_bracketed(point["tuple"], read)
        if not isinstance(answer, Collection):
            return None
        return Named(point["name"], answer, Relation((point["name"], point["tuple"]), ("=",)))
    if "\\begin" in text:
        return read_environment(text, read)
    builder = _BUILDER.fullmatch(text) if "|" in text or "\\mid" in text else None
    if builder:
        return _read_builder(builder, read)  # its braces were LaTeX braces and are gone
    rows = read_rows(text, read)
    if rows is not None:
        return rows
    opening = text[:1]
    if text.startswith("\\{"):
        if text.endswith("\\}") and encloses(text[1:]):
            return _read_braces(text[2:-2].strip(), read)
        return None
    if text.startswith("\\langle") and text.endswith("\\rangle"):
        inner = text[len("\\langle") : -len("\\rangle")]
        return Collection(read_items(split_top(inner, "[,;]")[0], read), "()")
    if opening == "]" and text[-1:] in "[]" and text.count("[") + text.count("]") == 2:
        return _read_pair(text, read)
    if opening not in ("(", "[") or not encloses(text):
        return None
    return _read_pair(text, read)


def _read_pair(text: str, read: Reader) -> Answer | None:
    pieces, _ = split_top(text[1:-1], "[,;]")
    if len(pieces) == 1:
        inner = pieces[0]
        if text[0] == "(" and text[-1] == ")" and _is_whole(inner):
            return read(inner)
        return None
    if not all(pieces) or len(pieces) > MAX_ITEMS:
        return None
    items = read_items(pieces, read)
    first, last = text[0], text[-1]
    named = [item for item in items if isinstance(item, Named)]
    if len(named) == len(items):
        return assigned(named)
    is_pair = len(items) == 2
    if is_pair and (first + last != "()" or any(isinstance(item, Infinity) for item in items)):
        has_low, has_high = first == "[", last == "]"
        if first == "]":
            has_high = last == "]"
        return Interval(items[0], items[1], has_low, has_high)
    if first + last not in ("()", "[]"):
        return None
    if has_both_signs(text):
        return both_signs(text, read)
    return Collection(items, "()" if first == "(" else "[]")


def _read_builder(builder: re.Match[str], read: Reader) -> Answer | None:
    """The part of the line, or the integers in it, that a set is built from."""
    condition = read(builder["condition"])
    if isinstance(condition, Family):
        return condition
    inner = condition.answer if isinstance(condition, Named) else condition
    region = region_of(inner)
    if region is None:
        return None
    if not builder["integers"]:
        return inner
    pieces = spans(region) if isinstance(region, Region) else None
    if pieces is None or len(pieces) != 1:
        return None
    (low, is_after), (high, is_end) = pieces[0]
    if not (isinstance(low, Fraction) and isinstance(high, Fraction)):
        return None
    low += Fraction(1, 2) if is_after and low.denominator == 1 else 0
    high -= Fraction(1, 2) if not is_end and high.denominator == 1 else 0
    integers = integers_between(low, high)
    return None if integers is None else Collection(integers, "{}")


def _is_whole(inner: str) -> bool:
    """True where brackets around `inner` say nothing: what they hold is no product or sum."""
    return inner != "" and split_relation(inner)[1] != []


def _read_braces(inner: str, read: Reader) -> Answer | None:
    if not inner:
        return Meaning("nothing")
    builder = _BUILDER.fullmatch(inner)
    if builder:
        return _read_builder(builder, read)
    pieces, _ = split_top(inner, "[,;]")
    if len(pieces) > MAX_ITEMS or not all(pieces):
        return None
    items = read_items(pieces, read, expand=True)
    return Collection(continued(items) or items, "{}")
