"""Intervals against brute force: Wilson and Tango by solving their equations."""

from __future__ import annotations

import doctest
import math
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workings.errors import ConfigError, DataError
from workings.evaluation import intervals
from workings.evaluation.intervals import (
    difference_interval,
    difference_p_value,
    mean_interval,
    wilson_interval,
)

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


def test_values_of_zero_and_one_get_wilson() -> None:
    for right in (0, 1, 7, 29, 30):
        values = [1.0] * right + [0.0] * (30 - right)
        assert mean_interval(values) == pytest.approx(wilson_interval(right, 30), abs=1e-12)
    assert mean_interval([0.0] * 30)[0] == 0.0
    assert mean_interval([1.0] * 30)[1] == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_an_interval_of_a_mean_holds_it_and_stays_inside(values: list[float]) -> None:
    low, high = mean_interval(values)
    mean = sum(values) / len(values)
    assert 0 <= low <= mean + 1e-9
    assert mean - 1e-9 <= high <= 1
    assert low < high
    mirrored = mean_interval([1 - value for value in values])
    # 1 - value rounds, and the squares of tiny values are lost beside one.
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-6)


def test_the_effective_sample_size_by_hand() -> None:
    """Twenty values of 1/4 and 3/4: variance 1/16 x 20/19 of 1/4, carried by 16 problems."""
    estimated = (1 / 16) * (20 / 19) / (1 / 4)
    carriers = (20 * 0.5) ** 2 / (20 * (1 / 16 + 9 / 16) / 2)
    weight = 4 / (4 + carriers**2)
    size = 20 / (estimated * (1 - weight) + weight)
    half = Z_95 * (0.25 / size + Z_95**2 / (4 * size**2)) ** 0.5 / (1 + Z_95**2 / size)
    low, high = mean_interval([0.25, 0.75] * 10)
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-12)


def test_samples_that_agree_make_no_problems() -> None:
    """Fifteen of thirty problems always solved: as wide as single answers, whatever the samples."""
    assert mean_interval([1.0] * 15 + [0.0] * 15) == pytest.approx(wilson_interval(15, 30))


def test_samples_that_differ_are_worth_something() -> None:
    low, high = mean_interval([0.5, 0.25, 0.75] * 10)
    wide = wilson_interval(15, 30)
    assert high - low < 0.6 * (wide[1] - wide[0])


def test_equal_values_between_leave_doubt() -> None:
    low, high = mean_interval([0.5] * 30)
    assert 0.02 < high - low < 0.05


def test_five_thousand_problems_are_a_matter_of_milliseconds() -> None:
    values = np.random.default_rng(0).random(5000).tolist()
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        mean_interval(values)
        difference_interval(values)
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 0.2  # another process may have had the core meanwhile


# ------------------------------------------------------------------------- paired differences


def test_the_airway_example_of_tango() -> None:
    """7 and 1 discordant of 21 (Bentur et al., 2009): -0.517 to -0.026 by Tango's interval, as
    published by Fagerland, Lydersen and Laake (2014, Statistics in Medicine 33, table IV)."""
    low, high = difference_interval([-1.0] * 7 + [1.0] + [0.0] * 13)
    assert (round(low, 3), round(high, 3)) == (-0.517, -0.026)


@pytest.mark.parametrize(("better", "worse", "n"), [(3, 1, 20), (0, 4, 25), (9, 9, 40), (5, 0, 5)])
def test_tango_by_its_likelihood(better: int, worse: int, n: int) -> None:
    """The score test with the constrained likelihood maximised on a grid, solved by bisection."""

    def score(difference: float) -> float:
        lost = np.linspace(max(0.0, -difference), (1 - difference) / 2, 200_001)[1:-1]
        counts = (better, worse, n - better - worse)
        chances = (lost + difference, lost, 1 - 2 * lost - difference)
        likelihood = sum(c * np.log(p) for c, p in zip(counts, chances, strict=True) if c)
        best = float(lost[np.argmax(likelihood)]) if n else 0.0
        variance = (2 * best + difference - difference**2) / n
        return ((better - worse) / n - difference) / max(variance, 1e-12) ** 0.5

    def solve(inside: float, outside: float) -> float:
        for _ in range(40):
            half = (inside + outside) / 2
            inside, outside = (half, outside) if abs(score(half)) <= Z_95 else (inside, half)
        return inside

    middle = (better - worse) / n
    values = [1.0] * better + [-1.0] * worse + [0.0] * (n - better - worse)
    low, high = difference_interval(values)
    # The grid of the likelihood has a spacing of 5e-6.
    assert low == pytest.approx(solve(middle, -1 + 1e-9), abs=1e-4)
    assert high == pytest.approx(solve(middle, 1 - 1e-9), abs=1e-4)


def test_no_difference_at_all_is_no_certainty() -> None:
    low, high = difference_interval([0.0] * 30)
    assert high == pytest.approx(wilson_interval(0, 30)[1], abs=1e-12)
    assert low == pytest.approx(-high, abs=1e-12)


@settings(deadline=None)
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.125, 1.0]), min_size=1, max_size=40))
def test_an_interval_of_differences_turns_with_its_sides(values: list[float]) -> None:
    low, high = difference_interval(values)
    mean = sum(values) / len(values)
    assert -1 <= low <= mean + 1e-9
    assert mean - 1e-9 <= high <= 1
    assert low < high
    turned = difference_interval([-value for value in values])
    assert turned == pytest.approx((-high, -low), abs=1e-9)


@settings(deadline=None)
@given(st.lists(st.sampled_from([-1.0, -0.25, 0.0, 0.5, 1.0]), min_size=1, max_size=60))
def test_the_p_value_and_the_interval_agree(values: list[float]) -> None:
    low, high = difference_interval(values)
    p_value = difference_p_value(values)
    assert 0 <= p_value <= 1
    if abs(p_value - 0.05) > 1e-6:
        assert (p_value < 0.05) == (low > 0 or high < 0)


def test_the_p_value_of_right_and_wrong_is_that_of_mcnemar() -> None:
    values = [1.0] * 10 + [-1.0] * 2 + [0.0] * 18
    chi_square = (10 - 2) ** 2 / 12
    # The survival function of chi-square with one degree of freedom.
    assert difference_p_value(values) == pytest.approx(
        math.erfc((chi_square / 2) ** 0.5), abs=1e-12
    )
    assert difference_p_value([0.0] * 30) == 1.0


def test_bad_input_is_named() -> None:
    with pytest.raises(DataError, match="5 of 4; expected at least one trial"):
        wilson_interval(5, 4)
    with pytest.raises(DataError, match="0 of 0; expected at least one trial"):
        wilson_interval(0, 0)
    with pytest.raises(ConfigError, match=r"level=95; expected a confidence level between 0 and 1"):
        wilson_interval(1, 2, level=95)
    with pytest.raises(DataError, match=r"an interval over values of shape \(0,\)"):
        mean_interval([])
    with pytest.raises(DataError, match="expected one finite number per problem"):
        difference_interval([0.5, float("nan")])
    with pytest.raises(DataError, match=r"1 of 2 values are outside of \[0, 1\], 3.5 for one"):
        mean_interval([0.5, 3.5])
    with pytest.raises(DataError, match=r"1 of 2 values are outside of \[-1, 1\], -2 for one"):
        difference_interval([0.5, -2])
