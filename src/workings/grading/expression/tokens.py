"""A text cut into tokens, in one linear scan."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from workings.grading.expression.names import (
    CONSTANTS,
    FUNCTIONS,
    GREEK_WORDS,
    STOP_WORDS,
    SYMBOLS,
    UPRIGHT_FUNCTIONS,
)
from workings.grading.expression.tree import Unreadable

MAX_TOKENS = 2000

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d*\.\d*(?:\\overline\s*\{\s*\d+\s*\}
                  |\\dot\s*(?:\{\d\}|\d)(?:\d*\\dot\s*(?:\{\d\}|\d))?)
        | (?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+(?![\d.A-Za-z]))?
        | \d+(?:(?:E[+-]?|e)\d+(?![\d.A-Za-z]))?)
    | (?P<word>[A-Za-z]+)
    | (?P<degree>(?:\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree)(?![A-Za-z]))
    | (?P<primes>'+|\^\s*(?:\{\s*(?:(?:\\prime|')\s*)+\}|\\prime(?![A-Za-z])))
    | \\(?:text|operatorname|mathrm)\s*\*?\s*\{(?P<upright>[^{}\\]*)\}
    | \\(?P<macro>[A-Za-z]+)
    | (?P<mark>\*\*|\\[{}|%]|[-+*/^_!%()\[\]{}|,=])
    | (?P<other>\S)
    )""",
    re.VERBOSE,
)
_MARKS = {
    "cdot": "*", "ast": "*", "div": "/", "%": "%", "vert": "|", "mid": "|", "Vert": "\\|",
    "lbrace": "\\{", "rbrace": "\\}", "dfrac": "\\frac", "tfrac": "\\frac", "dbinom": "\\binom",
    "tbinom": "\\binom",
}  # fmt: skip
_PIECE = re.compile(r"[A-Z]{2,}|[A-Z]|[a-z]+")
_NAMES = re.compile("|".join(sorted((*FUNCTIONS, "pi", "sqrt"), key=len, reverse=True)))
_POWER_OF_TEN = re.compile(r"[+-]?\d+e[+-]\d+")  # 2e-3: but 2e - 3 inside a longer text


class Token(NamedTuple):
    """One token, and from where to where it stands.

    `kind` is "number" (`text` as written), "symbol", "function" or "constant" (`text` is the name),
    "words" (the content of a `\\text`), "mark" (`text` is a sign or a macro with its backslash,
    "degree", or primes) or "end".
    """

    kind: str
    text: str
    start: int
    end: int


def tokenize(text: str) -> list[Token]:
    r"""The tokens of `text` and one of kind "end"; Unreadable where a sign has no meaning.

    >>> [token.text for token in tokenize(r"2\sin{ab}^\circ")][:-1]
    ['2', 'sin', '{', 'a', 'b', '}', 'degree']
    """
    tokens: list[Token] = []
    if _POWER_OF_TEN.fullmatch(text):
        text = text.upper()
    for match in _TOKEN.finditer(text.rstrip()):
        kind = match.lastgroup or "other"
        written, (start, end) = match[kind], match.span(kind)
        if kind == "word":
            tokens.extend(_word(written, start))
        elif kind == "macro":
            tokens.extend(_macro(written, start - 1, end))
        elif kind == "upright":
            tokens.extend(_upright(written.strip(), start, match.end()))
        elif kind == "other":
            raise Unreadable(f"the sign '{written}' has no meaning in an expression")
        elif kind == "number":
            tokens.append(Token(kind, written, start, end))
        else:
            tokens.append(Token("mark", _mark(kind, written), start, end))
        if len(tokens) > MAX_TOKENS:
            raise Unreadable(f"more than {MAX_TOKENS} tokens")
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


def _mark(kind: str, written: str) -> str:
    if kind == "degree":
        return kind
    if kind == "primes":
        return "'" * (written.count("'") + written.count("prime"))
    return "%" if written == "\\%" else written


def _named(name: str, start: int, end: int) -> Token | None:
    """The token of a name with a meaning."""
    for kind, names in (
        ("function", FUNCTIONS), ("function", UPRIGHT_FUNCTIONS), ("constant", CONSTANTS),
        ("symbol", SYMBOLS),
    ):  # fmt: skip
        if name in names:
            return Token(kind, names[name], start, end)
    return Token("mark", "\\sqrt", start, end) if name == "sqrt" else None


def _macro(name: str, start: int, end: int) -> list[Token]:
    known = _named(name, start, end)
    if known is not None:
        return [known]
    if name not in _MARKS and name != "lne" and _NAMES.fullmatch(name[:-1]):
        glued = _named(name[:-1], start, end - 1)  # `\sinx`: a space was lost
        if glued is not None:
            return [glued, Token("symbol", name[-1], end - 1, end)]
    return [Token("mark", _MARKS.get(name, f"\\{name}"), start, end)]


def _upright(content: str, start: int, end: int) -> list[Token]:
    r"""The tokens of `\text{content}`: of a name with a meaning, of e, i, d or capitals."""
    if not content:
        return []
    known = _named(content, start, end)
    if known is not None:
        return [known]
    letters = content in ("e", "i", "d") or (
        content.isascii() and content.isalpha() and content.isupper()
    )
    return [Token("symbol" if letters else "words", content, start, end)]


def _word(word: str, start: int) -> list[Token]:
    """The tokens of a run of letters: names where it holds any, else factors."""
    if word.lower() in STOP_WORDS:
        raise Unreadable(f"'{word}' is a word")
    tokens: list[Token] = []
    for match in _PIECE.finditer(word):
        piece, first, last = match[0], start + match.start(), start + match.end()
        if piece.isupper():
            tokens.append(Token("symbol", piece, first, last))
        else:
            tokens.extend(_lower_case(piece, first, last))
    return tokens


def _lower_case(piece: str, start: int, end: int) -> list[Token]:
    if piece in GREEK_WORDS or piece in CONSTANTS:
        token = _named(piece, start, end)
        return [token] if token is not None else []
    name = _NAMES.search(piece)
    if name is not None and name.start() <= 2 and len(piece) - name.end() <= 1:  # `xsinx`
        token = _named(name[0], start + name.start(), start + name.end())
        if token is not None:
            before, behind = piece[: name.start()], piece[name.end() :]
            return [*_letters(before, start), token, *_letters(behind, token.end)]
    if len(piece) > 3 and any(left >= right for left, right in pairwise(piece)):
        raise Unreadable(f"'{piece}' is a word")
    return _letters(piece, start)


def _letters(piece: str, start: int) -> list[Token]:
    return [Token("symbol", letter, place, place + 1) for place, letter in enumerate(piece, start)]
