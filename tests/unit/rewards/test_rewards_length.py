"""Length terms against their formulas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.errors import ConfigError
from workings.rewards.length import (
    advantages_without_truncated,
    kept_when_masking_overlong,
    length_penalty,
    overlong_shaping,
)


def test_overlong_shaping_at_its_corners() -> None:
    limit, buffer = 20480, 4096
    lengths = [0, limit - buffer, limit - buffer + buffer // 2, limit, limit + 1]
    shaped = [overlong_shaping(n, max_tokens=limit, buffer=buffer) for n in lengths]
    assert shaped == [0.0, 0.0, -0.5, -1.0, -1.0]


@given(num_tokens=st.integers(0, 300), buffer=st.integers(1, 100))
def test_overlong_shaping_is_the_published_piecewise_function(num_tokens: int, buffer: int) -> None:
    limit = 100
    value = overlong_shaping(num_tokens, max_tokens=limit, buffer=buffer)
    if num_tokens <= limit - buffer:
        expected = 0.0
    elif num_tokens <= limit:
        expected = (limit - buffer - num_tokens) / buffer
    else:
        expected = -1.0
    assert value == pytest.approx(expected, abs=1e-15)
    assert -1.0 <= value <= 0.0


@pytest.mark.parametrize("buffer", [0, -1, 101])
def test_an_impossible_buffer_is_named(buffer: int) -> None:
    with pytest.raises(ConfigError, match=f"overlong_buffer={buffer} with max_tokens=100"):
        overlong_shaping(5, max_tokens=100, buffer=buffer)


def test_length_penalty_is_linear() -> None:
    assert [length_penalty(n, max_tokens=200, weight=0.1) for n in (0, 100, 200)] == [
        pytest.approx(0.0),
        pytest.approx(-0.05),
        pytest.approx(-0.1),
    ]
    with pytest.raises(ConfigError, match="max_tokens=0"):
        length_penalty(1, max_tokens=0, weight=1.0)


def test_truncated_rows_are_masked_or_lose_their_advantage() -> None:
    assert kept_when_masking_overlong(["length", "length"]) == [False, False]
    assert advantages_without_truncated([0.7, -0.7, 0.1], ["stop", "length", "eos"]) == [
        0.7,
        0.0,
        0.1,
    ]
