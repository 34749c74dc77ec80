"""95 % intervals of a mean over problems, and of a paired difference. Nothing is drawn.

    one right or wrong answer a problem          Wilson's interval
    values in [0, 1] (avg@k, pass@k, maj@k)      Wilson's interval on the effective sample size
    differences in [-1, 1] of paired values      Tango's interval on the effective sample size

n problems whose values vary less than right and wrong answers would are worth more than n of them.
Survey statistics calls the ratio of the two variances the design effect and n over it the effective
sample size (Kish, 1965, "Survey sampling", section 8.2), and puts the latter into Wilson's interval
(Korn and Graubard, 1998, "Confidence intervals for proportions with small expected number of
positive counts estimated from survey data", Survey Methodology 24; Franco, Little, Louis and Slud,
2019, Journal of Survey Statistics and Methodology 7, who compare the choices). Right and wrong
answers have a design effect of one, so Wilson's and Tango's own intervals are special cases, and
equal values of any kind get equal intervals.

The estimated design effect is drawn towards one where few problems carry the value: a handful of
them says little on how much values vary. The weight of that, `_FEW` / (`_FEW` + carriers^2), is
ours and was chosen in simulation, as was the whole method: at 30 problems the percentile bootstrap,
BCa and the plain interval of paired differences hold too few truths. docs/concepts/intervals.md has
the table, and benchmarks/intervals.py makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from workings.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

_FEW = 4.0
_BISECTIONS = 60
"""Halvings of an interval of length one, to below the spacing of floats."""


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
    z = normal_quantile(level)
    share = successes / n
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5 / scale
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def mean_interval(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float]:
    """The interval of the mean of `values` in [0, 1], one for each problem.

    Problems are what is drawn from a population, so the samples of one problem count as one value,
    whatever their number. Values of 0 and 1 get `wilson_interval`, to the last bits.

    >>> low, high = mean_interval([0.25, 0.5, 0.75, 0.5] * 10)
    >>> f"{low:.3f} {high:.3f}"
    '0.444 0.556'
    """
    import numpy as np

    data = _checked(values, low=0.0)
    total, squares = np.asarray(np.sum(data)), np.asarray(np.sum(data * data))
    low, high = mean_ends(data.size, total, squares, level=level)
    return float(low), float(high)


def difference_interval(
    differences: Sequence[float], *, level: float = 0.95
) -> tuple[float, float]:
    """The interval of the mean of paired `differences` in [-1, 1], one for each problem.

    Where all are zero it is as wide as what n problems that could have differed leave open:

    >>> low, high = difference_interval([0.0] * 30)
    >>> f"{low:.3f} {high:.3f}"
    '-0.114 0.114'
    """
    data = _checked(differences, low=-1.0)
    low, high = difference_ends(data.size, *_gains_and_losses(data), level=level)
    return float(low), float(high)


def mean_ends(n: int, total: Array, squares: Array, *, level: float = 0.95) -> tuple[Array, Array]:
    """The ends for the sum of `n` values and the sum of their squares, elementwise."""
    import numpy as np

    z = normal_quantile(level)
    mean, mean_square = np.clip(total / n, 0, 1), squares / n
    carriers = np.minimum(
        _carriers(n * mean, squares), _carriers(n * (1 - mean), n * (1 - 2 * mean + mean_square))
    )
    effect = _design_effect(n, mean_square - mean**2, mean - mean**2, carriers)
    size = n / effect
    scale = 1 + z * z / size
    centre = (mean + z * z / (2 * size)) / scale
    half = z * np.sqrt(mean * (1 - mean) / size + z * z / (4 * size**2)) / scale
    low = np.where(mean == 0, 0.0, np.clip(centre - half, 0, mean))
    high = np.where(mean == 1, 1.0, np.clip(centre + half, mean, 1))
    return low, high


def difference_ends(
    n: int, gains: Array, losses: Array, squares: Array, *, level: float = 0.95
) -> tuple[Array, Array]:
    """The ends for sums over `n` problems: of what was gained, of what was lost, of squares.

    Tango's interval holds every difference that the score test of two paired proportions does not
    reject, with the number of losses at its most likely value under that difference (Tango, 1998,
    Statistics in Medicine 17, 891-908, equations 8 to 10). Gains and losses enter as counts of the
    effective sample size.
    """
    import numpy as np

    z = normal_quantile(level)
    size, gained, lost = _effective_counts(n, gains, losses, squares)
    middle = (gained - lost) / size

    def score(difference: Array) -> Array:
        linear = (2 * size - gained + lost) * difference - gained - lost
        constant = -lost * difference * (1 - difference)
        root = np.sqrt(np.maximum(linear**2 - 8 * size * constant, 0))
        variance = size * ((root - linear) / (2 * size) + difference * (1 - difference))
        return (gained - lost - size * difference) / np.sqrt(np.maximum(variance, 1e-300))

    def crossing(low: Array, high: Array, target: float) -> Array:
        for _ in range(_BISECTIONS):
            half = (low + high) / 2
            above = score(half) > target
            low, high = np.where(above, half, low), np.where(above, high, half)
        return (low + high) / 2

    ones = np.ones_like(middle)
    return crossing(-ones, middle, z), crossing(middle, ones, -z)


def difference_p_value(differences: Sequence[float]) -> float:
    """The two-sided p of "no difference", from the test that `difference_interval` inverts.

    For right and wrong answers it is McNemar's, without a continuity correction. It is below 0.05
    just where the 95 % interval leaves zero out.

    >>> round(difference_p_value([1] * 10 + [-1] * 2 + [0] * 18), 4)
    0.0209
    """
    data = _checked(differences, low=-1.0)
    _, gained, lost = _effective_counts(data.size, *_gains_and_losses(data))
    if gained + lost == 0:
        return 1.0
    z = abs(float(gained - lost)) / float(gained + lost) ** 0.5
    return 2 * NormalDist().cdf(-z)


def normal_quantile(level: float) -> float:
    """How many standard deviations hold `level` of a normal distribution; 1.96 for 0.95."""
    if not 0 < level < 1:
        raise ConfigError(f"level={level}; expected a confidence level between 0 and 1, say 0.95")
    return NormalDist().inv_cdf(0.5 + level / 2)


def _gains_and_losses(differences: Array) -> tuple[Array, Array, Array]:
    """The sums that a difference's interval is made of: gains, losses and squares."""
    import numpy as np

    gains, losses = np.maximum(differences, 0), np.maximum(-differences, 0)
    return np.asarray(gains.sum()), np.asarray(losses.sum()), np.asarray((differences**2).sum())


def _effective_counts(
    n: int, gains: Array, losses: Array, squares: Array
) -> tuple[Array, Array, Array]:
    """The effective sample size, and in it the numbers of gains and of losses."""
    mean, mean_square, mean_size = (gains - losses) / n, squares / n, (gains + losses) / n
    carriers = _carriers(gains + losses, squares)
    effect = _design_effect(n, mean_square - mean**2, mean_size - mean**2, carriers)
    return n / effect, gains / effect, losses / effect


def _design_effect(n: int, variance: Array, at_most: Array, carriers: Array) -> Array:
    """The variance over what it would be `at_most`, drawn towards 1 where few problems carry it."""
    import numpy as np

    estimate = np.ones_like(variance)
    np.divide(variance * (n / max(n - 1, 1)), at_most, out=estimate, where=at_most > 1e-15)
    weight = _FEW / (_FEW + carriers**2)
    return np.clip(estimate, 0, 1) * (1 - weight) + weight


def _carriers(total: Array, squares: Array) -> Array:
    """How many problems of equal size would have this sum and this sum of squares; 0 of nothing."""
    import numpy as np

    found = np.zeros_like(squares)
    np.divide(np.square(total), squares, out=found, where=squares > 1e-15)
    return found


def _checked(values: Sequence[float], *, low: float) -> Array:
    import numpy as np

    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or data.size == 0 or not np.isfinite(data).all():
        raise DataError(
            f"an interval over values of shape {data.shape}; expected one finite number per "
            "problem and at least one problem"
        )
    outside = data[(data < low - 1e-9) | (data > 1 + 1e-9)]
    if outside.size:
        raise DataError(
            f"{outside.size} of {data.size} values are outside of [{low:g}, 1], {outside[0]:g} for "
            "one; the interval is for shares, or for differences of shares"
        )
    return data
