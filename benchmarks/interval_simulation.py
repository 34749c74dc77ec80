"""Simulated evaluations: what is drawn, what holds for the population, which intervals hold it.

A replicate is an evaluation: every problem has a rate of right answers, drawn from a Beta
distribution, and k samples. The truth is the mean over the population of problems, not over those
that were drawn. Ends come from the functions of the package, on sums of all replicates at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from measured import Row

from workings.evaluation.bootstrap import bca_shares, resampled_means
from workings.evaluation.intervals import (
    difference_ends,
    mean_ends,
    normal_quantile,
    wilson_interval,
)
from workings.evaluation.metrics import maj_at_k, pass_at_k, same_text

Array = np.ndarray[Any, np.dtype[np.float64]]
Table = Callable[[int], Array]

UNTOUCHED = "3 % of problems solved, the rest untouched"
CHANGES = {
    "no change": 0.0,
    "10 % of errors away": 0.1,
    UNTOUCHED: 0.03,
}
"""The second model solves this share of what the first gets wrong, sample by sample; the last
repeats the first model's answers but for problems that it now solves always."""
NUM_RESAMPLES = 1000
DRAWS_AT_ONCE = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many of the intervals of a cell hold the truth, and how wide they are on average."""

    hits: int
    replicates: int
    width: float

    @property
    def share(self) -> float:
        return self.hits / self.replicates

    def row(self, name: str) -> Row:
        """A row of the results file, in percent and points."""
        low, high = wilson_interval(self.hits, self.replicates)
        return {
            "name": name,
            "value": round(100 * self.share, 2),
            "unit": "%",
            "low": round(100 * low, 2),
            "high": round(100 * high, 2),
            "n": self.replicates,
            "note": f"width {100 * self.width:.1f}",
        }


# ---------------------------------------------------------------------------------- what is drawn


def averages(k: int) -> Array:
    """The value of a problem with 0, 1, ..., k right samples: avg@k."""
    return np.arange(k + 1) / k


def passes(k: int) -> Table:
    """The same for pass@k of any number of samples."""
    return lambda n: np.array([pass_at_k(n, right, k) for right in range(n + 1)])


def majorities(k: int) -> Array:
    """The same for maj@k where all wrong samples say the same."""
    votes = [["right"] * right + ["wrong"] * (k - right) for right in range(k + 1)]
    return np.array([maj_at_k(row, [v == "right" for v in row], equal=same_text) for row in votes])


def draw_counts(
    mean: float, concentration: float, *, n: int, k: int, replicates: int, seed: int
) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    """Numbers of right samples, [replicates, n] in parts that fit into memory."""
    generator = np.random.default_rng(seed)
    for size in _parts(replicates, n):
        rates = generator.beta(mean * concentration, (1 - mean) * concentration, size=(size, n))
        yield generator.binomial(k, rates)


def population_mean(values: Array, mean: float, concentration: float) -> float:
    """The mean of `values[right]` over problems: right is beta-binomial."""
    a, b, k = mean * concentration, (1 - mean) * concentration, len(values) - 1
    chances = [
        math.exp(
            math.lgamma(k + 1)
            - math.lgamma(c + 1)
            - math.lgamma(k - c + 1)
            + _log_beta(c + a, k - c + b)
            - _log_beta(a, b)
        )
        for c in range(k + 1)
    ]
    return float(np.dot(chances, values))


def exact_pass(k: int, mean: float, concentration: float) -> float:
    """E[1 - (1 - p)^k] of a Beta rate p."""
    a, b = mean * concentration, (1 - mean) * concentration
    return 1 - math.exp(_log_beta(a, b + k) - _log_beta(a, b))


# ------------------------------------------------------------------------------ what is counted


def mean_coverage(
    values: Array, mean: float, concentration: float, *, n: int, replicates: int, seed: int
) -> Coverage:
    """The coverage of `mean_ends`; `values[c]` is what a problem with c right samples counts."""
    truth = population_mean(values, mean, concentration)
    hits, width = 0, 0.0
    draws = draw_counts(
        mean, concentration, n=n, k=len(values) - 1, replicates=replicates, seed=seed
    )
    for counts in draws:
        found = values[counts]
        low, high = mean_ends(n, found.sum(axis=1), np.square(found).sum(axis=1))
        hits += _held(low, truth, high)
        width += float((high - low).sum())
    return Coverage(hits=hits, replicates=replicates, width=width / replicates)


def bootstrap_coverage(
    values: Array, mean: float, concentration: float, *, n: int, replicates: int, seed: int
) -> dict[str, Coverage]:
    """The coverage of the percentile bootstrap and of BCa."""
    truth, z = population_mean(values, mean, concentration), normal_quantile(0.95)
    hits, widths = {"percentile": 0, "BCa": 0}, {"percentile": 0.0, "BCa": 0.0}
    draws = draw_counts(
        mean, concentration, n=n, k=len(values) - 1, replicates=replicates, seed=seed
    )
    for index, row in enumerate(row for counts in draws for row in values[counts]):
        resampled = resampled_means(row, seed=seed + index, num_resamples=NUM_RESAMPLES)
        ends = {"percentile": np.quantile(resampled, [0.025, 0.975])}
        level = np.ptp(row) == 0
        ends["BCa"] = (
            ends["percentile"] if level else np.quantile(resampled, bca_shares(row, resampled, z=z))
        )
        for name, (low, high) in ends.items():
            hits[name] += _held(low, truth, high)
            widths[name] += float(high - low)
    return {
        name: Coverage(hits=hits[name], replicates=replicates, width=widths[name] / replicates)
        for name in hits
    }


def paired_coverage(
    change: str,
    mean: float,
    concentration: float,
    *,
    n: int,
    k: int,
    replicates: int,
    seed: int,
) -> tuple[Coverage, Coverage]:
    """The coverage of `difference_ends` of avg@k, where the second model is changed like that.

    And that of the plain interval: the mean of the differences and 1.96 of its standard errors.
    """
    generator = np.random.default_rng(seed)
    gain = CHANGES[change]
    truth = gain * (1 - mean)
    hits, widths = [0, 0], [0.0, 0.0]
    for size in _parts(replicates, n):
        rates = generator.beta(mean * concentration, (1 - mean) * concentration, size=(size, n))
        first = generator.binomial(k, rates) / k
        if change == UNTOUCHED:
            second = np.where(generator.random((size, n)) < gain, 1.0, first)
        else:
            second = generator.binomial(k, rates + gain * (1 - rates)) / k
        found = second - first
        sums = (np.maximum(found, 0).sum(axis=1), np.maximum(-found, 0).sum(axis=1))
        plain = normal_quantile(0.95) * found.std(axis=1, ddof=1) / math.sqrt(n)
        ends = (
            difference_ends(n, *sums, np.square(found).sum(axis=1)),
            (found.mean(axis=1) - plain, found.mean(axis=1) + plain),
        )
        for index, (low, high) in enumerate(ends):
            hits[index] += _held(low, truth, high)
            widths[index] += float((high - low).sum())
    ours, plain_one = (
        Coverage(hits=held, replicates=replicates, width=width / replicates)
        for held, width in zip(hits, widths, strict=True)
    )
    return ours, plain_one


def pass_bias(
    n: int, k: int, mean: float, concentration: float, *, replicates: int, seed: int
) -> tuple[float, float]:
    """The mean of pass@k of n samples less its expectation, and its Monte Carlo standard error.

    The error comes from the exact variance: where nearly every value is 1, the simulated one rests
    on a handful of draws.
    """
    values = passes(k)(n)
    draws = draw_counts(mean, concentration, n=1, k=n, replicates=replicates, seed=seed)
    found = np.concatenate([values[counts[:, 0]] for counts in draws])
    # Of the distance to 1, because both terms of 1 - 1 would leave no digits.
    far = 1 - values
    variance = population_mean(far**2, mean, concentration) - (
        population_mean(far, mean, concentration) ** 2
    )
    bias = (1 - exact_pass(k, mean, concentration)) - float((1 - found).mean())
    return bias, math.sqrt(variance / replicates)


def _parts(replicates: int, n: int) -> Iterator[int]:
    step = max(1, DRAWS_AT_ONCE // n)
    for start in range(0, replicates, step):
        yield min(step, replicates - start)


def _held(low: Any, truth: float, high: Any) -> int:
    # An end may be the truth itself, but for the last bits of a sum.
    return int(np.sum((low <= truth + 1e-12) & (truth - 1e-12 <= high)))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
