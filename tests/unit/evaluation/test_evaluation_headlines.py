"""Unweighted means over benchmarks."""

from __future__ import annotations

import doctest

import pytest

from workings.errors import DataError
from workings.evaluation import headlines
from workings.evaluation.headlines import (
    MATHEMATICS,
    OUT_OF_DISTRIBUTION,
    average_of,
    headline_averages,
    mathematics_average,
    out_of_distribution_average,
)
from workings.evaluation.metrics import estimate


def _estimate(right: int, n: int):
    return estimate([1] * right + [0] * (n - right), num_samples=1)


def test_doctests() -> None:
    assert doctest.testmod(headlines).failed == 0


def test_every_data_set_counts_the_same() -> None:
    small, large = _estimate(3, 30), _estimate(400, 500)
    found = average_of({"small": small, "large": large})
    assert found.value == pytest.approx((0.1 + 0.8) / 2)
    below = ((0.1 - small.low) ** 2 + (0.8 - large.low) ** 2) ** 0.5 / 2
    assert found.low == pytest.approx(found.value - below)
    assert found.data_sets == ("small", "large")
    # Less wide than the small set alone, wider than both together as one set would be.
    assert found.high - found.low < (small.high - small.low)


def test_one_data_set_keeps_its_interval() -> None:
    one = _estimate(7, 30)
    found = average_of({"one": one})
    assert (found.low, found.high) == pytest.approx((one.low, one.high))
    with pytest.raises(DataError, match="no data set to average over"):
        average_of({})


def test_the_averages_of_the_luffy_table() -> None:
    estimates = {name: _estimate(index, 20) for index, name in enumerate(MATHEMATICS)}
    outside = {name: _estimate(10 + index, 20) for index, name in enumerate(OUT_OF_DISTRIBUTION)}
    assert mathematics_average(outside) is out_of_distribution_average(estimates) is None
    everything = {"gsm8k": _estimate(20, 20), **estimates, **outside}
    mathematics, others = mathematics_average(everything), out_of_distribution_average(everything)
    assert mathematics is not None
    assert others is not None
    assert mathematics.value == pytest.approx(sum(range(6)) / 6 / 20)
    assert others.value == pytest.approx(11 / 20)
    assert list(headline_averages(everything)) == [
        *("mathematics avg", "out-of-distribution avg", "avg"),
    ]
    assert list(headline_averages(estimates)) == ["mathematics avg"]
    assert headline_averages({"gsm8k": _estimate(1, 2)}) == {}


def test_five_of_six_are_not_the_average_of_six() -> None:
    estimates = {name: _estimate(1, 20) for name in MATHEMATICS[1:]}
    assert mathematics_average(estimates) is None


def test_other_spellings_are_known() -> None:
    names = ("AIME2024", "AIME2025", "AMC", "MATH-500", "Minerva", "OlympiadBench")
    found = mathematics_average({name: _estimate(1, 20) for name in names})
    assert found is not None
    assert found.data_sets == names
