"""The sampler against transformers' warpers, plain softmax, and chi-square tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from workings.errors import EngineError
from workings.rollout import sampler
from workings.rollout.engine import LEAST_KEPT_MASS, SamplingParams
from workings.rollout.sampler import sample_tokens

TRUNCATIONS = [
    {},
    {"top_k": 5},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"top_k": 40, "top_p": 0.9},
    {"top_k": 30, "top_p": 0.95, "min_p": 0.05},
    {"top_p": 0.7, "min_p": 0.2},
]


def random_logits(rows: int, vocabulary: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocabulary, generator=generator) * 3


def warped(logits: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """Probabilities after transformers' own warpers, in float64."""
    scores = logits.double() / sampling.temperature
    if sampling.top_k > 0:
        scores = TopKLogitsWarper(sampling.top_k)(None, scores)
    if sampling.top_p < 1.0:
        scores = TopPLogitsWarper(sampling.top_p)(None, scores)
    if sampling.min_p > 0.0:
        scores = MinPLogitsWarper(sampling.min_p)(None, scores)
    return scores.softmax(-1)


@pytest.mark.parametrize("truncation", TRUNCATIONS, ids=str)
@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
@pytest.mark.parametrize("vocabulary", [110, 1000, 5000])
def test_A5a_logprob_and_kept_mass_match_the_full_softmax_and_the_warpers(
    truncation: dict[str, float], temperature: float, vocabulary: int
) -> None:
    logits = random_logits(64, vocabulary)
    uniforms = torch.rand(64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    sampling = SamplingParams(temperature=temperature, **truncation)
    drawn = sample_tokens(logits, uniforms, sampling=sampling)
    full = torch.log_softmax(logits.double() / temperature, -1)
    expected = full.gather(-1, drawn.ids[:, None])[:, 0]
    assert torch.allclose(drawn.logprobs.double(), expected, atol=1e-5)
    kept = warped(logits, sampling)
    assert (kept.gather(-1, drawn.ids[:, None]) > 0).all(), "a truncated token was drawn"
    mass = torch.where(kept > 0, full.exp(), 0.0).sum(-1)
    assert torch.allclose(drawn.kept_mass.double(), mass, atol=1e-5)
    behaviour = drawn.logprobs.double() - drawn.kept_mass.double().log()
    assert torch.allclose(behaviour, kept.gather(-1, drawn.ids[:, None])[:, 0].log(), atol=2e-5)


@pytest.mark.parametrize("truncation", TRUNCATIONS, ids=str)
def test_frequencies_follow_the_distribution(truncation: dict[str, float]) -> None:
    """Chi-square; the bound is passed by a true sampler in all but one of 100,000 runs."""
    draws = 40_000
    logits = random_logits(1, 12, seed=3) / 2
    sampling = SamplingParams(temperature=1.3, **truncation)
    uniforms = torch.rand(draws, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    drawn = sample_tokens(logits.expand(draws, -1), uniforms, sampling=sampling)
    counts = np.bincount(drawn.ids.numpy(), minlength=12)
    expected = (warped(logits, sampling)[0] * draws).numpy()
    assert (counts[expected == 0] == 0).all()
    positive = expected > 0
    freedom = positive.sum() - 1
    statistic = ((counts - expected)[positive] ** 2 / expected[positive]).sum()
    assert statistic < freedom + 4.3 * math.sqrt(2 * freedom) + 10


def test_every_token_is_reached_by_its_own_share_of_the_unit_interval() -> None:
    """Inverse CDF: tokens in order, interval lengths equal to probabilities, none skipped."""
    logits = random_logits(1, 700, seed=5)
    uniforms = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    ids = torch.cat(
        [
            sample_tokens(logits.expand(len(part), -1), part, sampling=SamplingParams()).ids
            for part in uniforms.split(2000)
        ]
    )
    assert (ids.diff() >= 0).all()
    shares = torch.bincount(ids, minlength=700) / 200_000
    assert torch.allclose(shares, logits.softmax(-1)[0], atol=1.1e-5)


def test_extreme_uniforms_never_draw_an_impossible_token() -> None:
    logits = torch.full((2, 300), -torch.inf)
    logits[:, 17], logits[:, 280] = 0.0, 1.0
    uniforms = torch.tensor([0.0, 1.0 - 2.0**-53], dtype=torch.float64)
    for truncation in TRUNCATIONS:
        drawn = sample_tokens(logits, uniforms, sampling=SamplingParams(**truncation))
        assert set(drawn.ids.tolist()) <= {17, 280}


def test_greedy_takes_the_maximum_and_reports_temperature_one() -> None:
    logits = random_logits(5, 300)
    sampling = SamplingParams(temperature=0, top_k=3)
    drawn = sample_tokens(logits, torch.zeros(5, dtype=torch.float64), sampling=sampling)
    assert drawn.ids.tolist() == logits.argmax(-1).tolist()
    assert torch.allclose(drawn.logprobs, logits.log_softmax(-1).amax(-1), atol=1e-5)
    assert drawn.kept_mass.tolist() == [1.0] * 5


@pytest.mark.parametrize("truncation", TRUNCATIONS, ids=str)
def test_banned_ids_are_not_drawn_and_count_as_truncated_mass(
    truncation: dict[str, float],
) -> None:
    logits = random_logits(50, 60)
    logits[:, 7] = 12.0
    uniforms = torch.rand(50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rows = torch.arange(50) % 2 == 0
    drawn = sample_tokens(
        logits,
        uniforms,
        sampling=SamplingParams(**truncation),
        banned_ids=torch.tensor([7]),
        banned_rows=rows,
    )
    assert 7 not in drawn.ids[rows].tolist()
    assert 7 in drawn.ids[~rows].tolist()
    full = logits.softmax(-1)
    assert (drawn.kept_mass[rows] <= 1 - full[rows, 7] + 1e-6).all()
    greedy = sample_tokens(
        logits,
        uniforms,
        sampling=SamplingParams(temperature=0),
        banned_ids=torch.tensor([7]),
        banned_rows=rows,
    )
    assert 7 not in greedy.ids[rows].tolist()
    assert set(greedy.ids[~rows].tolist()) == {7}


@pytest.mark.parametrize("truncation", TRUNCATIONS, ids=str)
@pytest.mark.parametrize("temperature", [0.05, 1.0, 1.3])
@pytest.mark.parametrize("lead", [40.0, 150.0, 5000.0])
def test_a_banned_token_may_lead_by_more_than_a_float_can_hold(
    lead: float, temperature: float, truncation: dict[str, float]
) -> None:
    """Against the same draw with the banned token at -inf, and the exact normaliser."""
    logits = random_logits(20, 300)
    logits[:, 7] = lead
    uniforms = torch.rand(20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    sampling = SamplingParams(temperature=temperature, **truncation)
    drawn = sample_tokens(
        logits,
        uniforms,
        sampling=sampling,
        banned_ids=torch.tensor([7]),
        banned_rows=torch.ones(20, dtype=torch.bool),
    )
    without = logits.clone()
    without[:, 7] = -torch.inf
    plain = sample_tokens(without, uniforms, sampling=sampling)
    assert drawn.ids.tolist() == plain.ids.tolist()
    full = torch.log_softmax(logits.double() / temperature, dim=-1)
    expected = full.gather(-1, drawn.ids[:, None])[:, 0]
    assert torch.allclose(drawn.logprobs.double(), expected, rtol=1e-6, atol=1e-5)
    allowed = torch.logsumexp(without.double() / temperature, dim=-1)
    share = allowed - torch.logsumexp(logits.double() / temperature, dim=-1)
    log_mass = (share + plain.kept_mass.double().log()).clamp(min=math.log(LEAST_KEPT_MASS))
    assert torch.allclose(drawn.kept_mass.double().log(), log_mass, atol=1e-5)
    assert (drawn.kept_mass > 0).all()


def test_rows_are_independent_of_how_they_are_cut_into_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits = random_logits(9, 400)
    uniforms = torch.rand(9, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    for truncation in TRUNCATIONS:
        sampling = SamplingParams(**truncation)
        whole = sample_tokens(logits, uniforms, sampling=sampling)
        with monkeypatch.context() as patch:
            patch.setattr(sampler, "CPU_CHUNK_ELEMENTS", 800)
            cut = sample_tokens(logits, uniforms, sampling=sampling)
        assert whole.ids.tolist() == cut.ids.tolist()
        assert torch.equal(whole.logprobs, cut.logprobs)


def test_flat_distributions_get_as_many_candidates_as_top_p_needs() -> None:
    logits = torch.zeros(3, 5000)
    uniforms = torch.tensor([0.1, 0.5, 0.999], dtype=torch.float64)
    drawn = sample_tokens(logits, uniforms, sampling=SamplingParams(top_p=0.9))
    assert torch.allclose(drawn.kept_mass, torch.tensor(0.9), atol=1e-3)


def test_low_precision_logits_are_sampled_in_float32() -> None:
    logits = random_logits(4, 100).bfloat16()
    uniforms = torch.full((4,), 0.5, dtype=torch.float64)
    drawn = sample_tokens(logits, uniforms, sampling=SamplingParams())
    expected = logits.float().log_softmax(-1).gather(-1, drawn.ids[:, None])[:, 0]
    assert drawn.logprobs.dtype == torch.float32
    assert torch.allclose(drawn.logprobs, expected, atol=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logprobs_are_nan_when_they_were_not_asked_for(temperature: float) -> None:
    sampling = SamplingParams(temperature=temperature, logprobs=False)
    drawn = sample_tokens(
        random_logits(3, 50), torch.zeros(3, dtype=torch.float64), sampling=sampling
    )
    assert drawn.logprobs.isnan().all()


@pytest.mark.parametrize("banned", [None, torch.tensor([4])])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_raise(
    temperature: float, bad: float, banned: torch.Tensor | None
) -> None:
    logits = random_logits(3, 50)
    logits[1, 4] = bad
    with pytest.raises(EngineError, match="not finite"):
        sample_tokens(
            logits,
            torch.zeros(3, dtype=torch.float64),
            sampling=SamplingParams(temperature=temperature),
            banned_ids=banned,
            banned_rows=torch.ones(3, dtype=torch.bool),
        )
