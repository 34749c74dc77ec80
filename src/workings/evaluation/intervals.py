"""Intervals around shares and means: Wilson for one sample per problem, bootstrap for several."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

from workings.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np

NUM_RESAMPLES = 10_000
_MOST_DRAWS_AT_ONCE = 4_000_000


def wilson_interval(successes: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """The ends of Wilson's score interval for `successes` out of `n`.

    All p with |successes/n - p| <= z sqrt(p (1 - p) / n), where z is the normal quantile of
    `level` (Wilson, 1927, "Probable inference", equation 7). It stays inside [0, 1] and has a
    width at 0 and at n, where the textbook interval has none.

    >>> low, high = wilson_interval(412, 500)
    >>> f"{low:.4f} {high:.4f}"
    '0.7882 0.8549'
    """
    if n < 1 or not 0 <= successes <= n:
        raise DataError(f"{successes} of {n}; expected at least one trial and 0 <= successes <= n")
    z = NormalDist().inv_cdf(0.5 + _checked_level(level) / 2)
    share = successes / n
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5 / scale
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def bootstrap_interval(
    values: Sequence[float],
    *,
    seed: int,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> tuple[float, float]:
    """The percentile bootstrap interval of the mean of `values`, one value per problem.

    Problems are drawn with replacement, never single samples: the samples of one problem go
    together, and treating them as independent makes the interval too narrow (Efron and
    Tibshirani, 1993, "An introduction to the bootstrap", section 13.3).

    >>> bootstrap_interval([0.0, 1.0] * 50, seed=0)
    (0.4, 0.6)
    """
    import numpy as np

    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or data.size == 0 or not np.isfinite(data).all():
        raise DataError(
            f"bootstrap over values of shape {data.shape}; expected one finite number per problem "
            "and at least one problem"
        )
    tail = (1 - _checked_level(level)) / 2
    means = _resampled_means(data, seed=seed, num_resamples=num_resamples)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def _resampled_means(
    data: np.ndarray[tuple[int], np.dtype[np.float64]], *, seed: int, num_resamples: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
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


def _checked_level(level: float) -> float:
    if not 0 < level < 1:
        raise ConfigError(f"level={level}; expected a confidence level between 0 and 1, say 0.95")
    return level
