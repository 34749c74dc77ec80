"""Variables under their whole names, and what else begins with a letter."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from workings.grading.expression.tree import (
    APPLIED,
    BOUND,
    Call,
    Constant,
    Node,
    Number,
    Symbol,
    Unreadable,
    difference,
)

if TYPE_CHECKING:
    from workings.grading.expression.parse import Parser

CHOICES = {"C": "binomial", "P": "permutations", "A": "permutations"}
"""The letters that count choices, and what they count."""

_ONE = Number(Fraction(1))
_WITHOUT_DEFINITION = frozenset("fgFG")


def identifier(parser: Parser) -> Node:
    """A variable, one of the constants e and i, or a function that is no macro."""
    letter = parser.take().text
    if letter in parser.bound and not parser.sees("_"):
        return Symbol(BOUND + letter)
    if letter in CHOICES and parser.sees("(") and _holds_one_comma(parser):
        return Call(CHOICES[letter], parser.enclosed(listing=True))
    if letter == "Gamma" and parser.sees("("):
        return Call("factorial", (difference(parser.enclosed()[0], _ONE),))
    name = with_marks(parser, letter)
    if name in ("e", "i"):
        return Constant("e" if name == "e" else "i")
    if parser.sees("(") and (letter in _WITHOUT_DEFINITION or _holds_one_token(parser)):
        return Call(name + APPLIED, parser.enclosed(listing=True))
    if letter in _WITHOUT_DEFINITION and parser.upcoming(6) == ["^", "{", "-", "1", "}", "("]:
        raise Unreadable("an inverse function without definition")
    return Symbol(name)


def with_marks(parser: Parser, name: str) -> str:
    """`name` with the subscripts and primes that come next, now read."""
    while True:
        if parser.takes("_"):
            index = raw(parser)
            if not set(index).isdisjoint(parser.bound):
                raise Unreadable("a name that changes with the index of a sum")
            name = f"{name}_{index}"
        elif parser.token.kind == "mark" and parser.token.text.startswith("'"):
            name += parser.take().text
        else:
            return name


def raw(parser: Parser) -> str:
    """The text of the group or token here, without its braces, for use in a name."""
    token = parser.take()
    if token.kind not in ("mark", "end"):
        return token.text
    if token.text != "{":
        raise Unreadable("an index without a name")
    depth, pieces = 1, list[str]()
    while depth:
        token = parser.take()
        depth += (token.text == "{") - (token.text == "}")
        pieces.append("" if token.text in ("{", "}") else token.text)
        if token.kind == "end":
            raise Unreadable("an index without an end")
    return "".join(pieces)


def _holds_one_token(parser: Parser) -> bool:
    """True at the bracket of `y(0)` and `v(t)`, which nobody writes for a product."""
    inside = parser.tokens[parser.at + 1]
    one_token = inside.kind in ("number", "symbol", "constant")
    return one_token and parser.upcoming(3)[-1] == ")"


def _holds_one_comma(parser: Parser) -> bool:
    """True where the bracket that opens here holds two expressions."""
    depth = commas = 0
    for token in parser.tokens[parser.at :]:
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        commas += token.text == "," and depth == 1
        if depth == 0:
            break
    return commas == 1
