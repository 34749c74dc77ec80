"""Multiple choice: the options written under the question, and the gold as a letter."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from string import ascii_uppercase

from workings.errors import DataError

_LABEL = re.compile(r"\(?([A-Z])[).:]\s*")
_LABEL_IN_LINE = re.compile(r"(?:(?<=\s)|^)([A-Z])[).]\s*")


def options_of(value: object) -> tuple[str, ...]:
    """The texts offered, without their letters; empty where the row offers none.

    A list, a JSON list, a struct with a `text` list (ARC), or one line "A) 5 B) 6" are understood.

    >>> options_of('["A)5", "B)6"]')
    ('5', '6')
    >>> options_of("A) 5 B) 6")
    ('5', '6')
    """
    if isinstance(value, dict):
        value = value.get("text")
    if isinstance(value, str):
        text = value.strip()
        if not text.startswith("["):
            return _split_line(text)
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(f"the options are not a JSON list: {error.msg}") from error
    if value is None:
        return ()
    if not isinstance(value, Sequence) or not all(isinstance(option, str) for option in value):
        raise DataError(f"the options are a {type(value).__name__}; expected a list of texts")
    labels = [_LABEL.match(option) for option in value]
    if all(label and label[1] == ascii_uppercase[i] for i, label in enumerate(labels)):
        return tuple(_LABEL.sub("", option, count=1) for option in value)
    return tuple(value)


def with_options(question: str, options: Sequence[str]) -> str:
    """The question, then one line per option.

    >>> print(with_options("2+2?", ["3", "4"]))
    2+2?
    A) 3
    B) 4
    """
    lines = [f"{letter}) {text}" for letter, text in zip(ascii_uppercase, options, strict=False)]
    return "\n".join([question.rstrip(), *lines])


def letter_of(gold: str, options: Sequence[str]) -> str:
    """The letter of the right option, from a letter, an option's text, or an index from 0.

    >>> letter_of("2", ["a", "b", "c"]), letter_of("b", ["a", "b", "c"]), letter_of("(C)", "xyz")
    ('C', 'B', 'C')
    """
    letters = ascii_uppercase[: len(options)]
    bare = gold.strip().strip("()").rstrip(".)")
    matches = [letter for letter, text in zip(letters, options, strict=True) if text == gold]
    if len(bare) == 1 and bare in letters:
        return bare
    if len(matches) == 1:
        return matches[0]
    if bare.isascii() and bare.isdigit() and int(bare) < len(options):
        return letters[int(bare)]
    raise DataError(f"the gold {gold!r} is none of the {len(options)} options")


def _split_line(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    found = list(_LABEL_IN_LINE.finditer(text))
    labels = "".join(match[1] for match in found)
    if not labels or labels != ascii_uppercase[: len(labels)]:
        raise DataError(f"the options {text[:60]!r} are not labelled A) B) C) in order")
    ends = [match.start() for match in found[1:]] + [len(text)]
    return tuple(text[match.end() : end].strip() for match, end in zip(found, ends, strict=True))
