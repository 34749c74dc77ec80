"""The BCa bootstrap against all resamples, its formula and what it cannot do."""

from __future__ import annotations

import doctest
import itertools
from statistics import NormalDist

import numpy as np
import pytest

from workings.errors import DataError
from workings.evaluation import bootstrap
from workings.evaluation.bootstrap import bootstrap_interval

Z_95 = 1.959963984540054


def test_doctests() -> None:
    assert doctest.testmod(bootstrap).failed == 0


def test_resampled_means_agree_with_all_resamples() -> None:
    values = [0.0, 0.25, 0.5, 1.0, 1.0]
    means = [sum(draw) / 5 for draw in itertools.product(values, repeat=5)]
    draws = bootstrap.resampled_means(np.array(values), seed=3, num_resamples=200_000)
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


def test_the_ends_are_the_quantiles_of_bca() -> None:
    """Efron's formula, written out for a skewed sample whose resamples are all listed."""
    values = [0.0, 0.0, 0.1, 0.3, 1.0, 0.2]
    means = np.array([sum(draw) / 6 for draw in itertools.product(values, repeat=6)])
    normal, mean = NormalDist(), sum(values) / 6
    ties = np.abs(means - mean) < 1e-12
    bias = normal.inv_cdf(np.mean((means < mean) & ~ties) + np.mean(ties) / 2)
    left_out = [(sum(values) - value) / 5 for value in values]
    spread = [sum(left_out) / 6 - one for one in left_out]
    acceleration = sum(d**3 for d in spread) / (6 * sum(d**2 for d in spread) ** 1.5)
    shares = [
        normal.cdf(bias + (bias + z) / (1 - acceleration * (bias + z))) for z in (-Z_95, Z_95)
    ]
    found = bootstrap_interval(values, seed=1, num_resamples=200_000)
    # The means are multiples of 1/60; an end may fall on a neighbouring one.
    assert found == pytest.approx(tuple(np.quantile(means, shares)), abs=1 / 60 + 1e-12)
    assert found[1] - mean > mean - found[0]


def test_equal_values_have_no_width() -> None:
    assert bootstrap_interval([0.25] * 5, seed=0) == (0.25, 0.25)


def test_bad_input_is_named() -> None:
    with pytest.raises(DataError, match=r"bootstrap over values of shape \(0,\)"):
        bootstrap_interval([], seed=0)
    with pytest.raises(DataError, match="expected one finite number per problem"):
        bootstrap_interval([0.5, float("nan")], seed=0)
