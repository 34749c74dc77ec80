"""Draws are a pure function of (seed, sample, step), uniform, and different between samples."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workings.rollout.draws import mix, stream_keys, uniforms

SEEDS = st.integers(min_value=-(2**70), max_value=2**70)


def test_mix_gives_the_published_splitmix64_sequence() -> None:
    """First outputs for seed 1234567, from the reference implementation (prng.di.unimi.it)."""
    state = np.array([(1234567 + 0x9E3779B97F4A7C15 * i) % 2**64 for i in (1, 2, 3)], np.uint64)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert mix(state).tolist() == expected


@given(seed=SEEDS, sample=st.integers(0, 10_000), step=st.integers(0, 100_000))
def test_a_draw_does_not_depend_on_its_neighbours(seed: int, sample: int, step: int) -> None:
    alone = uniforms(stream_keys([seed], [sample]), np.array([step]))
    crowd = uniforms(stream_keys([5, seed, -1], [0, sample, 9]), np.array([3, step, 8]))
    assert alone[0] == crowd[1]
    assert 0.0 <= alone[0] < 1.0


def test_streams_of_neighbouring_seeds_samples_and_steps_are_distinct() -> None:
    seeds, samples, steps = np.meshgrid(np.arange(20), np.arange(20), np.arange(20))
    keys = stream_keys(seeds.ravel().tolist(), samples.ravel().tolist())
    draws = uniforms(keys, steps.ravel())
    assert len(set(draws.tolist())) == 8000


def test_draws_are_uniform() -> None:
    """Chi-square with 99 degrees of freedom: 99.99 % of true uniforms stay below 161."""
    keys = stream_keys(list(range(1000)), [0] * 1000)
    draws = np.concatenate([uniforms(keys, np.full(1000, step)) for step in range(100)])
    counts, _ = np.histogram(draws, bins=100, range=(0, 1))
    assert ((counts - 1000) ** 2 / 1000).sum() < 161
    correlation = np.corrcoef(draws[:-1000], draws[1000:])[0, 1]
    assert abs(correlation) < 0.02
