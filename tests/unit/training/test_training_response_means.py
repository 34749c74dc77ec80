"""One number for each response, whatever the batches, against a pass of its own."""

from __future__ import annotations

import math

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings.training import response_means as module
from workings.training.response_means import response_means

RESPONSES = [((5, 6), (7, 8, 9)), ((9,), (30,)), ((3, 4), ()), ((9, 4, 4), (40, 41, 42, 43, 44))]


@pytest.mark.parametrize("rows_at_once", [256, 2])
@pytest.mark.parametrize("max_tokens", [4, 64])
def test_means_are_those_of_each_response_alone(
    rows_at_once: int, max_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS_AT_ONCE", rows_at_once)
    model = tiny_model(tiny_tokenizer())
    wanted: dict[str, list[float]] = {"entropy": [], "surprise": []}
    for prompt, ids in RESPONSES:
        if not ids:
            continue
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1] / 0.7
        table = torch.log_softmax(logits, -1)
        wanted["entropy"].append(-(table.exp() * table).sum(-1).mean().item())
        wanted["surprise"].append(-table[torch.arange(len(ids)), list(ids)].mean().item())
    for measure in ("entropy", "surprise"):
        means = response_means(model, RESPONSES, measure, temperature=0.7, max_tokens=max_tokens)
        assert means.dtype == torch.float32
        found = means.tolist()
        assert math.isnan(found.pop(2))  # a response without a token has no mean
        assert found == pytest.approx(wanted[measure], rel=1e-5)  # float32, other batch shapes
    assert response_means(model, [], "entropy", temperature=1.0, max_tokens=4).shape == (0,)
