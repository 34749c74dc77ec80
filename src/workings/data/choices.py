"""Multiple choice: the options written under the question, and the gold as a letter."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from string import ascii_uppercase, digits

from workings.errors import DataError

LABELS = "choice_labels"
"""Key of `Problem.extra`: what the choices of the question are called, "ABCD"."""

_LABEL = re.compile(r"\(?([A-Z])[).:]\s*")
_LABEL_IN_LINE = re.compile(r"(?:(?<=\s)|^)([A-Z])[).]\s*")
_SMALL_LABEL_IN_LINE = re.compile(r"(?:(?<=\s)|^)([a-z]) ?\)\s*")
_LABELLED_LINE = re.compile(r"^\(?([A-Z1-9])[).] ", re.MULTILINE)


def options_of(value: object) -> tuple[str, ...]:
    """The texts offered, without their letters; empty where the row offers none.

    A list, a JSON list, a struct with a `text` list (ARC), or one line, "A) 5 B) 6" or
    "a ) 5 , b ) 6" (MathQA), are understood.

    >>> options_of('["A)5", "B)6"]')
    ('5', '6')
    >>> options_of("A) 5 B) 6"), options_of("a ) 5 , b ) 6")
    (('5', '6'), ('5', '6'))
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


def labels_of(value: object) -> tuple[str, ...]:
    """What the row itself calls its options (ARC: A to D, or 1 to 4); empty where it does not say.

    >>> labels_of({"text": ["5", "6"], "label": ["1", "2"]})
    ('1', '2')
    """
    labels = value.get("label") if isinstance(value, dict) else None
    return tuple(str(label) for label in labels) if isinstance(labels, Sequence) else ()


def with_options(question: str, options: Sequence[str]) -> str:
    """The question, then one line per option.

    >>> print(with_options("2+2?", ["3", "4"]))
    2+2?
    A) 3
    B) 4
    """
    lines = [f"{letter}) {text}" for letter, text in zip(ascii_uppercase, options, strict=False)]
    return "\n".join([question.rstrip(), *lines])


def labels_in(question: str) -> str:
    """The labels of the choices that a question lists on lines of their own; "" without any.

    >>> labels_in("2+2?\\n\\nA) 3\\nB) 4"), labels_in("2+2?\\n1) 3\\n2) 4"), labels_in("2+2?")
    ('AB', '12', '')
    """
    return "".join(match[1] for match in _choice_lines(question))


def stem_of(question: str) -> str:
    """The question without the choices that `labels_in` sees in it; "" where it sees none.

    >>> stem_of("2+2?\\n\\nA) 3\\nB) 4"), stem_of("2+2?")
    ('2+2?', '')
    """
    lines = _choice_lines(question)
    return question[: lines[0].start()].rstrip() if lines else ""


def choices_in(question: str) -> tuple[str, ...]:
    """The texts of the choices that `labels_in` sees in the question, without their labels.

    >>> choices_in("2+2?\\n\\nA) 3\\nB) 4"), choices_in("2+2?")
    (('3', '4'), ())
    """
    lines = _choice_lines(question)
    ends = [line.start() for line in lines[1:]] + [len(question)]
    return tuple(question[line.end() : end].strip() for line, end in zip(lines, ends, strict=False))


def letter_of(
    gold: str, options: Sequence[str], labels: Sequence[str] = (), *, by_index: bool = False
) -> str:
    """The letter of the right option: from a label, an option's text, or an index from 0.

    `labels` are what the row itself calls its options; a gold among them is one of them. With
    `by_index` a number is an index, whatever the options say: MMLU's options are numbers often.

    >>> letter_of("2", ["a", "b", "c"]), letter_of("b", ["a", "b", "c"]), letter_of("(C)", "xyz")
    ('C', 'B', 'C')
    >>> letter_of("2", ["a", "b", "c"], labels=["1", "2", "3"])
    'B'
    """
    letters = ascii_uppercase[: len(options)]
    bare = gold.strip().strip("()").rstrip(".)")
    if len(labels) == len(options) and bare in labels:
        return letters[list(labels).index(bare)]
    if by_index and bare.isdecimal() and int(bare) < len(options):
        return letters[int(bare)]
    matches = [letter for letter, text in zip(letters, options, strict=True) if text == gold]
    if len(bare) == 1 and bare in letters:
        return bare
    if len(matches) == 1:
        return matches[0]
    if len(bare) == 1 and bare.upper() in letters:
        return bare.upper()
    if bare.isascii() and bare.isdigit() and int(bare) < len(options):
        return letters[int(bare)]
    raise DataError(f"the gold {gold!r} is none of the {len(options)} options")


def are_indices(golds: Sequence[object], options: Sequence[Sequence[str]]) -> bool:
    """Whether the golds of a data set count its options from 0.

    Whole numbers do. Texts do where all are numbers of an option, unless each is the text of one.

    >>> are_indices(["2", "0"], [["1", "2", "3"], ["x", "y"]])
    True
    >>> are_indices(["2", "1"], [["1", "2", "3"], ["1", "0"]]), are_indices(["4"], [["3", "4"]])
    (False, False)
    """
    if not golds or any(isinstance(gold, bool) for gold in golds):
        return False
    if all(isinstance(gold, int) for gold in golds):
        return True
    texts = [str(gold).strip() for gold in golds]
    pairs = list(zip(texts, options, strict=True))
    if not all(text.isdecimal() and int(text) < len(offered) for text, offered in pairs):
        return False
    return not all(text in offered for text, offered in pairs)


def placed_among(right: str, wrong: Sequence[str], *, question: str) -> tuple[tuple[str, ...], str]:
    """The options, and the letter of the right one, whose place the question's text decides.

    A place of its own for every question, the same in every run and for any subset of the rows.

    >>> placed_among("4", ["3", "5"], question="2+2?")
    (('3', '4', '5'), 'B')
    """
    digest = hashlib.blake2b(question.encode(), digest_size=8, person=b"choices").digest()
    place = int.from_bytes(digest, "big") % (len(wrong) + 1)
    return (*wrong[:place], right, *wrong[place:]), ascii_uppercase[place]


def _choice_lines(question: str) -> list[re.Match[str]]:
    """The beginnings of the lines that list the choices: A, B, ... or 1, 2, ... to the end."""
    found = list(_LABELLED_LINE.finditer(question))
    written = "".join(match[1] for match in found)
    for labels in (ascii_uppercase, digits[1:]):
        first = max(written.rfind(labels[0]), 0)  # a question may number its premises
        last = written[first:]
        if len(last) > 1 and last == labels[: len(last)]:
            return found[first:]
    return []


def _split_line(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    for pattern in (_LABEL_IN_LINE, _SMALL_LABEL_IN_LINE):
        found = list(pattern.finditer(text))
        labels = "".join(match[1] for match in found).upper()
        if labels and labels == ascii_uppercase[: len(labels)]:
            ends = [match.start() for match in found[1:]] + [len(text)]
            parts = (text[m.end() : end].strip() for m, end in zip(found, ends, strict=True))
            return tuple(parts if pattern is _LABEL_IN_LINE else (p.rstrip(", ") for p in parts))
    raise DataError(f"the options {text[:60]!r} are not labelled A) B) C) in order")
