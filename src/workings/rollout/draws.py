"""Uniform random numbers that are a pure function of (request seed, sample, step).

Counter based (SplitMix64; Steele, Lea and Flood, OOPSLA 2014): there is no generator to carry
along, so a draw does not depend on what else is in the batch, on the order of the rows or on which
rows have finished, and a whole step is drawn in one vectorised call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MASK = 0xFFFFFFFFFFFFFFFF


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: a bijection of the 64-bit integers that scrambles them.

    >>> hex(int(mix(np.array([0x9E3779B97F4A7C15], dtype=np.uint64))[0]))
    '0xe220a8397b1dcdaf'
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def stream_keys(seeds: Sequence[int], samples: Sequence[int]) -> NDArray[np.uint64]:
    """One 64-bit key per (seed, sample index); a key starts a stream of draws."""
    seed_words = np.array([seed & MASK for seed in seeds], dtype=np.uint64)
    sample_words = np.array(samples, dtype=np.uint64)
    return mix(mix(seed_words + GOLDEN) ^ mix((sample_words + np.uint64(1)) * GOLDEN))


def uniforms(keys: NDArray[np.uint64], steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """A float64 in [0, 1) for each key at its step, with 53 random bits.

    >>> keys = stream_keys([7, 7, 8], [0, 1, 0])
    >>> draws = uniforms(keys, np.array([0, 0, 0]))
    >>> bool((draws == uniforms(keys[::-1], np.array([0, 0, 0]))[::-1]).all()), len(set(draws))
    (True, 3)
    """
    words = mix(keys + (steps.astype(np.uint64) + np.uint64(1)) * GOLDEN)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
