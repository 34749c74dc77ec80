"""What a forward pass hands on to the vocabulary scores."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings.objectives.logits_memory import (
    CHUNK_BYTES,
    RECOMPUTED_CHUNK_BYTES,
    chunk_limits,
    logits_bytes,
)
from workings.objectives.logprobs import TokenScores, token_logprobs
from workings.training import forward
from workings.training.activation_checkpointing import Checkpointing
from workings.training.forward import _gathered, response_scores
from workings.training.layers import prepare_layers
from workings.training.packing import TrainRow, pack


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_gradients_of_a_token_that_predicts_many_are_summed_before_they_are_rounded(
    dtype: torch.dtype,
) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 8, generator=generator).to(dtype).requires_grad_()
    places = torch.tensor([1] * 64 + [2])
    gathered = _gathered(hidden, places)
    assert gathered.dtype == dtype
    assert torch.equal(gathered, hidden[places])
    direction = torch.randn(65, 8, generator=generator).to(dtype)
    (grad,) = torch.autograd.grad(gathered, hidden, direction)
    exact = torch.stack([torch.zeros(8), direction[:64].double().sum(0), direction[64].double()])
    rounding = max(torch.finfo(dtype).eps, 1e-5)
    torch.testing.assert_close(grad, exact.to(dtype), rtol=rounding, atol=1e-6)


@pytest.mark.parametrize(
    ("checkpointing", "keeps"),
    [("none", True), ("selective", True), ("full", False), ("offloaded", False)],
)
def test_no_logits_are_kept_where_layers_are_computed_again(
    checkpointing: Checkpointing, keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(tiny_tokenizer())
    told: list[bool] = []

    def noted(*arguments: Any, keeps_logits: bool, **settings: Any) -> TokenScores:
        told.append(keeps_logits)
        return token_logprobs(*arguments, keeps_logits=keeps_logits, **settings)

    monkeypatch.setattr(forward, "token_logprobs", noted)
    row = TrainRow(key=0, group=0, prompt_ids=[5], response_ids=[7, 3], mask=[True] * 2)
    (batch,) = pack([row], layout="packed", max_tokens=100)
    for mode in (checkpointing, "none"):  # the last call of prepare_layers counts
        prepare_layers(model, checkpointing=mode)
        response_scores(model, batch)
    assert told == [keeps, True]


def test_limits_of_the_logits_of_a_card() -> None:
    large, small = 80 << 30, 8 << 30
    assert chunk_limits(large, keeps_logits=True) == (CHUNK_BYTES, large // 16)
    assert chunk_limits(large, keeps_logits=False) == (RECOMPUTED_CHUNK_BYTES, 0)
    assert chunk_limits(small, keeps_logits=False) == (small // 32, 0)
    once = logits_bytes(4096, 151_936, number_bytes=2, gpu_bytes=large, keeps_logits=False)
    assert once == 4096 * 151_936 * 2
    many = logits_bytes(65_536, 151_936, number_bytes=2, gpu_bytes=large, keeps_logits=False)
    assert many == RECOMPUTED_CHUNK_BYTES
