"""The two numbers beside vLLM's, against our own sampler and on stand-ins for vLLM's samplers."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from workings.rollout import vllm_sampler
from workings.rollout.engine import SamplingParams
from workings.rollout.sampler import sample_tokens
from workings.rollout.vllm_sampler import ExactSampler, exact_columns

ROWS, VOCABULARY = 40, 300


class LogprobsTensors(NamedTuple):
    """As `vllm.v1.outputs.LogprobsTensors`."""

    logprob_token_ids: torch.Tensor
    logprobs: torch.Tensor
    selected_token_ranks: torch.Tensor
    cu_num_generated_tokens: list[int] | None = None


@dataclass
class SamplerOutput:
    """As `vllm.v1.outputs.SamplerOutput`."""

    sampled_token_ids: torch.Tensor
    logprobs_tensors: LogprobsTensors | None


def logits_of(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, VOCABULARY, generator=generator) * 3


def kept(logits: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """Bool [rows, vocabulary]: what top-k, top-p and min-p leave, by sorting."""
    scaled = (logits / (sampling.temperature or 1.0)).double()
    probabilities, order = scaled.softmax(-1).sort(-1, descending=True)
    mask = torch.ones_like(probabilities, dtype=torch.bool)
    if sampling.top_k > 0:
        mask[:, sampling.top_k :] = False
    left = probabilities * mask
    before = left.cumsum(-1) - left
    mask &= before < left.sum(-1, keepdim=True) * sampling.top_p
    mask &= probabilities >= sampling.min_p * probabilities[:, :1]
    return torch.zeros_like(mask).scatter(-1, order, mask)


def processed_logprobs(logits: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    scaled = logits.double() / (sampling.temperature or 1.0)
    return scaled.masked_fill(~kept(logits, sampling), -torch.inf).log_softmax(-1).float()


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(temperature=0.6),
        SamplingParams(temperature=1.4, top_k=7),
        SamplingParams(temperature=0.8, top_p=0.7),
        SamplingParams(min_p=0.2),
        SamplingParams(temperature=1.2, top_k=50, top_p=0.9),
    ],
)
def test_the_columns_are_those_of_our_own_sampler(sampling: SamplingParams) -> None:
    logits = logits_of(1)
    uniforms = torch.rand(ROWS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    drawn = sample_tokens(logits, uniforms, sampling=sampling)
    ours = processed_logprobs(logits, sampling).gather(-1, drawn.ids[:, None])[:, 0]
    temperatures = torch.full((ROWS,), sampling.temperature)
    columns = exact_columns(logits, temperatures, drawn.ids, ours)
    torch.testing.assert_close(columns[:, 0], drawn.logprobs, atol=2e-6, rtol=2e-6)
    torch.testing.assert_close(columns[:, 1].exp(), drawn.kept_mass, atol=2e-6, rtol=2e-6)


def test_greedy_rows_report_temperature_one_and_a_whole_mass() -> None:
    logits = logits_of(3)
    ids = logits.argmax(-1)
    processed = torch.zeros(ROWS)  # as with all but one token banned
    expected = logits.log_softmax(-1).amax(-1)
    for temperatures in (None, torch.zeros(ROWS)):
        columns = exact_columns(logits, temperatures, ids, processed)
        torch.testing.assert_close(columns[:, 0], expected)
        assert columns[:, 1].tolist() == [0.0] * ROWS


def test_rows_of_different_temperature_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_sampler, "CHUNK_ELEMENTS", 7 * VOCABULARY)
    logits = logits_of(4)
    temperatures = torch.linspace(0.0, 2.0, ROWS)
    ids = torch.arange(ROWS)
    scale = torch.where(temperatures < 1e-5, 1.0, temperatures)[:, None]
    expected = (logits / scale).log_softmax(-1).gather(-1, ids[:, None])[:, 0]
    columns = exact_columns(logits, temperatures, ids, expected)
    torch.testing.assert_close(columns[:, 0], expected)


def test_bfloat16_logits_are_summed_in_float32() -> None:
    logits = logits_of(5).bfloat16()
    ids = torch.zeros(ROWS, dtype=torch.int64)
    columns = exact_columns(logits, None, ids, torch.zeros(ROWS))
    expected = logits.float().log_softmax(-1)[:, 0]
    torch.testing.assert_close(columns[:, 0], expected)


def test_a_ban_on_eos_shows_in_the_kept_mass() -> None:
    logits = logits_of(6)
    banned = logits.clone()
    banned[:, 9] = -torch.inf
    ids = torch.full((ROWS,), 3)
    processed = banned.log_softmax(-1)[:, 3]
    columns = exact_columns(logits, torch.ones(ROWS), ids, processed)
    expected = 1 - logits.softmax(-1)[:, 9]
    torch.testing.assert_close(columns[:, 1].exp(), expected, atol=1e-5, rtol=1e-5)


# ---------------------------------------------------------------- around vLLM's two samplers


class FirstSampler:
    """Called as the first model runner's: it works on float32 logits in place."""

    logprobs_mode = "processed_logprobs"

    def __call__(self, logits: torch.Tensor, sampling_metadata: Any) -> SamplerOutput:
        worked = logits.to(torch.float32)
        worked.div_(sampling_metadata.temperature[:, None])
        ids = worked.argmin(-1)
        if sampling_metadata.max_num_logprobs is None:
            return SamplerOutput(ids.int()[:, None], None)
        return SamplerOutput(ids.int()[:, None], _tensors(worked.log_softmax(-1), ids))


class SecondSampler:
    """Called as the second model runner's: with the batch, its states being its own."""

    def __init__(self, temperatures: torch.Tensor, num_logprobs: int) -> None:
        self.sampling_states = SimpleNamespace(
            temperature=SimpleNamespace(gpu=temperatures),
            max_num_logprobs=lambda _: num_logprobs,
        )

    def __call__(self, logits: torch.Tensor, input_batch: Any) -> SamplerOutput:
        temperatures = self.sampling_states.temperature.gpu[input_batch.expanded_idx_mapping]
        worked = logits.float() / temperatures[:, None]
        ids = worked.argmin(-1)
        return SamplerOutput(ids[:, None], _tensors(worked.log_softmax(-1), ids))


def _tensors(logprobs: torch.Tensor, ids: torch.Tensor) -> LogprobsTensors:
    best = logprobs.max(-1)
    return LogprobsTensors(
        torch.stack([ids, best.indices], 1),
        torch.stack([logprobs.gather(-1, ids[:, None])[:, 0], best.values], 1),
        torch.zeros(len(ids)),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("by_name", [True, False])
def test_around_the_first_sampler(dtype: torch.dtype, by_name: bool) -> None:
    logits = logits_of(7).to(dtype)
    before = logits.float().clone()
    details = SimpleNamespace(temperature=torch.full((ROWS,), 0.5), max_num_logprobs=1)
    sampler = ExactSampler(FirstSampler())
    given = {"sampling_metadata": details}
    output = sampler(logits, **given) if by_name else sampler(logits, details)
    ids = before.argmin(-1)
    expected = (before / 0.5).log_softmax(-1).gather(-1, ids[:, None])[:, 0]
    torch.testing.assert_close(output.logprobs_tensors.logprobs[:, 0], expected)
    torch.testing.assert_close(output.logprobs_tensors.logprobs[:, 1], torch.zeros(ROWS))
    assert output.logprobs_tensors.logprob_token_ids[:, 0].tolist() == ids.tolist()


def test_the_first_sampler_is_left_alone_where_no_row_wants_logprobs() -> None:
    details = SimpleNamespace(temperature=torch.ones(ROWS), max_num_logprobs=None)
    output = ExactSampler(FirstSampler())(logits=logits_of(8), sampling_metadata=details)
    assert output.logprobs_tensors is None


def test_around_the_second_sampler() -> None:
    logits = logits_of(9)
    places = torch.arange(ROWS).flip(0)
    batch = SimpleNamespace(
        expanded_idx_mapping=places, idx_mapping_np=np.arange(ROWS)[::-1].copy()
    )
    temperatures = torch.linspace(0.5, 1.5, ROWS)
    output = ExactSampler(SecondSampler(temperatures, 1))(logits, batch)
    ids = output.sampled_token_ids[:, 0]
    expected = (logits / temperatures[places][:, None]).log_softmax(-1).gather(-1, ids[:, None])
    torch.testing.assert_close(output.logprobs_tensors.logprobs[:, :1], expected)


def test_attributes_are_those_of_the_sampler() -> None:
    assert ExactSampler(FirstSampler()).logprobs_mode == "processed_logprobs"
