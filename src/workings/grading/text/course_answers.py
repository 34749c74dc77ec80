"""The answer in a response to an MMLU or a GSM8K question, as the CS336 supplement reads it.

These readers are simpler than `extraction` on purpose: the supplement's numbers are by them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import ascii_uppercase

_STATEMENT = re.compile(
    r"\bthe\s+correct\s+answer\s+is(?:\s*:)?[\s*_$(\[\"'`]*(?P<letter>[A-Z])(?![A-Za-z0-9_'’])"
    r"(?=(?P<rest>[^\n]{0,40}))",
    re.IGNORECASE,
)
_ALONE = re.compile(r"[\s*_$(\[\"'`]*(?P<letter>[A-Z])[\s*_$)\]\"'`.]*")
_SECOND_LETTER = re.compile(r"\s*(?:,|/|&|,?\s*(?:and|or)\b)\s*\(?[A-Z]\b(?!\s+[a-z])")
_ARTICLE = re.compile(r"\s+(?!(?:because|since|as|for|due|which|with|given|but|so)\b)[a-z]")
_NUMBER = re.compile(
    r"(?P<minus>-\s?(?=[$€£¥])|-)?[$€£¥]?(?P<minus2>-)?"
    r"(?P<digits>[0-9]{1,3}(?:,[0-9]{2,3})*,[0-9]{3}(?![0-9])(?:\.[0-9]+)?"
    r"|[0-9]+(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)"
    r"(?P<exponent>[eE][+-]?[0-9]+(?![A-Za-z0-9]))?"
)


def parse_mmlu_response(example: Mapping[str, object], response: str) -> str | None:
    """The letter of the option that `response` gives, None where it gives none or two.

    It stands in a sentence "The correct answer is _"; the last one counts. A response that is a
    letter and nothing else gives that letter; a capital letter elsewhere in prose is no answer.
    `example` is the question: its "options" say which letters there are (A to D without them).

    >>> parse_mmlu_response({}, "The correct answer is B. There is only one.")
    'B'
    >>> parse_mmlu_response({}, "The correct answer is 10000 polyomaviruses.") is None
    True
    """
    options = example.get("options")
    letters = ascii_uppercase[: len(options) if isinstance(options, (list, tuple)) else 4]
    alone = _ALONE.fullmatch(response)
    if alone is not None:
        return alone["letter"] if alone["letter"] in letters else None
    found = None
    for match in _STATEMENT.finditer(response):
        letter, rest = match["letter"], match["rest"]
        if letter not in letters or (letter == "A" and _ARTICLE.match(rest)):
            continue
        found = None if _SECOND_LETTER.match(rest) else letter
    return found


def parse_gsm8k_response(response: str) -> str | None:
    """The last number in `response`, None without one.

    Thousands separators go (1,234 and 1,00,000); decimals and a leading minus stay; a minus after a
    digit, a letter or a closing bracket is a subtraction; a currency sign and the full stop of a
    sentence are no part of the number. Numbers in words are not read.

    >>> parse_gsm8k_response("48 - 5 is 43, so $1,234.50."), parse_gsm8k_response("48-5")
    ('1234.50', '5')
    """
    text = response.replace("\N{MINUS SIGN}", "-")
    last = None
    for match in _NUMBER.finditer(text):
        last = match
    if last is None:
        return None
    before = text[: last.start()]
    attached = before[-1:].isalnum() or before[-1:] in ")]}%" or before.rstrip()[-1:].isdigit()
    negative = last["minus2"] or (last["minus"] and (not before or not attached))
    number = last["digits"].replace(",", "") + (last["exponent"] or "")
    return f"-{number}" if negative else number
