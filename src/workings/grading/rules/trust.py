r"""How far agreement can be trusted: of values at real points, and of math-verify."""

from __future__ import annotations

import re
from string import ascii_letters

_NO_NUMBERS = re.compile(
    r"\^\s*\{?\s*(?:T|\\top|\\dagger)(?![a-z_])"  # transposes: products do not commute
    r"|(?<![a-zA-Z])[A-Z]\s*\^\s*\{?\s*-1\s*\}?.*(?<![a-zA-Z])[A-Z]\s*\^\s*\{?\s*-1"  # inverses
    r"|\\(?:Re|Im|arg)(?![a-zA-Z])|operatorname\{(?:Re|Im|Arg|arg)\}"  # complex variables,
    r"|(?:\||\\lvert)[^|]*(?<![a-zA-Z\\])[zwi](?![a-zA-Z])"  # which are probed at real points
    r"|\^\s*\{?\s*\("  # derivatives by their order
)
_NOT_FOR_PEER = re.compile(
    r"\\text|'|==|\d\s+\d|_|^\s*(?:[<>=!]|\\(?:le|ge|ne|lt|gt|in)(?![a-z]))"
    r"|(?<![\\a-zA-Z])(?!sin|cos|tan|log|sqrt|exp|infty)[a-zA-Z]{3,}|[a-zA-Z]\s*(?:\^[^()]{1,6})?\("
)
_MACRO = re.compile(r"\\([a-zA-Z]+)|(?<![a-zA-Z])(?:sin|cos|tan|log|sqrt|exp)(?![a-zA-Z])")
_PEER_READS = {
    "frac", "sqrt", "pi", "cdot", "times", "div", "pm", "mp", "infty", "circ", "binom", "le", "ge",
    "ne", "in", "cup", "cap", "emptyset", "mathbb", "sin", "cos", "tan", "cot", "sec", "csc",
    "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "log", "ln", "exp", "lfloor", "rfloor",
    "lceil", "rceil", "theta", "alpha", "beta", "gamma", "lambda", "begin", "end", "setminus",
}  # fmt: skip
_LETTERS = frozenset(ascii_letters)


def stands_for_numbers(text: str) -> bool:
    r"""False for formulas whose letters are no real numbers that commute.

    Values that agree at all points then prove nothing.

    >>> stands_for_numbers("A^2-B^2"), stands_for_numbers("A^TB^T"), stands_for_numbers("|z-2i|")
    (True, False, False)
    """
    return _NO_NUMBERS.search(text) is None


def may_ask_peer(answer: str, gold: str) -> bool:
    r"""False where math-verify would skip what it cannot read, or not come back.

    It takes the formula before a word it does not know for the whole ("7/3 oder 3/7"), loses
    primes, indices, operators such as a nabla and the case of letters, and evaluates integrals.

    >>> may_ask_peer("x+1", r"1+\sqrt{x^2}"), may_ask_peer(r"7\text{ oder }3", "7")
    (True, False)
    >>> may_ask_peer("GMm", "gMm"), may_ask_peer("y'", "y")
    (False, False)
    """
    for text in (answer, gold):
        macros = {match[1] for match in _MACRO.finditer(text) if match[1]}
        if (
            text.count("=") > 1
            or _NOT_FOR_PEER.search(text)
            or not macros <= _PEER_READS
            or not stands_for_numbers(text)
        ):
            return False
    letters = [set(_MACRO.sub(" ", text)) & _LETTERS for text in (answer, gold)]
    return letters[0] == letters[1]
