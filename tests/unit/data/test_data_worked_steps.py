"""How worked steps look in every style, and that their equations hold."""

from __future__ import annotations

import pytest

from workings.data.exercises import Exercise
from workings.data.worked_steps import STYLE_NAMES, write_response, write_steps

SUM = Exercise(operands=(3, 8, 5), operations=("+", "+"))


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("lines", "3+8=11\n11+5=16"),
        ("commas", "3+8=11, 11+5=16"),
        ("semicolons", "3+8=11; 11+5=16"),
        ("chain", "3+8=11+5=16"),
        ("totals", "11,16"),
        ("all_totals", "3,11,16"),
        ("rewrite", "3+8+5=11+5=16"),
        ("none", ""),
    ],
)
def test_styles(style: str, text: str) -> None:
    assert style in STYLE_NAMES
    assert write_steps(SUM, style=style) == text
    assert write_response(SUM, style=style) == f"{text}</think> <answer>16</answer>"


def test_spaces() -> None:
    assert write_steps(SUM, style="commas", spaces=True) == "3 + 8 = 11, 11 + 5 = 16"
    assert write_steps(SUM, style="chain", spaces=True) == "3 + 8 = 11 + 5 = 16"
    assert write_steps(SUM, style="all_totals", spaces=True) == "3, 11, 16"
    assert write_steps(SUM, style="rewrite", spaces=True) == "3 + 8 + 5 = 11 + 5 = 16"


def test_places() -> None:
    addition = Exercise(operands=(27, 48), operations=("+",))
    assert write_steps(addition, style="lines", places=True) == "27+40=67\n67+8=75"
    assert write_steps(addition, style="chain", places=True) == "27+40=67+8=75"
    product = Exercise(operands=(7, 23), operations=("*",))
    assert write_steps(product, style="commas", places=True) == "7*20=140, 7*3=21, 140+21=161"


def test_negative_results() -> None:
    exercise = Exercise(operands=(3, 8, 5), operations=("-", "+"))
    assert write_steps(exercise, style="lines") == "3-8=-5\n-5+5=0"
    assert write_response(exercise, style="none") == "</think> <answer>0</answer>"
