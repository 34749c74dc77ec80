"""Answers that are no number but follow a short rule: choice letters, numerals in a base."""

from __future__ import annotations

import re

from workings.grading.normalise import canonical, plain_text

_CHOICE = re.compile(
    r"\(?\s*(?P<letter>[A-J])(?:\s*\)?\s*\.?|\s*[).:]\s+(?P<text>[^+*/^=].*))", re.DOTALL
)
_LETTER = re.compile(r"(?<![A-Za-z\\])[A-J](?![A-Za-z])")
_BASED = re.compile(r"\(?(?P<digits>\d[\dA-Za-z]*)\)?_\{?(?P<base>\d{1,2}|[a-z]+)\}?")
_BASES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16,
}  # fmt: skip


def same_structure(answer: str, gold: str) -> bool | None:
    r"""True or False where a rule settles two normalised texts, None where none applies.

    A choice letter agrees with or without brackets, full stop or the text of its option; a base is
    part of the number.

    >>> same_structure(r"\text{(B) 12}", "B"), same_structure("C.", "B")
    (True, False)
    >>> same_structure("B, C", "B") is None
    True
    >>> same_structure("212_6", "212_5"), same_structure(r"2516_{\text{eight}}", "2516_8")
    (False, True)
    """
    choice, gold_choice = _choice(answer), _choice(gold)
    if choice is not None and gold_choice is not None:
        return choice == gold_choice
    based, gold_based = _based(answer), _based(gold)
    if based is not None and gold_based is not None:
        return based == gold_based
    return None


def _choice(text: str) -> str | None:
    match = _CHOICE.fullmatch(plain_text(text)) if len(text) < 200 else None
    if match is None or (match["text"] and _LETTER.search(match["text"])):
        return None
    return match["letter"]


def _based(text: str) -> tuple[str, int] | None:
    match = _BASED.fullmatch(canonical(text)) if "_" in text else None
    if match is None:
        return None
    base = int(match["base"]) if match["base"].isdigit() else _BASES.get(match["base"])
    if base is None:
        return None
    return match["digits"].upper().lstrip("0") or "0", base
