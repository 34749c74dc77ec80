r"""The operands that begin with a macro or a name: fractions, roots, sums, functions, accents.

An argument of a function that has no brackets is a product of numbers and letters. It ends at the
next function, bracket or sign and, after a letter, at a root, a fraction, `e` and `i`: `\sin 2x`,
`\sin x\cos y`, `\sin x e^{-x}`. In `\sin(x)y` the brackets hold all of it. A divisor belongs to an
argument in `\sin 2\pi/3` and not in `\ln x/x` or `\ln 2/\ln 3`; `\sin x/2` has two readings.
`\sin^2 x` is a power, `\sin^{-1} x` the arcsine, and `\ln(x)^2` has two readings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from workings.grading.expression.identifiers import CHOICES, raw, with_marks
from workings.grading.expression.names import ACCENTS, INVERSES, LISTING, LOGARITHMS
from workings.grading.expression.tree import (
    BOUND,
    Call,
    Constant,
    Node,
    Number,
    Power,
    Series,
    Symbol,
    Unreadable,
    negated,
    product,
    quotient,
    symbols_of,
    walk,
)

if TYPE_CHECKING:
    from workings.grading.expression.parse import Parser

_DIFFERENTIAL = re.compile(r"d(?:\^\d)?[a-zA-Z]\w*(?:\^\d)?")
_TEN = Number(Fraction(10))
_INVERTED = Number(Fraction(-1))
_INSIDE = ACCENTS | {"\\frac", "\\sqrt"}
_BRACKETS = ("(", "[", "{", "\\{", "|", "\\|", "\\lvert", "\\lVert", "\\lfloor", "\\lceil")


def apply_function(parser: Parser) -> Node:
    """The function here, applied to what follows."""
    token = parser.take()
    name = token.text
    if name in LISTING:
        return Call(name, _listed(parser))
    base = exponent = None
    while parser.sees("^", "_"):
        if exponent is None and parser.takes("^"):
            exponent = parser.script()
        elif base is None and name == "log" and parser.takes("_"):
            base = parser.operand() if parser.token.text == "10" else parser.argument()
        else:
            raise Unreadable(f"an index of {name} without a meaning")
    attached = parser.token.kind == "number" and parser.token.start == token.end
    if name == "log" and base is None and attached and parser.upcoming(2)[-1] == "(":
        base = parser.operand()  # log2(x)
    if exponent == _INVERTED:
        if name not in INVERSES:
            raise Unreadable(f"the exponent -1 of {name} has two readings")
        name, exponent = INVERSES[name], None
    node = _applied(name, _argument(parser, name), base)
    return node if exponent is None else Power(node, exponent)


def _applied(name: str, argument: Node, base: Node | None) -> Node:
    if name == "exp":
        return Power(Constant("e"), argument)
    if name == "cis":
        return Power(Constant("e"), product([Constant("i"), argument]))
    if name == "lg":
        name, base = "log", _TEN
    return Call(name, (argument,) if base is None else (argument, base))


def _argument(parser: Parser, name: str) -> Node:
    if not parser.sees(*_BRACKETS):
        return _bare_argument(parser)
    argument = parser.operand()
    if name in LOGARITHMS and parser.sees("^", "**", "!"):
        raise Unreadable(f"an exponent behind the argument of {name} has two readings")
    return argument


def _bare_argument(parser: Parser) -> Node:
    minus = parser.takes_minus()
    factors: list[Node] = []
    lettered = False
    while True:
        kind, text, _, _ = parser.token
        is_letter = (kind == "symbol" and text not in ("e", "i")) or text in ACCENTS
        if not factors:
            goes_on = kind == "number" or parser.starts_factor()
        elif lettered:
            goes_on = is_letter or text == "pi"
        else:
            goes_on = kind in ("symbol", "constant") or text in _INSIDE
        if not goes_on:
            break
        factors.append(parser.factor())
        lettered = lettered or is_letter
        if kind == "function" or text in _BRACKETS or parser.before.text == "degree":
            break
    if not factors:
        raise Unreadable("a function without an argument")
    argument = product(factors)
    if parser.sees("/"):
        argument = _divided(parser, argument)
    return negated(argument) if minus else argument


def _divided(parser: Parser, argument: Node) -> Node:
    """`argument` or, where the divisor that follows belongs to it, the quotient."""
    divisor = parser.tokens[parser.at + 1]
    holds_pi = any(part == Constant("pi") for part, _ in walk(argument))
    if divisor.kind == "number" and holds_pi:
        parser.take()
        return quotient(argument, parser.factor())
    if divisor.kind == "number" or (
        divisor.kind == "symbol" and divisor.text not in symbols_of(argument)
    ):
        raise Unreadable("a division behind an argument without brackets has two readings")
    return argument


def _listed(parser: Parser) -> tuple[Node, ...]:
    """The arguments in the brackets here, which may stand in braces once more."""
    if parser.upcoming(2) in (["{", "("], ["{", "\\{"], ["{", "["]):
        parser.take()
        arguments = parser.enclosed(listing=True)
        parser.expect("}")
        return arguments
    return parser.enclosed(listing=True)


def _fraction(parser: Parser) -> Node:
    parser.take()
    start = parser.at
    if parser.upcoming(2) == ["{", "d"]:
        names = raw(parser), raw(parser) if parser.sees("{") else ""
        if _DIFFERENTIAL.fullmatch(names[1]):  # of `dy/dx`, d must not cancel
            if _DIFFERENTIAL.fullmatch(names[0]):
                return Symbol("/".join(names))
            raise Unreadable("a derivative of something else than a name")
        parser.at = start
    top = parser.argument()
    return quotient(top, parser.argument())


def _root(parser: Parser) -> Node:
    parser.take()
    degree = parser.enclosed()[0] if parser.sees("[") else None
    radicand = parser.operand()
    return Call("sqrt", (radicand,)) if degree is None else Call("root", (radicand, degree))


def _binomial(parser: Parser) -> Node:
    parser.take()
    top = parser.argument()
    return Call("binomial", (top, parser.argument()))


def choice_behind_index(parser: Parser) -> Node:
    """The binomial `{}_nC_k` or `^nC_k`, whose first index stands before the name."""
    if parser.takes("{"):
        parser.expect("}")
    if not parser.takes("_", "^"):
        raise parser.unexpected()
    first = parser.script()
    function = CHOICES.get(parser.take().text)
    if function is None or not parser.takes("_"):
        raise Unreadable("an index before a name")
    return Call(function, (first, parser.script()))


def _series(parser: Parser) -> Node:
    macro = parser.take().text
    index = low = high = None
    while parser.sees("_", "^"):
        if high is None and parser.takes("^"):
            high = parser.script()
        elif low is None and parser.takes("_"):
            parser.expect("{")
            index = parser.take().text
            parser.expect("=")
            low = parser.expression()
            parser.expect("}")
        else:
            raise parser.unexpected()
    if index is None or low is None or high is None or not index.isalpha():
        raise Unreadable("a sum or product without both bounds")
    if any(isinstance(part, Constant) for end in (low, high) for part, _ in walk(end)):
        raise Unreadable("a sum or product without end")
    parser.bound.append(index)
    body = parser.term()
    parser.bound.pop()
    return Series("sum" if macro == "\\sum" else "product", BOUND + index, low, high, body)


def _accented(parser: Parser) -> Node:
    accent = parser.take().text[1:]
    start = parser.at
    content = raw(parser)
    inside = parser.tokens[start : parser.at]
    marks = [token.text for token in inside if token.kind == "mark"]
    if not all(mark in ("{", "}", "_") or mark.startswith("'") for mark in marks) or not any(
        token.kind == "symbol" for token in inside
    ):
        raise Unreadable(f"\\{accent} over something else than a name")
    return Symbol(with_marks(parser, f"{accent} {content}"))


FORMS: dict[str, Callable[[Parser], Node]] = {
    "\\frac": _fraction,
    "\\sqrt": _root,
    "\\binom": _binomial,
    "\\sum": _series,
    "\\prod": _series,
    **dict.fromkeys(ACCENTS, _accented),
}
"""Mark -> reader of the operand that begins with it."""
