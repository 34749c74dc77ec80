"""Time left and how it is said."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.tracking import progress
from workings.tracking.progress import TimeLeft, format_duration


def test_doctests() -> None:
    assert doctest.testmod(progress).failed == 0


def test_nothing_is_known_before_two_steps() -> None:
    time_left = TimeLeft(total_steps=10)
    assert time_left.seconds_left is None
    time_left.update(1, 100.0)
    assert time_left.seconds_per_step is None


def test_a_steady_pace_gives_the_rest() -> None:
    time_left = TimeLeft(total_steps=10)
    for step in range(1, 5):
        time_left.update(step, 50.0 + 3.0 * step)
    assert time_left.seconds_per_step == pytest.approx(3.0, abs=1e-12)
    assert time_left.seconds_left == pytest.approx(18.0, abs=1e-12)


def test_only_the_latest_steps_count() -> None:
    time_left = TimeLeft(total_steps=100, window=2)
    for step, now in [(1, 0.0), (2, 100.0), (3, 101.0), (4, 102.0)]:
        time_left.update(step, now)
    assert time_left.seconds_per_step == pytest.approx(1.0, abs=1e-12)


def test_a_row_of_the_same_step_moves_nothing() -> None:
    time_left = TimeLeft(total_steps=4)
    for step, now in [(1, 0.0), (2, 2.0), (2, 50.0), (3, 4.0)]:
        time_left.update(step, now)
    assert time_left.seconds_left == pytest.approx(2.0, abs=1e-12)


def test_the_last_step_leaves_nothing() -> None:
    time_left = TimeLeft(total_steps=2)
    time_left.update(1, 0.0)
    time_left.update(2, 5.0)
    assert time_left.seconds_left == 0.0


@given(st.integers(min_value=60, max_value=10**7))
def test_a_duration_can_be_read_back(seconds: int) -> None:
    days, _, clock = format_duration(seconds).rpartition(" d ")
    parts = [int(part) for part in clock.split(":")]
    total = 0
    for part in parts:
        total = 60 * total + part
    assert total + 86400 * int(days or 0) == seconds
