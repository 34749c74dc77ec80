"""Answers in words: what counts as the same word, number words, and phrases with a meaning."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

from workings.grading.reading.chinese import chinese_number
from workings.grading.text.normalise import compact, plain_text

Phrase = Literal["nothing", "undefined", "everything", "positives", "integers", "endless"]

_SAID: dict[Phrase, str] = {
    "nothing": "no solution|no solutions|no real solution|no real solutions|no real root|"
    "no real roots|no roots|no such number|no such numbers|no integer solutions|"
    "there is no solution|there are no solutions|has no solution|empty set|the empty set|"
    "null set|inconsistent|无解|空集|没有解|\\emptyset|\\{\\}",
    "undefined": "undefined|not defined|is undefined|does not exist|dne|doesn't exist|"
    "the limit does not exist|limit does not exist|不存在|无意义",
    "everything": "all real numbers|all reals|all real number|any real number|"
    "every real number|all real values|the set of all real numbers|set of all real numbers|"
    "the real numbers|reals|全体实数|一切实数|任意实数|实数集|\\mathbb{R}|\\Bbb{R}|\\reals|"
    "all real x|all x|all numbers|the entire real line",
    "positives": "positive integers|all positive integers|正整数|\\mathbb{Z}^+|\\mathbb{N}^+|"
    "\\mathbb{N}^*|\\mathbb{Z}_{>0}|\\mathbb{N}_+|\\mathbb{Z}_+|\\mathbb{N}_{+}|\\mathbb{Z}^{+}|\\mathbb{N}^{*}",
    "integers": "integers|all integers|the integers|整数|\\mathbb{Z}",
    "endless": "infinitely many|infinitely many solutions|infinite solutions|infinite|"
    "infinite number of solutions|an infinite number of solutions|无数个|无穷多|无穷多个|无数",
}
_PHRASES = {said: phrase for phrase, many in _SAID.items() for said in many.split("|")}
_SYNONYMS = {
    "是": "yes", "对": "true", "正确": "true", "否": "no", "不是": "no", "错": "false",
    "错误": "false", "correct": "true", "incorrect": "false",
}  # fmt: skip
_ARTICLE = re.compile(r"^(?:an?|the|it is|it's|is)\s+")
_EDGES = " \t\n.,;:!?'\"`*_()[]{}$。，"
_HEAD = re.compile(
    r"(?P<head>yes|no|true|false|correct|incorrect)(?:\s*[,.;:(–—-]|\s+(?:because|since|as)\b)\s*"
    r"(?P<rest>.*)",
    re.DOTALL,
)
_HEADS = re.compile(r"\b(?:yes|no|true|false)\b")
_UNITS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14,
    "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19,
}  # fmt: skip
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70,
    "eighty": 80, "ninety": 90,
}  # fmt: skip
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
          "eighth": 8, "ninth": 9, "tenth": 10}  # fmt: skip
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6,
             "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10, "eleventh": 11,
             "twelfth": 12}  # fmt: skip
_CHANCE = re.compile(r"(\d{1,9}) (?:in|out of) (\d{1,9})")
_ORDINAL = re.compile(r"(\d{1,6})\s*(?:\^\s*\{?\s*)?(?:st|nd|rd|th)\s*\}?")
_FUNCTIONS = {
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
    "log", "ln", "lg", "exp", "sqrt", "abs", "min", "max", "gcd", "lcm", "inf", "oo",
}  # fmt: skip
_CHOICES = set("ABCDEFGH")
_VOWEL = re.compile(r"[aeiouAEIOU]|[^\x00-\x7f]")
_LETTER_RUNS = re.compile(r"[^\W\d_]{2,}")
_MACROS = re.compile(r"\\[a-zA-Z]+")
_MATH = re.compile(r"[=<>^_+/|]|\\(?!text\{|emptyset|mathbb)[a-zA-Z]")


def phrase_of(text: str) -> Phrase | None:
    r"""What a phrase with a fixed meaning means, None for any other text.

    >>> phrase_of(r"\text{No solutions}"), phrase_of("DNE"), phrase_of("0")
    ('nothing', 'undefined', None)
    """
    if len(text) > 80:
        return None
    return _PHRASES.get(spoken(text)) or _PHRASES.get(compact(text))


def spoken(text: str) -> str:
    r"""`text` as it would be said: no case, style, articles or punctuation around it.

    >>> spoken(r"\text{a  Parallelogram.}"), spoken("是"), spoken("yes")
    ('parallelogram', 'yes', 'yes')
    """
    words = " ".join(plain_text(text).lower().replace("-", " ").split()).strip(_EDGES)
    words = _ARTICLE.sub("", words)
    return _SYNONYMS.get(words, words)


def head_of(text: str) -> str | None:
    """The "yes", "no", "true" or "false" that a sentence begins with, unless it says both.

    >>> head_of("Yes, since 7 is odd."), head_of("Yes or no"), head_of("yes; no")
    ('yes', None, None)
    """
    match = _HEAD.match(spoken(text))
    if match is None or _HEADS.search(match["rest"]):
        return None
    return _SYNONYMS.get(match["head"], match["head"])


def is_wordy(text: str) -> bool:
    r"""True where `text` is words and not mathematics.

    >>> is_wordy("Evelyn"), is_wordy("x+1"), is_wordy("ab"), is_wordy(r"\text{if } x > 2")
    (True, False, False, False)
    """
    if _MATH.search(text):
        return False
    in_text = "\\text{" in text
    plain = _MACROS.sub(" ", plain_text(text))
    if not plain.isascii() and any("\u4e00" <= sign <= "\u9fff" for sign in plain):
        return True
    runs = _LETTER_RUNS.findall(plain)
    return bool(runs) and (in_text or any(map(_is_word, runs)) or _is_short_word(plain))


def number_in_words(text: str) -> Fraction | None:
    """The number that words say, None where they say anything else.

    >>> number_in_words("twenty-one"), number_in_words("three hundred and five")
    (Fraction(21, 1), Fraction(305, 1))
    >>> number_in_words("one half"), number_in_words("3rd"), number_in_words("one or two")
    (Fraction(1, 2), Fraction(3, 1), None)
    """
    if len(text) > 100:
        return None
    plain = " ".join(plain_text(text).lower().strip(_EDGES).split())
    if "!" in text:
        return None
    if not plain.isascii():
        return chinese_number(plain)
    ordinal = _ORDINAL.fullmatch(plain)
    if ordinal:
        return Fraction(int(ordinal[1]))
    if plain in _ORDINALS:
        return Fraction(_ORDINALS[plain])
    whole, _, part = plain.replace("-", " ").partition(" and ")
    if part.removeprefix("a ").removeprefix("one ") in _PARTS:
        count = _cardinal(whole.split())
        part_value = Fraction(1, _PARTS[part.split()[-1]])
        return None if count is None else count + part_value
    for sign in ("negative ", "minus "):
        if plain.startswith(sign):
            rest = plain.removeprefix(sign)
            size = Fraction(rest) if rest.isdecimal() else number_in_words(rest)
            return None if size is None else -size
    chance = _CHANCE.fullmatch(plain)
    if chance and int(chance[2]):
        return Fraction(int(chance[1]), int(chance[2]))
    words = plain.replace("-", " ").split()
    if not words or not all(word.isalpha() for word in words):
        return None
    if words[-1].rstrip("s") in _PARTS and len(words) > 1:
        count = 1 if words[:-1] in (["a"], ["one"]) else _cardinal(words[:-1])
        denominator = _PARTS[words[-1].rstrip("s")]
        return Fraction(count, denominator) if count is not None and count < denominator else None
    value = _cardinal(words)
    return None if value is None else Fraction(value)


def _cardinal(words: list[str]) -> int | None:
    total = group = 0
    previous = ""
    for word in words:
        if word == "and" and previous in _SCALES:
            continue
        if word in _UNITS and (not previous or previous in _SCALES or _follows_ten(previous, word)):
            group += _UNITS[word]
        elif word in _TENS and (not previous or previous in _SCALES):
            group += _TENS[word]
        elif word == "hundred" and 0 < group < 10:
            group *= 100
        elif word in _SCALES and word != "hundred" and group:
            total, group = total + group * _SCALES[word], 0
        else:
            return None
        previous = word
    return total + group if previous else None


def _follows_ten(previous: str, word: str) -> bool:
    return previous in _TENS and 0 < _UNITS[word] < 10


def _is_word(run: str) -> bool:
    """True for a run of letters that is no product and no name of a function: "xyz" and "sin"."""
    if run.isupper() and len(run) < 8 and set(run) <= _CHOICES and len(set(run)) == len(run):
        return False  # several letters of a multiple choice
    return len(run) >= 3 and run not in _FUNCTIONS and bool(_VOWEL.search(run) or len(run) > 4)


def _is_short_word(plain: str) -> bool:
    return spoken(plain) in ("no", "is", "am", "pm", "or", "if")
