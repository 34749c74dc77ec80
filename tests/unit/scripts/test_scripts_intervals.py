"""Coverage of the intervals: a part of the grid in simulation, and the recorded whole."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
REPLICATES = 1500


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_the_intervals_of_a_part_of_the_grid() -> None:
    from interval_simulation import averages, mean_coverage
    from intervals import MEANS

    found = [
        mean_coverage(averages(k), rate, spread, n=n, replicates=REPLICATES, seed=index).share
        for index, (n, rate, spread, k) in enumerate(
            product((30, 200), MEANS, (0.5, 20.0), (1, 8, 32))
        )
    ]
    # The bounds are 93 to 97 and 90 %. Three standard errors of one cell at 90 % are 2.3 points, of
    # the mean of sixty cells at 95 % 0.2.
    assert 0.93 - 0.002 < mean(found) < 0.97 + 0.002
    assert min(found) > 0.90 - 0.023


def test_values_that_are_no_averages_are_covered_as_well() -> None:
    from interval_simulation import majorities, mean_coverage, passes

    found = [
        mean_coverage(values, rate, 2.0, n=30, replicates=REPLICATES, seed=index).share
        for index, (rate, values) in enumerate(
            product((0.05, 0.3, 0.5), (passes(4)(8), passes(8)(8), majorities(8)))
        )
    ]
    assert min(found) > 0.90 - 0.023


def test_where_wilson_dips_is_known() -> None:
    """Near 0 and 1, Wilson's own coverage falls below 90 % (Brown, Cai and DasGupta, 2001)."""
    from interval_simulation import mean_coverage, passes

    found = mean_coverage(passes(8)(8), 0.9, 2.0, n=30, replicates=10_000, seed=0)
    assert 0.84 < found.share < 0.90


def test_paired_differences_at_thirty_problems() -> None:
    from interval_simulation import CHANGES, paired_coverage

    both = [
        paired_coverage(change, rate, spread, n=30, k=k, replicates=REPLICATES, seed=index)
        for index, (change, rate, spread, k) in enumerate(
            product(CHANGES, (0.05, 0.5, 0.9), (0.5, 20.0), (1, 8))
        )
    ]
    ours, plain = zip(*both, strict=True)
    assert min(one.share for one in ours) > 0.90 - 0.023
    # What a method without the cautious end does: it misses most truths where little has changed.
    assert min(one.share for one in plain) < 0.5


def test_the_percentile_bootstrap_falls_short_where_ours_does_not() -> None:
    from interval_simulation import averages, bootstrap_coverage, mean_coverage

    settings = {"n": 30, "replicates": 400, "seed": 5}
    drawn = bootstrap_coverage(averages(32), 0.05, 0.5, **settings)
    ours = mean_coverage(averages(32), 0.05, 0.5, **settings)
    # Three standard errors of 400 replicates at 85 % are 5.4 points.
    assert drawn["percentile"].share < 0.87
    assert drawn["BCa"].share < 0.92
    assert ours.share > 0.90


def test_pass_at_k_is_unbiased_in_simulation() -> None:
    from interval_simulation import pass_bias
    from intervals import MEANS

    scores = []
    for index, (rate, (n, k)) in enumerate(product(MEANS, ((8, 2), (8, 8), (32, 8)))):
        bias, error = pass_bias(n, k, rate, 2.0, replicates=20_000, seed=index)
        scores.append(bias / error)
    # Fifteen standard normal numbers: above 4 once in a thousand runs, were the seeds not fixed.
    assert max(map(abs, scores)) < 4
    assert mean(score**2 for score in scores) < 2.5


def test_pass_at_k_is_unbiased_exactly() -> None:
    """Its mean over beta-binomial counts is E[1 - (1 - p)^k], whatever the number of samples."""
    from interval_simulation import exact_pass, passes, population_mean
    from intervals import CONCENTRATIONS, MEANS

    for rate, spread, (n, k) in product(MEANS, CONCENTRATIONS, ((8, 1), (8, 4), (32, 8), (64, 64))):
        assert population_mean(passes(k)(n), rate, spread) == pytest.approx(
            exact_pass(k, rate, spread), abs=1e-9
        )


def test_the_population_mean_by_drawing() -> None:
    from interval_simulation import draw_counts, majorities, population_mean

    values = majorities(8)
    draws = draw_counts(0.3, 2.0, n=1, k=8, replicates=200_000, seed=0)
    found = np.concatenate([values[counts[:, 0]] for counts in draws])
    assert len(found) == 200_000
    # A standard deviation of at most one half, four standard errors.
    assert found.mean() == pytest.approx(population_mean(values, 0.3, 2.0), abs=2 / 200_000**0.5)


# ------------------------------------------------------------------------------ what is recorded


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict]:
    content = json.loads((BENCHMARKS / "results" / "intervals.json").read_text(encoding="utf-8"))
    return {row["name"]: row for row in content["results"]}


def test_the_recorded_grid_is_whole_and_within_its_bounds(recorded: dict[str, dict]) -> None:
    from intervals import CONCENTRATIONS, MEANS, PROBLEMS, SAMPLES

    cells = [row for name, row in recorded.items() if re.match(r"avg@k of [\d,]+ problems: ", name)]
    assert len(cells) == len(MEANS) * len(CONCENTRATIONS) * len(PROBLEMS) * len(SAMPLES)
    assert {0.05, 0.1, 0.3, 0.5, 0.9} <= set(MEANS)
    assert {30, 500, 5000} <= set(PROBLEMS)
    assert {1, 8, 32} <= set(SAMPLES)
    assert all(row["n"] >= 2000 for row in cells)
    assert 93 <= mean(row["value"] for row in cells) <= 97
    assert min(row["value"] for row in cells) >= 90
    several = [row["value"] for row in cells if "k = 1," not in row["name"]]
    assert 93 <= mean(several) <= 97
    # The rows of totals say the same, to their two decimals.
    total = recorded["mean coverage of the grid"]["value"]
    assert total == pytest.approx(mean(row["value"] for row in cells), abs=0.011)
    assert recorded["lowest coverage of the grid"]["value"] == min(row["value"] for row in cells)


def test_the_recorded_differences_and_other_values(recorded: dict[str, dict]) -> None:
    pairs = [row for name, row in recorded.items() if name.startswith("differences of ")]
    others = [row for name, row in recorded.items() if name.startswith("other values of ")]
    assert len(pairs) == 144
    assert len(others) == 45
    assert min(row["value"] for row in [*pairs, *others]) >= 90
    bias = [row["value"] for name, row in recorded.items() if name.endswith(": largest bias")]
    assert len(bias) == 4
    assert max(bias) < 4
