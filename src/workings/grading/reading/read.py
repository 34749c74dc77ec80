r"""Normalised text to an `Answer`: what kind of thing it is, and its parts.

The order of the questions is the design: fixed phrases, numbers and the short forms of fixed
shape first, then whatever is bracketed as a whole, words, what falls into parts at its top level
(unions, lists, relations), and a formula last. Nothing is evaluated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from workings.grading.reading.answers import (
    Answer,
    Assignments,
    Collection,
    Complement,
    Expression,
    Family,
    Meaning,
    Words,
)
from workings.grading.reading.brackets import read_bracketed
from workings.grading.reading.conditions import read_conditioned
from workings.grading.reading.dates import date_in
from workings.grading.reading.enumerations import numbered_parts
from workings.grading.reading.number import Number, read_number, read_tail
from workings.grading.reading.parts import LIST, named, read_parts
from workings.grading.reading.relations import name_in
from workings.grading.reading.residues import read_residues
from workings.grading.reading.short_forms import read_clock, read_short_form
from workings.grading.reading.units import read_unit
from workings.grading.reading.words import head_of, is_wordy, phrase_of, spoken
from workings.grading.text.braces import encloses, split_top
from workings.grading.text.normalise import plain_text

Reader = Callable[[str], Answer]

MAX_PARTS = 8
"""Levels of structure inside structure that are read; what lies deeper is a formula."""
_LONGEST_SHORT_FORM = 400

_WHOLE_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_LETTER_U = re.compile(r"([)\]])\s*U\s*([(\[])")
_LOST_TEXT = re.compile(r"(?<![\\a-zA-Z])\{\s*(or|and)\s*\}")
_TEXT_WITH_SEPARATOR = re.compile(r"\\text\s*\{([^{}]*(?:,|;|\bor\b|\band\b)[^{}]*)\}")
_TEXT_SEPARATOR = re.compile(r"(\s*(?:[,;]|(?<![\w-])(?:or|and)(?![\w-]))\s*)")
_INTEGERS = re.compile(
    r"\s*(?:[,;(]|\bwhere\b|\bfor\b)?\s*(?:where|for)?\s*(?:any|all|every|some)?\s*(?:integers?)?\s*"
    r"(?<![a-zA-Z])(?P<letter>[a-z])\s*"
    r"(?:\\in\s*(?:\\mathbb\s*\{?\s*)?Z\s*\}?|(?:is|being)\s+(?:an|any)\s+integer|an integer)\s*\)?"
)
_SENTENCE = re.compile(
    r"(?P<words>(?:[^\W\d_]+['\s]+){0,12}(?:is|are|was|were|equals|pays?|costs?|to pay|has|have"
    r"|gets?|receives?|needs?|takes?)|[\u4e00-\u9fff]{1,20}(?:为|是|得|有))\s*:?\s*(?P<value>[^:]*\d[^:]*)"
)
_HEDGES = re.compile(
    r"\b(?:not|no|never|n't|less|more|than|least|most|about|approximately|between|or|either|if"
    r"|almost|nearly|except|cannot|maybe|perhaps|incorrect|wrong)\b|不|约|可能|至少|至多"
)
_MAPPING = re.compile(
    r"(?P<name>[a-zA-Z])\s*:\s*(?P<argument>[a-z])\s*\\(?:long)?mapsto\s*(?P<value>.+)", re.DOTALL
)
_MONTH = re.compile(r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)", re.IGNORECASE)
_PREFIX = re.compile(
    r"(?:\\text\s*\{)?\s*(?:the\s+)?(?:final\s+)?"
    r"(?:(?:answer|solution|result)s?\s*(?:is|are)?\s*:?"
    r"|(?:ordered\s+pair|point|interval|set|vector|coordinates|value|number|equation)s?\s*(?:is|are)?\s*:?)"
    r"\s*(?:\}|(?<=[\s:]))\s*(?=[^a-zA-Z])",
    re.IGNORECASE,
)
_COMPARED = re.compile(
    r"(?:all (?:real )?(?:numbers|values|x)(?: x)?|(?P<name>[a-z])(?: is| must be)?) "
    r"(?P<order>greater than or equal to|at least|no less than|greater than|more than|larger than"
    r"|less than or equal to|at most|no more than|less than|smaller than) (?P<end>\S+)"
)
_ORDERS = {
    "greater than or equal to": r"\ge", "at least": r"\ge", "no less than": r"\ge",
    "greater than": ">", "more than": ">", "larger than": ">", "less than or equal to": r"\le",
    "at most": r"\le", "no more than": r"\le", "less than": "<", "smaller than": "<",
}  # fmt: skip
_IN_TEXT_FUNCTION = re.compile(
    r"\\text\s*\{\s*(sqrt|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|pi|cis|gcd|lcm|max|min|erf|floor|ceil|arsinh|arcosh|artanh|[eE])\s*\}(?=\s*[-+(\d\\])"
)
_EXCEPT = re.compile(
    r"(?:all|any) (?:real )?(?:numbers|values|x)(?: x)? (?:except|other than|but)(?: for)?\s+(.+)"
)
_LONGEST_DECIMAL = 60
_DOTS = re.compile(r"(\d*\.\d*?)(\d{1,4}?)\2{2,}\s*(?:\\(?:l|c)?dots(?![a-zA-Z])|\.\.\.|…)")
_UNIT_TOKEN = (
    r"(?:\\text\s*\{[^{}]*\}|\\?%|\^\s*\{?\s*\\circ\s*\}?|\^\s*\{?\s*-?\s*\d\s*\}?|\s|/\s*[a-zA-Z]{0,4}"
    r"|\\cdot(?![a-z]))"
)
_TRAILING_UNIT = re.compile(
    rf"(?<=[\d)}}a-zA-Z\]!\s])(?=\\text|\\?%|\^\s*\{{?\s*\\circ){_UNIT_TOKEN}{{1,12}}$"
)
_BARE_UNIT = re.compile(
    r"(?P<body>.*[\d)}])\s*(?<![\\a-zA-Z])(?P<tail>[a-zA-Z]{2,}(?:\s+[a-z]+)?(?:\^\{?[23]\}?)?)",
    re.DOTALL,
)
_SINGLE_UNIT = re.compile(r"(?P<body>.*\d|.*\})\s*(?P<unit>[a-zA-Z])(?P<power>\^\{?[23]\}?)?$")
_TRIGONOMETRY = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)")
_LEADING_CURRENCY = re.compile(r"(?P<sign>-?)\s*(?P<currency>\\\$|[€£¥₩₹])\s*(?P<body>.+)")
_CURRENCY_NAMES = {"\\$": "dollar", "€": "euro", "£": "gbp", "¥": "yuan", "₩": "won", "₹": "rupee"}


def read_answer(text: str, depth: int = 0) -> Answer:
    r"""What the normalised `text` is; always something, a formula where no rule applies.

    >>> read_answer(r"\{1, 2\}").brackets, read_answer("x=5").name
    ('{}', 'x')
    """
    text = _lifted(text)
    if depth > MAX_PARTS:
        return Expression(text)
    read = partial(read_answer, depth=depth + 1)
    for reader in _READERS:
        answer = reader(text, read)
        if answer is not None:
            return answer
    return _read_formula(text)


def read_with_unit(text: str) -> Answer | None:
    """`text` with a single letter at its end taken for a unit: "7g" beside "7 kg"; None if none.

    >>> read_with_unit("7g").unit.name
    'g'
    """
    match = _SINGLE_UNIT.fullmatch(text)
    if match is None:
        return None
    unit = read_unit(match["unit"] + (match["power"] or ""))
    body = read_answer(match["body"].strip())
    if unit is None or not unit.is_known:
        return None
    if isinstance(body, Number) and body.unit is None and not body.percent:
        return Number(
            value=body.value, kind=body.kind, places=body.places, digits=body.digits, unit=unit
        )
    if isinstance(body, Expression) and body.unit is None and not body.percent:
        return Expression(body.text, unit)
    return None


def _read_short(text: str, read: Reader) -> Answer | None:
    if len(text) < 60 and text.rstrip("}. ").lower().endswith("m"):
        clock = read_clock(plain_text(text).strip())
        if clock is not None:
            return clock
    if _MONTH.search(text) and len(text) < 60:
        date = date_in(spoken(text))
        if date is not None:
            return Words(date)
    number = read_number(text) or _read_continued(text)
    if number is not None:
        return number
    if len(text) > _LONGEST_SHORT_FORM:
        return None
    mapping = _MAPPING.fullmatch(text)
    if mapping:
        return read(f"{mapping['name']}({mapping['argument']})={mapping['value']}")
    phrase = phrase_of(text)
    if phrase is not None:
        return Meaning(phrase)
    return read_residues(text) or read_short_form(plain_text(text).strip())


def _read_continued(text: str) -> Number | None:
    """A decimal that goes on: "0.363636..." repeats the digits that it shows three times."""
    if len(text) > _LONGEST_DECIMAL or "." not in text or not text.endswith((".", "dots", "…")):
        return None
    return read_number(_DOTS.sub(r"\1\\overline{\2}", text))


def _read_numbered(text: str, read: Reader) -> Answer | None:
    parts = numbered_parts(text)
    if parts is None:
        return None
    return Assignments(parts[0], tuple(read(content) for content in parts[1]))


def _read_family(text: str, read: Reader) -> Answer | None:
    """An answer with an integer parameter, whose letter does not matter."""
    if not ("Z" in text or "integer" in text) or len(text) > 400:
        return None
    plain = plain_text(text)
    match = next((m for m in _INTEGERS.finditer(plain) if m.end() == len(plain)), None)
    if match is None or match.start() == 0 or match["letter"] in "xe":
        return None
    body = plain[: match.start()].strip(" ,;")
    if encloses(body + ")"):
        body = body.removeprefix("(")
    letter = rf"(?<![a-zA-Z\\]){match['letter']}(?![a-z])"
    if not body or not re.search(letter, body):
        return None
    return Family(read(re.sub(letter, "k", body)))


def _read_worded(text: str, read: Reader) -> Answer | None:
    prefix = _PREFIX.match(text)
    if prefix and prefix.end() < len(text):
        return read(text[prefix.end() :])
    if len(text) > _LONGEST_SHORT_FORM:
        return None
    plain = plain_text(text).strip()
    head = head_of(plain)
    if head is not None:
        return Words(spoken(text), head)
    if not is_wordy(text):
        return None
    said = spoken(plain)
    ordered = _COMPARED.fullmatch(said)
    if ordered:
        return read(f"{ordered['name'] or 'x'} {_ORDERS[ordered['order']]} {ordered['end']}")
    exception = _EXCEPT.fullmatch(said) if "x" in plain else None
    if exception:
        points = read(exception[1])
        items = points.items if isinstance(points, Collection) else (points,)
        return Complement(items)
    pieces = split_top(text, LIST)[0]
    label, _, rest = plain.partition(":")
    is_label = rest.strip() and name_in(label) is not None and not rest.strip().startswith(":")
    if is_label and not any(":" in piece for piece in pieces[1:]):
        return named(name_in(label) or "", rest.strip(), label, read)
    return None if len(pieces) > 1 else _read_sentence(plain, read) or Words(said)


def _read_sentence(plain: str, read: Reader) -> Answer | None:
    """The value that a short sentence ends in: "The area is 12 square units"."""
    match = _SENTENCE.fullmatch(plain)
    if match is None or _HEDGES.search(match["words"].lower()):
        return None
    value = read(match["value"])
    return value if isinstance(value, Number) else None


def _read_formula(text: str) -> Answer:
    match = _LEADING_CURRENCY.fullmatch(text)
    if match:
        unit = read_unit(_CURRENCY_NAMES[match["currency"]])
        return Expression(match["sign"] + match["body"], unit)
    if len(text) > _LONGEST_SHORT_FORM:
        return Expression(text)
    tail = _TRAILING_UNIT.search(text)
    if tail is not None:
        return _measured(text[: tail.start()].strip(), tail[0]) or Expression(text)
    bare = _BARE_UNIT.fullmatch(text)
    if bare is not None:
        measured = _measured(bare["body"].strip(), bare["tail"])
        if measured is not None and measured.unit is not None and measured.unit.is_known:
            return measured
    return Expression(text)


def _measured(body: str, tail: str) -> Expression | None:
    """A formula with its unit or percent sign apart; None where the tail is neither."""
    read = read_tail(tail)
    if not body or body.endswith(("\\cdot", "\\times")) or read in (None, (False, None)):
        return None
    percent, unit = read if read is not None else (False, None)
    if unit == read_unit("degree") and _TRIGONOMETRY.search(body):
        return None  # "\\sin 75^\\circ" is a sine, not so many degrees
    return Expression(body, unit, percent)


def _lifted(text: str) -> str:
    r"""`text` with no `\text` around the whole, and its separators outside of any `\text`."""
    whole = _WHOLE_TEXT.fullmatch(text)
    if whole is not None:
        inner = whole[1].strip()
        is_word = inner.isalpha() and is_wordy(inner)
        return text if is_word else inner
    text = _LETTER_U.sub(r"\1 \\cup \2", _LOST_TEXT.sub(r" \1 ", text))
    if "\\text" not in text:
        return text
    text = _IN_TEXT_FUNCTION.sub(r"\1", text)
    return _TEXT_WITH_SEPARATOR.sub(_lift_separators, text)


def _lift_separators(match: re.Match[str]) -> str:
    pieces = _TEXT_SEPARATOR.split(match[1])
    return "".join(
        f" {piece.strip()} " if index % 2 else (f"\\text{{{piece}}}" if piece.strip() else "")
        for index, piece in enumerate(pieces)
    )


_READERS = (
    _read_short,
    _read_numbered,
    _read_family,
    read_conditioned,
    read_bracketed,
    _read_worded,
    read_parts,
)
"""In the order in which they are asked; the first that knows what the text is settles it."""
