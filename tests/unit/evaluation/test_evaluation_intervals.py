"""Intervals against brute force: Wilson by solving its equation, bootstrap by enumeration."""

from __future__ import annotations

import doctest
import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.errors import ConfigError, DataError
from workings.evaluation import intervals
from workings.evaluation.intervals import bootstrap_interval, wilson_interval

Z_95 = 1.959963984540054


def solved(successes: int, n: int, *, lower: bool) -> float:
    """An end of Wilson's interval by bisection of |share - p| = z sqrt(p (1 - p) / n)."""
    share = successes / n
    inside, outside = share, 0.0 if lower else 1.0
    for _ in range(200):
        middle = (inside + outside) / 2
        if abs(share - middle) <= Z_95 * (middle * (1 - middle) / n) ** 0.5:
            inside = middle
        else:
            outside = middle
    return (inside + outside) / 2


def test_doctests() -> None:
    assert doctest.testmod(intervals).failed == 0


@pytest.mark.parametrize(("successes", "n"), [(1, 3), (15, 30), (412, 500), (256, 1024), (29, 30)])
def test_wilson_solves_its_equation(successes: int, n: int) -> None:
    low, high = wilson_interval(successes, n)
    # Bisection stops at the last bits of a float.
    assert low == pytest.approx(solved(successes, n, lower=True), abs=1e-12)
    assert high == pytest.approx(solved(successes, n, lower=False), abs=1e-12)


@given(st.integers(1, 3000), st.data())
def test_wilson_is_ordered_symmetric_and_inside_the_unit_interval(n: int, data) -> None:
    successes = data.draw(st.integers(0, n))
    low, high = wilson_interval(successes, n)
    assert 0 <= low <= successes / n <= high <= 1
    assert low < high
    mirrored = wilson_interval(n - successes, n)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_the_ends_are_exact_where_nothing_or_all_is_right() -> None:
    assert wilson_interval(0, 30)[0] == 0.0
    assert wilson_interval(30, 30)[1] == 1.0
    # z^2 / (n + z^2), from the equation at share 0.
    assert wilson_interval(0, 30)[1] == pytest.approx(Z_95**2 / (30 + Z_95**2), abs=1e-12)


def test_one_sigma_of_d16() -> None:
    """1.35 points at n = 1024 and p = 0.25; 9.1 points at n = 30 and p = 0.5."""
    sigma_level = 0.6826894921370859
    low, high = wilson_interval(256, 1024, level=sigma_level)
    assert 100 * (high - low) / 2 == pytest.approx(1.35, abs=0.005)
    # Wilson's half width at p = 1/2 is shorter than sigma by the factor sqrt(n / (n + 1)).
    low, high = wilson_interval(15, 30, level=sigma_level)
    assert 100 * (high - low) / 2 * (31 / 30) ** 0.5 == pytest.approx(9.1, abs=0.05)


def test_wilson_covers_what_it_says() -> None:
    draw = random.Random(0)
    hits = 0
    for _ in range(4000):
        successes = sum(draw.random() < 0.3 for _ in range(50))
        low, high = wilson_interval(successes, 50)
        hits += low <= 0.3 <= high
    # 95 % nominal; three sigmas of 4000 draws are 1.0 points, discreteness adds about as much.
    assert 0.93 < hits / 4000 < 0.97


def test_bootstrap_agrees_with_all_resamples() -> None:
    values = [0.0, 0.25, 0.5, 1.0, 1.0]
    means = [sum(draw) / 5 for draw in itertools.product(values, repeat=5)]
    exact = np.quantile(means, [0.025, 0.975])
    found = bootstrap_interval(values, seed=3, num_resamples=200_000)
    # The means live on a grid of 0.05; an end may fall on a neighbouring point.
    assert found == pytest.approx(tuple(exact), abs=0.05 + 1e-12)
    draws = intervals._resampled_means(np.array(values), seed=3, num_resamples=200_000)
    # Mean 0.55 and standard deviation 0.4 / sqrt(5) = 0.1789 of the resampled mean, 200,000 draws.
    assert draws.mean() == pytest.approx(np.mean(means), abs=4 * 0.179 / 200_000**0.5)
    assert draws.std() == pytest.approx(np.std(means), rel=0.01)


def test_bootstrap_is_a_function_of_its_seed() -> None:
    values = np.random.default_rng(1).random(60).tolist()
    assert bootstrap_interval(values, seed=5) == bootstrap_interval(values, seed=5)
    assert bootstrap_interval(values, seed=5) != bootstrap_interval(values, seed=6)


def test_order_does_not_matter() -> None:
    values = [0.0, 0.5, 1.0, 1.0, 0.25] * 7
    assert bootstrap_interval(values, seed=2) == bootstrap_interval(sorted(values), seed=2)


def test_samples_of_one_problem_are_not_independent() -> None:
    """Drawing problems gives sigma 0.5/sqrt(30); drawing 32 samples each would give a sixth."""
    per_problem = [1.0] * 15 + [0.0] * 15
    low, high = bootstrap_interval(per_problem, seed=0)
    assert (high - low) / 2 == pytest.approx(Z_95 * 0.5 / 30**0.5, abs=0.02)


def test_many_problems_are_drawn_in_chunks() -> None:
    values = np.random.default_rng(0).random(3000).tolist()
    low, high = bootstrap_interval(values, seed=0, num_resamples=2000)
    half = Z_95 * np.std(values) / 3000**0.5
    assert (high - low) / 2 == pytest.approx(half, rel=0.08)


def test_bad_input_is_named() -> None:
    with pytest.raises(DataError, match="5 of 4; expected at least one trial"):
        wilson_interval(5, 4)
    with pytest.raises(DataError, match="0 of 0; expected at least one trial"):
        wilson_interval(0, 0)
    with pytest.raises(ConfigError, match=r"level=95; expected a confidence level between 0 and 1"):
        wilson_interval(1, 2, level=95)
    with pytest.raises(DataError, match=r"bootstrap over values of shape \(0,\)"):
        bootstrap_interval([], seed=0)
    with pytest.raises(DataError, match="expected one finite number per problem"):
        bootstrap_interval([0.5, float("nan")], seed=0)
