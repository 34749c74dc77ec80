"""A text cut into tokens, in one linear scan."""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from workings.grading.expression.names import (
    CONSTANTS,
    FUNCTIONS,
    GREEK_WORDS,
    MACRO_ONLY,
    STOP_WORDS,
    SYMBOLS,
)
from workings.grading.expression.tree import Unreadable

MAX_TOKENS = 2000

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<repeating>\d*\.\d*(?:\\overline\s*\{\s*\d+\s*\}
          |\\dot\s*(?:\{\d\}|\d)(?:\d*\\dot\s*(?:\{\d\}|\d))?))
    | (?P<scientific>(?:\d+(?:\.\d*)?|\.\d+)[eE][+-]?\d+(?![\d.A-Za-z]))
    | (?P<number>\d+(?:\.\d*)?|\.\d+)
    | (?P<word>[A-Za-z]+)
    | \\(?:text|operatorname|mathrm)\s*\*?\s*\{(?P<text>[^{}\\]*)\}
    | \\(?P<macro>[A-Za-z]+)
    | (?P<mark>\*\*|\\[{}|%]|[-+*/^_!%()\[\]{}|,'=])
    | (?P<other>\S)
    )""",
    re.VERBOSE,
)
_PIECE = re.compile(r"[A-Z]{2,}|[A-Z]|[a-z]+")


class Token(NamedTuple):
    """One token and where it stands.

    `kind` is "number", "repeating" or "scientific" (`text` as written), "symbol", "function" or
    "constant" (`text` is the name), "macro" (`text` without backslash), "mark" or "end".
    """

    kind: str
    text: str
    start: int
    end: int


def tokenize(text: str) -> list[Token]:
    r"""The tokens of `text` and one of kind "end"; Unreadable where a sign has no meaning.

    >>> [token.text for token in tokenize(r"2\sin{ab}")][:-1]
    ['2', 'sin', '{', 'a', 'b', '}']
    """
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text.rstrip()):
        kind = match.lastgroup or "other"
        written, (start, end) = match[kind], match.span(kind)
        if kind == "word":
            tokens.extend(_word(written, start))
        elif kind == "macro":
            tokens.extend(_macro(written, start, end))
        elif kind == "text":
            tokens.extend(_upright(written.strip(), match.start(), match.end()))
        elif kind == "other":
            raise Unreadable(f"the sign {written!r} has no meaning in an expression")
        else:
            tokens.append(Token(kind, written.replace("\\%", "%"), start, end))
        if len(tokens) > MAX_TOKENS:
            raise Unreadable(f"more than {MAX_TOKENS} tokens")
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


def _macro(name: str, start: int, end: int) -> list[Token]:
    known = _known(name, start, end)
    if known is not None:
        return [known]
    for cut in (1, 2):  # "\sinx" and "\pir": a space was lost
        stem, rest = name[:-cut], name[-cut:]
        glued = _known(stem, start, end - cut) if len(stem) > 1 else None
        if glued is not None and glued.kind != "symbol" and name not in _STRUCTURAL:
            return [glued, *_word(rest, end - cut)]
    return [Token("macro", name, start, end)]


_STRUCTURAL = frozenset({"exists", "limsup", "liminf", "coth", "varlimsup"})


def _known(name: str, start: int, end: int) -> Token | None:
    if name in FUNCTIONS:
        return Token("function", FUNCTIONS[name], start, end)
    if name in CONSTANTS:
        return Token("constant", CONSTANTS[name], start, end)
    if name in SYMBOLS:
        return Token("symbol", SYMBOLS[name], start, end)
    return None


def _upright(content: str, start: int, end: int) -> list[Token]:
    r"""The tokens of `\text{content}`: a name of a function or constant, or capitals."""
    if not content:
        return []
    known = _known(content, start, end)
    if known is not None:
        return [known]
    if content in ("sqrt", "frac"):
        return [Token("macro", content, start, end)]
    if content in ("e", "i", "d") or (
        content.isalpha() and content.isascii() and content.isupper()
    ):
        return [Token("symbol", content, start, end)]
    return [Token("words", content, start, end)]


def _word(word: str, start: int) -> list[Token]:
    """The tokens of a run of letters: names where it holds any, else factors."""
    lower = word.lower()
    if lower in STOP_WORDS:
        raise Unreadable(f"{word!r} is a word")
    if word in ("Infinity", "Inf"):
        return [Token("constant", "infinity", start, start + len(word))]
    tokens: list[Token] = []
    for match in _PIECE.finditer(word):
        piece, at = match[0], start + match.start()
        if piece.isupper():
            tokens.append(Token("symbol", piece, at, at + len(piece)))
        else:
            tokens.extend(_lower_case(piece, at))
    return tokens


def _lower_case(piece: str, start: int) -> list[Token]:
    end = start + len(piece)
    if len(piece) == 1:
        return [Token("symbol", piece, start, end)]
    whole = _plain_name(piece, start)
    if whole is not None:
        return [whole]
    for cut in range(len(piece) - 1):  # "xsinx": letters, one name, letters
        for stop in range(len(piece), cut + 1, -1):
            name = _plain_name(piece[cut:stop], start + cut)
            if name is not None and cut <= 2 and len(piece) - stop <= 2:
                return [
                    *_letters(piece[:cut], start),
                    name,
                    *_letters(piece[stop:], start + stop),
                ]
        if cut == 2:
            break
    if len(piece) > 3 and any(left >= right for left, right in itertools.pairwise(piece)):
        raise Unreadable(f"{piece!r} is a word")
    return _letters(piece, start)


def _letters(piece: str, start: int) -> list[Token]:
    return [
        Token("symbol", letter, start + place, start + place + 1)
        for place, letter in enumerate(piece)
    ]


def _plain_name(name: str, start: int) -> Token | None:
    end = start + len(name)
    if name in ("sqrt", "binom"):
        return Token("macro", name, start, end)
    if name in MACRO_ONLY:
        return None
    if name in FUNCTIONS or name in CONSTANTS:
        return _known(name, start, end)
    if name in GREEK_WORDS:
        return Token("symbol", name, start, end)
    return None
