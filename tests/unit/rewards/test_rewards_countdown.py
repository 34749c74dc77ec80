"""Countdown expressions are parsed, never evaluated as code."""

from __future__ import annotations

import time

import pytest

from workings.rewards.countdown import countdown_correct


@pytest.mark.parametrize(
    ("expression", "correct"),
    [
        ("(44 - 19) * 2", True),
        ("2*(44-19) = 50", True),
        ("44 - 19 + 2", False),
        ("44 * 19 / 2", False),
        ("(44 - 19) * 2 * 1", False),
        ("(44 - 19)", False),
        ("(44 - 19) * 2 = 51", False),
        ("-(19 - 44) * 2", True),
        ("50", False),
        ("", False),
        ("(44 - 19) * (2", False),
        ("44 / (19 - 19) * 2", False),
        ("4_4 - 19", False),
        ("0x2c - 19", False),
        ("44 if 1 else 19", False),
        ("__import__('os')", False),
        ("(44 - 19) // 2", False),
        ("44 - 19) * (2", False),
    ],
)
def test_D15_only_arithmetic_with_each_number_once_counts(expression: str, correct: bool) -> None:
    assert countdown_correct(expression, numbers=[44, 19, 2], target=50) is correct


def test_division_is_exact() -> None:
    assert countdown_correct("8 / (3 - 8 / 3)", numbers=[8, 3, 8, 3], target=24)


@pytest.mark.parametrize(
    "bomb",
    [
        "99**98**97",
        "9" * 100_000,
        "(" * 50_000 + "1" + ")" * 50_000,
        "-" * 200 + "1",
        "1+" * 100 + "1",
        "*".join(["999999999999"] * 18),
    ],
)
def test_D15_bombs_are_wrong_within_ten_milliseconds(bomb: str) -> None:
    countdown_correct("1 + 1", numbers=[1, 1], target=2)
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        assert not countdown_correct(bomb, numbers=[99, 98, 97], target=1)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.01  # a process of another may have had the core meanwhile
