"""The Countdown task: reach a target from given numbers with + - * / and parentheses.

A model's expression is parsed into a tree and evaluated as exact rationals. Nothing else is
accepted, so no text can be slow or run as code.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from workings.grading.text.braces import max_depth

MAX_LENGTH = 256
MAX_DEPTH = 32
_MAX_OPERAND_DIGITS = 12


def countdown_correct(expression: str, *, numbers: Sequence[int], target: int) -> bool:
    """True where `expression` uses every number exactly once and its exact value is `target`.

    A leading or inner minus sign is allowed. An equation counts by its left side where its right
    side is the target. Division by zero, other characters, a text above `MAX_LENGTH` characters or
    nested deeper than `MAX_DEPTH` are wrong.

    >>> countdown_correct("(44 - 19) * 2 = 50", numbers=[19, 2, 44], target=50)
    True
    >>> countdown_correct("99**98**97", numbers=[99, 98, 97], target=1)
    False
    """
    left, equals, right = expression.strip().partition("=")
    if equals and right.strip() != str(target):
        return False
    if len(left) > MAX_LENGTH or max_depth(left) > MAX_DEPTH:
        return False
    if not set(left) <= set("0123456789+-*/() "):
        return False
    try:
        tree = ast.parse(left.strip(), mode="eval")
        used: list[int] = []
        value = _value(tree.body, used, MAX_DEPTH)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return False
    return value == target and Counter(used) == Counter(numbers)


def _value(node: ast.expr, used: list[int], depth: int) -> Fraction:
    """The exact value of `node`; its numbers are appended to `used`."""
    if depth == 0:
        raise ValueError("nested too deeply")
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            if number >= 10**_MAX_OPERAND_DIGITS:
                raise ValueError("number too long")
            used.append(number)
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, used, depth - 1)
        case ast.BinOp(left=left, op=operator, right=right):
            first, second = _value(left, used, depth - 1), _value(right, used, depth - 1)
            match operator:
                case ast.Add():
                    return first + second
                case ast.Sub():
                    return first - second
                case ast.Mult():
                    return first * second
                case ast.Div():
                    return first / second
    raise ValueError(f"{type(node).__name__} is no part of an arithmetic expression")
