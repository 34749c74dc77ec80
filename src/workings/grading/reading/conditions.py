r"""What stands behind an answer to say when it holds: "(0 < x < 4)", "n \ge 1", "where c is real".

A condition on one side only is not missed; where both sides have one, the two must agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from workings.grading.reading.answers import Answer, Conditioned
from workings.grading.reading.relations import split_relation
from workings.grading.text.braces import split_top

Reader = Callable[[str], Answer]

_SUFFIX = re.compile(
    r"(?:\\text\s*\{\s*)?(?:for (?:all|every|any|each)|where)(?![a-z])[^=<>]{1,80}$"
    r"|\(?\\forall.{1,60}$"
)
_CONSTANTS = re.compile(r"\bwhere\b.*\b(?:constants?|numbers?|reals?|arbitrary|integers?)\b")
_CONDITION_SIGNS = {"<", ">", r"\le", r"\ge", r"\ne", r"\in", "<=", ">=", "!=", r"\lt", r"\gt"}
_SYMBOL = re.compile(r"(?<![a-zA-Z\\])[a-zA-Z](?![a-zA-Z])")


def read_conditioned(text: str, read: Reader) -> Answer | None:
    r"""An answer and its condition; None for a text without one.

    >>> read_conditioned(r"y=x^2\ (0<x<4)".replace("\\ ", " "), str)
    Conditioned(answer='y=x^2', condition='0<x<4')
    >>> read_conditioned("x > 2, x < 5", str) is None
    True
    """
    if len(text) > 400:
        return None
    suffix = _SUFFIX.search(text)
    before = text[: suffix.start()].rstrip().removesuffix(",").rstrip() if suffix else ""
    if suffix and before and _says_when(suffix[0]):
        return Conditioned(read(before), None)
    split = _split(text)
    if split is None:
        return None
    body, condition = split
    signs = split_relation(condition)[1]
    body_signs = split_relation(body)[1]
    if not signs or not set(signs) <= _CONDITION_SIGNS or set(body_signs) - {"="}:
        return None
    subject = _subject(condition)
    if subject is None or subject not in _SYMBOL.findall(body) or body.strip() == subject:
        return None
    return Conditioned(read(body), read(condition))


def _says_when(suffix: str) -> bool:
    return "for " in suffix or "forall" in suffix or bool(_CONSTANTS.search(suffix))


def _split(text: str) -> tuple[str, str] | None:
    """(what holds, when it holds): a bracket at the end, or what follows the last comma."""
    if text.endswith(")"):
        depth = 0
        for place in range(len(text) - 1, 0, -1):
            depth += (text[place] == ")") - (text[place] == "(")
            if depth == 0:
                return (text[:place].strip(), text[place + 1 : -1].strip()) if place else None
    pieces, _ = split_top(text, r",|\\text\{ ?(?:for|where|if|when) ?\}")
    return (pieces[0], pieces[1]) if len(pieces) == 2 and all(pieces) else None


def _subject(condition: str) -> str | None:
    """The one symbol that a condition is about."""
    letters = set(_SYMBOL.findall(re.sub(r"\\mathbb\s*\{[^{}]*\}|\b[NZQR]\b", "", condition)))
    return letters.pop() if len(letters) == 1 else None
