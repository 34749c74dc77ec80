"""One arithmetic exercise: the expression, its answer, and the steps that lead there."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation on two numbers."""

    left: int
    operation: str
    right: int

    @property
    def result(self) -> int:
        """What the operation gives."""
        return OPERATIONS[self.operation](self.left, self.right)

    @property
    def carries(self) -> bool:
        """True where a column of digits runs over: a carry, a borrow, or a product above 9."""
        left, right = _digits(self.left), _digits(self.right)
        if self.operation == "*":
            columns = [0] * (len(left) + len(right))
            for i, a in enumerate(left):
                for j, b in enumerate(right):
                    columns[i + j] += a * b
            return max(columns) > 9
        length = max(len(left), len(right))
        pairs = zip(_padded(left, length), _padded(right, length), strict=True)
        if self.operation == "+":
            return any(a + b > 9 for a, b in pairs)
        return any(a < b for a, b in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """`operands[0] operations[0] operands[1] ...`, with the usual precedence."""

    operands: tuple[int, ...]
    operations: tuple[str, ...]

    def expression(self, *, spaces: bool = False) -> str:
        """The expression as text.

        >>> Exercise(operands=(3, 8, 5), operations=("+", "-")).expression(spaces=True)
        '3 + 8 - 5'
        """
        return write_expression(self.operands, self.operations, spaces=spaces)

    @property
    def canonical(self) -> str:
        """The same text for every order of the operands of a pure sum or product.

        Whatever decides by it (the split) treats 3+8 and 8+3 as one problem.
        """
        if set(self.operations) in ({"+"}, {"*"}):
            return write_expression(sorted(self.operands), self.operations)
        return self.expression()

    def steps(self) -> list[Step]:
        """The operations in the order of doing them: products first, then left to right."""
        return [step for step, _, _ in self.reductions()]

    def reductions(self) -> list[tuple[Step, tuple[int, ...], tuple[str, ...]]]:
        """Each step with the operands and operations that are left after it."""
        operands, operations = list(self.operands), list(self.operations)
        done: list[tuple[Step, tuple[int, ...], tuple[str, ...]]] = []
        while operations:
            place = operations.index("*") if "*" in operations else 0
            step = Step(
                left=operands[place], operation=operations[place], right=operands[place + 1]
            )
            operands[place : place + 2] = [step.result]
            del operations[place]
            done.append((step, tuple(operands), tuple(operations)))
        return done

    @property
    def answer(self) -> int:
        """The value of the expression."""
        return self.steps()[-1].result


def split_places(step: Step) -> list[Step]:
    """The step done place by place: 27+48 as 27+40 and 67+8, 7*23 as 7*20, 7*3 and 140+21.

    >>> [step.result for step in split_places(Step(left=27, operation="+", right=48))]
    [67, 75]
    """
    digits = _digits(step.right)
    parts = [digit * 10**place for place, digit in enumerate(digits) if digit][::-1]
    if len(parts) < 2 or step.right < 0:
        return [step]
    if step.operation == "*":
        products = [Step(left=step.left, operation="*", right=part) for part in parts]
        return [*products, *_running(products[0].result, "+", [p.result for p in products[1:]])]
    return _running(step.left, step.operation, parts)


def write_expression(
    operands: Sequence[int], operations: Sequence[str], *, spaces: bool = False
) -> str:
    """Numbers and operation signs as text."""
    gap = " " if spaces else ""
    rest = (f"{gap}{sign}{gap}{n}" for sign, n in zip(operations, operands[1:], strict=True))
    return f"{operands[0]}{''.join(rest)}"


def _running(start: int, operation: str, values: Sequence[int]) -> list[Step]:
    steps: list[Step] = []
    for value in values:
        steps.append(Step(left=start, operation=operation, right=value))
        start = steps[-1].result
    return steps


def _digits(number: int) -> list[int]:
    """Decimal digits, ones first."""
    return [int(digit) for digit in str(abs(number))[::-1]]


def _padded(digits: Sequence[int], length: int) -> list[int]:
    return [*digits, *[0] * (length - len(digits))]
