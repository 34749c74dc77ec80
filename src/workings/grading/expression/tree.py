"""The tree of an expression: what the parser builds, and what is bounded and evaluated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

BOUND = "#"
"""First character of the name of a summation index: it is no free symbol."""
APPLIED = "()"
"""Last characters of the name of a function that has no definition, such as f in f(x)."""


class Unreadable(Exception):
    """A text is no expression that this package reads in full; the argument says why."""


class TooCostly(Exception):
    """Evaluation is refused by a bound on its cost; the argument says which."""


@dataclass(frozen=True, slots=True)
class Number:
    """An exact rational."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable under its whole name: `x`, `a_n`, `AB`, `vec v`."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that is no rational, or no number at all."""

    name: Literal["pi", "e", "i", "infinity"]


@dataclass(frozen=True, slots=True)
class Sum:
    """Two terms or more, added."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """Two factors or more, multiplied."""

    factors: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Quotient:
    """One expression over another."""

    numerator: Node
    denominator: Node


@dataclass(frozen=True, slots=True)
class Power:
    """`base` to the `exponent`."""

    base: Node
    exponent: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A function of its arguments, by the name that `functions.FUNCTIONS` knows."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """The sum or product of `body` for the bound `index` from `low` to `high`."""

    kind: Literal["sum", "product"]
    index: str
    low: Node
    high: Node
    body: Node


Node: TypeAlias = Number | Symbol | Constant | Sum | Product | Quotient | Power | Call | Series

MINUS_ONE = Number(Fraction(-1))


def children(node: Node) -> tuple[Node, ...]:
    """The parts of `node`, left to right; none of a leaf."""
    match node:
        case Sum(parts) | Product(parts) | Call(_, parts):
            return parts
        case Quotient(left, right) | Power(left, right):
            return (left, right)
        case Series(_, _, low, high, body):
            return (low, high, body)
        case _:
            return ()


def walk(node: Node) -> Iterator[tuple[Node, int]]:
    """Every node of the tree with its depth, the root's being 1; without recursion."""
    stack = [(node, 1)]
    while stack:
        here, depth = stack.pop()
        yield here, depth
        stack.extend((child, depth + 1) for child in children(here))


def symbols_of(node: Node) -> frozenset[str]:
    """The names of the free symbols of `node`."""
    return frozenset(
        part.name
        for part, _ in walk(node)
        if isinstance(part, Symbol) and not part.name.startswith(BOUND)
    )


def total(terms: list[Node]) -> Node:
    """The sum of one term or more, one number where all are."""
    numbers = [term.value for term in terms if isinstance(term, Number)]
    if len(numbers) == len(terms):
        return Number(sum(numbers, start=Fraction(0)))
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))


def product(factors: list[Node]) -> Node:
    """The product of any number of factors, one number where all are."""
    numbers = [factor.value for factor in factors if isinstance(factor, Number)]
    if len(numbers) == len(factors):
        return Number(math.prod(numbers, start=Fraction(1)))
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def negated(node: Node) -> Node:
    """-`node`, with the sign drawn into a number."""
    if isinstance(node, Number):
        return Number(-node.value)
    factors = node.factors if isinstance(node, Product) else (node,)
    return Product((MINUS_ONE, *factors))


def quotient(numerator: Node, denominator: Node) -> Node:
    """`numerator` over `denominator`, one number where both are and it exists."""
    if isinstance(numerator, Number) and isinstance(denominator, Number) and denominator.value:
        return Number(numerator.value / denominator.value)
    return Quotient(numerator, denominator)


def difference(left: Node, right: Node) -> Node:
    """`left` - `right`: what an equation holds to be zero."""
    return total([left, negated(right)])


_LOOSE, _SUM, _PRODUCT, _POWER, _ATOM = range(5)


def to_text(node: Node) -> str:
    """`node` in plain infix form, for explanations.

    >>> half = Number(Fraction(1, 2))
    >>> to_text(Product((half, Power(Sum((Symbol("x"), negated(Symbol("y")))), half))))
    '1/2*(x - y)^(1/2)'
    """
    return _spell(node, _LOOSE)


def _spell(node: Node, place: int) -> str:
    text, strength = _spelt(node)
    return f"({text})" if strength < place else text


def _spelt(node: Node) -> tuple[str, int]:
    """The text of `node` and how tightly its outermost operation binds."""
    match node:
        case Number(value):
            tight = value >= 0 and value.denominator == 1
            return str(value), _ATOM if tight else _PRODUCT if value >= 0 else _SUM
        case Symbol(name):
            return name.removeprefix(BOUND), _ATOM
        case Constant(name):
            return name, _ATOM
        case Sum(terms):
            text = " + ".join(_spell(term, _SUM) for term in terms)
            return text.replace("+ -", "- "), _SUM
        case Product((Number(value), *rest)) if value == -1 and rest:
            return "-" + "*".join(_spell(factor, _PRODUCT) for factor in rest), _SUM
        case Product(factors):
            return "*".join(_spell(factor, _PRODUCT) for factor in factors), _PRODUCT
        case Quotient(top, bottom):
            return f"{_spell(top, _PRODUCT)}/{_spell(bottom, _POWER)}", _PRODUCT
        case Power(base, exponent):
            return f"{_spell(base, _ATOM)}^{_spell(exponent, _ATOM)}", _POWER
        case Call(function, arguments):
            inside = ", ".join(_spell(argument, _LOOSE) for argument in arguments)
            return f"{function.removesuffix(APPLIED)}({inside})", _ATOM
        case Series(kind, index, low, high, body):
            span = f"{index.removeprefix(BOUND)} = {_spell(low, _LOOSE)}..{_spell(high, _LOOSE)}"
            return f"{kind}({_spell(body, _LOOSE)}, {span})", _ATOM
