from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workings.rollout.draws import uniforms
from workings.rollout.engine import SamplingParams
from workings.rollout.paged.kernels.sampling import sample, step_uniforms
from workings.rollout.sampler import sample_tokens

SETTINGS = [
    SamplingParams(temperature=0.0),
    SamplingParams(),
    SamplingParams(temperature=0.6),
    SamplingParams(top_k=7),
    SamplingParams(top_k=1),
    SamplingParams(top_k=100_000),
    SamplingParams(temperature=1.5, top_p=0.9),
    SamplingParams(top_p=1e-4),
    SamplingParams(min_p=0.2),
    SamplingParams(temperature=0.8, top_k=20, top_p=0.8, min_p=0.03),
]


def arguments(sampling: SamplingParams) -> dict[str, Any]:
    """The parameters as `sample` takes them."""
    greedy = sampling.temperature == 0
    return {
        "temperature": torch.tensor([sampling.temperature], dtype=torch.float32),
        "top_k": torch.tensor([sampling.top_k], dtype=torch.int32),
        "top_p": torch.tensor([sampling.top_p], dtype=torch.float32),
        "min_p": torch.tensor([sampling.min_p], dtype=torch.float32),
        "mode": "greedy" if greedy else "truncated" if sampling.truncates else "plain",
    }


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8),
    st.integers(0, 2**31 - 8),
)
def test_uniforms_have_the_bits_of_the_other_engines(keys: list[int], first: int) -> None:
    words = np.array(keys, dtype=np.uint64)
    steps = np.arange(first, first + len(keys))
    drawn = step_uniforms(torch.from_numpy(words.view(np.int64)), torch.from_numpy(steps).int())
    assert drawn.dtype == torch.float64
    assert (drawn.numpy() == uniforms(words, steps)).all()


@pytest.mark.parametrize("banning", [False, True])
@pytest.mark.parametrize("sampling", SETTINGS, ids=repr)
def test_it_draws_what_the_transformers_engine_draws(
    sampling: SamplingParams, banning: bool
) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(40, 701, generator=generator) * 4
    numbers = torch.rand(40, dtype=torch.float64, generator=generator)
    banned = banned_rows = None
    if banning:
        banned = torch.tensor([3, 700])
        banned_rows = torch.rand(40, generator=generator) < 0.5
        logits[:, 3] = logits.amax(dim=1) + 1.0
    theirs = sample_tokens(
        logits, numbers, sampling=sampling, banned_ids=banned, banned_rows=banned_rows
    )
    ids, logprobs, mass = sample(
        logits,
        numbers,
        **arguments(sampling),
        banned=None if banned is None else banned.int(),
        banned_rows=banned_rows,
    )
    assert ids.dtype == torch.int32
    assert ids.tolist() == theirs.ids.tolist()
    torch.testing.assert_close(logprobs, theirs.logprobs, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(mass, theirs.kept_mass, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lead", [150.0, 5000.0])
@pytest.mark.parametrize("sampling", SETTINGS, ids=repr)
def test_a_banned_token_may_lead_by_any_amount(sampling: SamplingParams, lead: float) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(10, 701, generator=generator) * 4
    logits[:, 3] = lead
    numbers = torch.rand(10, dtype=torch.float64, generator=generator)
    banned, rows = torch.tensor([3, 700]), torch.arange(10) % 2 == 0
    theirs = sample_tokens(logits, numbers, sampling=sampling, banned_ids=banned, banned_rows=rows)
    inputs = arguments(sampling)
    ids, logprobs, mass = sample(logits, numbers, **inputs, banned=banned.int(), banned_rows=rows)
    assert ids.tolist() == theirs.ids.tolist()
    torch.testing.assert_close(logprobs, theirs.logprobs, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(mass.log(), theirs.kept_mass.log(), rtol=1e-5, atol=1e-5)
    assert (mass > 0).all()


def test_every_token_is_drawn_as_often_as_it_should() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 50) * 2
    num_draws = 4000
    grid = (torch.arange(num_draws, dtype=torch.float64) + 0.5) / num_draws
    ids, logprobs, _ = sample(
        logits.expand(num_draws, -1), grid, **arguments(SamplingParams(temperature=0.7))
    )
    expected = (logits[0].double() / 0.7).softmax(dim=0) * num_draws
    counts = torch.bincount(ids, minlength=50)
    # Evenly spaced numbers hit an interval as often as its length says, give or take one.
    assert (counts - expected).abs().max() < 1.0 + 1e-6
    assert (logprobs.double().exp() - (expected / num_draws)[ids.long()]).abs().max() < 1e-6


def test_tokens_that_tie_with_the_last_one_kept_are_kept() -> None:
    logits = torch.tensor([[2.0, 1.0, 3.0, 1.0, 0.0, 1.0]])
    grid = (torch.arange(200, dtype=torch.float64) + 0.5) / 200
    for sampling in (SamplingParams(top_k=3), SamplingParams(top_p=0.9)):
        ids, _, mass = sample(logits.expand(200, -1), grid, **arguments(sampling))
        assert set(ids.tolist()) == {0, 1, 2, 3, 5}
        assert mass[0] == pytest.approx(1 - float(logits.softmax(dim=1)[0, 4]), abs=1e-6)


@pytest.mark.parametrize("sampling", SETTINGS[1:2] + SETTINGS[:1] + SETTINGS[3:4], ids=repr)
def test_rows_without_a_finite_largest_logit_are_flagged(sampling: SamplingParams) -> None:
    logits = torch.zeros(5, 9)
    logits[0, 3], logits[1, 4], logits[2] = torch.nan, torch.inf, -torch.inf
    logits[3, 1:] = -torch.inf
    ids, logprobs, mass = sample(
        logits, torch.full((5,), 0.5, dtype=torch.float64), **arguments(sampling)
    )
    assert ids[:3].tolist() == [-1, -1, -1]
    assert logprobs[:3].isnan().all()
    assert mass[:3].isnan().all()
    assert ids[3] == 0
    assert logprobs[3] == 0.0
    assert ids[4] >= 0
