"""Arithmetic exercises against Python's own arithmetic."""

from __future__ import annotations

import ast
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.data.exercises import Exercise, Step, split_places, write_expression

SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def evaluate(expression: str) -> int:
    def value(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp):
            return int(SIGNS[type(node.op)](value(node.left), value(node.right)))
        assert isinstance(node, ast.Constant)
        return int(str(node.value))

    return value(ast.parse(expression, mode="eval").body)


@st.composite
def exercises(draw: st.DrawFn) -> Exercise:
    operands = draw(st.lists(st.integers(0, 999), min_size=2, max_size=6))
    count = len(operands) - 1
    signs = draw(st.lists(st.sampled_from("+-*"), min_size=count, max_size=count))
    return Exercise(operands=tuple(operands), operations=tuple(signs))


@given(exercises())
def test_the_answer_is_pythons(exercise: Exercise) -> None:
    assert exercise.answer == evaluate(exercise.expression())
    assert exercise.expression(spaces=True).replace(" ", "") == exercise.expression()


@given(exercises())
def test_every_step_leaves_an_expression_of_the_same_value(exercise: Exercise) -> None:
    for _, operands, operations in exercise.reductions():
        if min(operands) >= 0:
            text = write_expression(operands, operations)
            assert evaluate(text) == exercise.answer


def test_products_come_first() -> None:
    steps = Exercise(operands=(2, 3, 4, 5), operations=("+", "*", "-")).steps()
    assert [(s.left, s.operation, s.right, s.result) for s in steps] == [
        (3, "*", 4, 12),
        (2, "+", 12, 14),
        (14, "-", 5, 9),
    ]


def test_the_canonical_text_forgets_the_order_of_a_sum() -> None:
    def canonical(*operands: int, sign: str) -> str:
        return Exercise(operands=operands, operations=(sign,) * (len(operands) - 1)).canonical

    assert canonical(3, 8, 5, sign="+") == canonical(8, 5, 3, sign="+") == "3+5+8"
    assert canonical(3, 8, sign="*") == canonical(8, 3, sign="*")
    assert canonical(3, 8, sign="-") != canonical(8, 3, sign="-")


@pytest.mark.parametrize(
    ("left", "sign", "right", "carries"),
    [
        (12, "+", 34, False),
        (18, "+", 34, True),
        (95, "+", 12, True),
        (47, "-", 35, False),
        (47, "-", 38, True),
        (3, "*", 3, False),
        (4, "*", 3, True),
        (12, "*", 13, False),
        (23, "*", 14, True),
    ],
)
def test_carries(left: int, sign: str, right: int, carries: bool) -> None:
    assert Step(left=left, operation=sign, right=right).carries is carries


@given(st.integers(0, 9999), st.sampled_from("+-*"), st.integers(0, 9999))
def test_place_by_place_ends_in_the_same_result(left: int, sign: str, right: int) -> None:
    step = Step(left=left, operation=sign, right=right)
    small = split_places(step)
    assert small[-1].result == step.result
    if sign != "*":
        assert all(str(s.right).rstrip("0") in "123456789" for s in small)
