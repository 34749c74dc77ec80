"""The bootstrap over problems: BCa intervals, for comparison with programs that report those."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from workings.errors import DataError
from workings.evaluation.intervals import normal_quantile

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

NUM_RESAMPLES = 10_000
_MOST_DRAWS_AT_ONCE = 4_000_000


def bootstrap_interval(
    values: Sequence[float],
    *,
    seed: int,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> tuple[float, float]:
    """The BCa bootstrap interval of the mean of `values`, one value per problem.

    Percentiles of resampled means, moved by the bias and the acceleration of the mean (Efron, 1987,
    "Better bootstrap confidence intervals", equations 2.3 and 6.6). Problems are drawn with
    replacement, never single samples: the samples of one problem go together (Efron and Tibshirani,
    1993, "An introduction to the bootstrap", section 13.3).

    It is short for few problems and low means, and has no width where all values are equal:
    `mean_interval` is what reports use.

    >>> low, high = bootstrap_interval([0.0, 1.0] * 50, seed=0)
    >>> round(low, 2), round(high, 2)
    (0.4, 0.6)
    """
    import numpy as np

    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or data.size == 0 or not np.isfinite(data).all():
        raise DataError(
            f"bootstrap over values of shape {data.shape}; expected one finite number per problem "
            "and at least one problem"
        )
    z = normal_quantile(level)
    means = resampled_means(data, seed=seed, num_resamples=num_resamples)
    if np.ptp(data) == 0:
        return float(data[0]), float(data[0])
    low, high = np.quantile(means, bca_shares(data, means, z=z))
    return float(low), float(high)


def bca_shares(data: Array, means: Array, *, z: float) -> tuple[float, float]:
    """Which quantiles of the resampled means are the ends of the interval."""
    import numpy as np

    normal = NormalDist()
    mean = float(data.mean())
    # Resampled means live on a grid, so those that hit the mean count half on either side.
    below = float(np.mean(means < mean - 1e-12)) + float(np.mean(np.abs(means - mean) <= 1e-12)) / 2
    bias = normal.inv_cdf(min(max(below, 1 / len(means)), 1 - 1 / len(means)))
    centred = data - mean
    acceleration = float(np.sum(centred**3) / (6 * np.sum(centred**2) ** 1.5))
    ends = []
    for quantile in (bias - z, bias + z):
        ends.append(normal.cdf(bias + quantile / (1 - acceleration * quantile)))
    return ends[0], ends[1]


def resampled_means(data: Array, *, seed: int, num_resamples: int) -> Array:
    """Means of `num_resamples` draws with replacement; equal values are drawn together."""
    import numpy as np

    levels, counts = np.unique(data, return_counts=True)
    generator = np.random.default_rng(seed)
    chunk = max(1, _MOST_DRAWS_AT_ONCE // levels.size)
    means = []
    for start in range(0, num_resamples, chunk):
        size = min(chunk, num_resamples - start)
        draws = generator.multinomial(data.size, counts / data.size, size=size)
        means.append(draws @ levels / data.size)
    return np.concatenate(means)
