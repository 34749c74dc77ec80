"""Linear scans over brackets: what encloses a whole text, how deep it nests, where it splits."""

from __future__ import annotations

import re
from functools import lru_cache

OPENING_BOX = r"\\(?:boxed|fbox)\s*\{"
TOKENS = re.compile(rf"(?P<box>{OPENING_BOX})|(?P<open>\{{)|(?P<close>\}})|\\.", re.DOTALL)
"""Braces that count: `\\{` and `\\}` are consumed as escapes, `\\\\` before a `}` too."""

_BRACKETS = re.compile(r"[(\[{]|[)\]}]")
_NESTING = (
    r"(?P<escaped>\\\\)"
    r"|(?P<open>\\begin\{[a-z*]+\}|\\(?:langle|lfloor|lceil|lvert)(?![a-zA-Z])|\\?[(\[{])"
    r"|(?P<close>\\end\{[a-z*]+\}|\\(?:rangle|rfloor|rceil|rvert)(?![a-zA-Z])|\\?[)\]}])"
)


def peel(content: str) -> str | None:
    r"""`content` without boxes and braces around the whole of it; None if nothing is left.

    >>> peel(r" {\boxed{ {8} }} ")
    '8'
    >>> peel("{a}{b}")
    '{a}{b}'
    """
    pairs: dict[int, tuple[int, int]] = {}  # start of an opening -> (first inside, its close)
    stack: list[tuple[int, int]] = []
    for match in TOKENS.finditer(content):
        if match["box"] or match["open"]:
            stack.append(match.span())
        elif match["close"] and stack:
            start, inside = stack.pop()
            pairs[start] = (inside, match.start())
    low, high = 0, len(content)
    while True:
        while low < high and content[low].isspace():
            low += 1
        while low < high and content[high - 1].isspace():
            high -= 1
        inside, close = pairs.get(low, (-1, -1))
        if close != high - 1 or close < 0:
            return content[low:high] or None
        low, high = inside, close


def is_balanced(text: str) -> bool:
    r"""True where every brace that counts has its partner.

    >>> is_balanced(r"\frac{1}{2}"), is_balanced(r"\frac{1}{2"), is_balanced(r"\{1\}")
    (True, False, True)
    """
    depth = 0
    for match in TOKENS.finditer(text):
        if match["box"] or match["open"]:
            depth += 1
        elif match["close"]:
            depth -= 1
            if depth < 0:
                return False
    return depth == 0


def max_depth(text: str) -> int:
    """Deepest nesting of brackets of any kind; closing brackets without a partner count nothing.

    >>> max_depth("((1)+(2))")
    2
    """
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        if match[0] in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif depth:
            depth -= 1
    return deepest


def encloses(text: str) -> bool:
    """True where the bracket that opens `text` is closed by its last character and not before.

    Kinds are not told apart, so that half-open intervals count.

    >>> encloses("(1,2]"), encloses("(1)+(2)")
    (True, False)
    """
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth += 1 if match[0] in "([{" else -1
        if depth <= 0:
            return match.start() > 0 and match.end() == len(text)
    return False


@lru_cache(maxsize=64)
def _with_nesting(separator: str) -> re.Pattern[str]:
    return re.compile(rf"(?P<separator>{separator})|{_NESTING}|\\.", re.DOTALL)


def split_top(text: str, separator: str) -> tuple[list[str], list[str]]:
    r"""(pieces, separators) of `text` at every match of `separator` that stands in no bracket.

    Kinds of brackets are not told apart, so that half-open intervals count.

    >>> split_top(r"(1,3), \{2,5\}; 7", "[,;]")
    (['(1,3)', '\\{2,5\\}', '7'], [',', ';'])
    """
    pieces: list[str] = []
    separators: list[str] = []
    depth = start = 0
    for match in _with_nesting(separator).finditer(text):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth = max(depth - 1, 0)
        elif match["separator"] and depth == 0:
            pieces.append(text[start : match.start()].strip())
            separators.append(match[0].strip())
            start = match.end()
    pieces.append(text[start:].strip())
    return pieces, separators


def split_list(text: str) -> list[str]:
    """The elements of `text` between commas and semicolons that stand in no bracket."""
    return split_top(text, "[,;]")[0]
