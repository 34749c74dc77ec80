"""Entropy: worked examples, the bonus against plain sums, and its controller."""

from __future__ import annotations

import math

import pytest
import torch

from workings.objectives.entropy import (
    applied_entropy_coefficient,
    entropy_loss,
    next_entropy_coefficient,
)
from workings.objectives.logprobs import compute_entropy


def test_e24_entropy_in_nats():
    logits = torch.log(torch.tensor([0.5, 0.25, 0.25, 0.0], dtype=torch.float64))
    assert compute_entropy(logits).item() == pytest.approx(1.039721, abs=1e-6)
    assert compute_entropy(torch.zeros(8)).item() == pytest.approx(2.079442, abs=1e-6)


def test_bonus_has_its_own_denominator_over_the_whole_step():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 5, 7, dtype=torch.float64, generator=generator, requires_grad=True)
    mask = torch.arange(5)[None] < torch.tensor([2, 5, 0, 3])[:, None]
    entropies = compute_entropy(logits)
    whole = entropy_loss(entropies, mask, coefficient=0.3, num_tokens=10)
    rows = entropies.detach()
    total = sum(rows[i, t].item() for i in range(4) for t in range(5) if mask[i, t])
    assert whole.item() == pytest.approx(-0.3 * total / 10, abs=1e-12)
    (gradient,) = torch.autograd.grad(whole, logits, retain_graph=True)
    for size in (1, 2):
        parts = [
            entropy_loss(
                entropies[i : i + size], mask[i : i + size], coefficient=0.3, num_tokens=10
            )
            for i in range(0, 4, size)
        ]
        assert sum(parts).item() == pytest.approx(whole.item(), abs=1e-12)
        (part,) = torch.autograd.grad(sum(parts), logits, retain_graph=True)
        torch.testing.assert_close(part, gradient, rtol=0, atol=1e-14)
    # Textbook: d H / d logit_j = -p_j (log p_j + H).
    logprobs = torch.log_softmax(logits.detach(), -1)
    slope = -logprobs.exp() * (logprobs + rows[..., None])
    wanted = torch.where(mask[..., None], -0.3 / 10 * slope, 0.0)
    torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("trash", [math.nan, math.inf])
def test_all_masked_is_exactly_zero_with_zero_gradients(trash):
    entropies = torch.full((2, 3), trash, requires_grad=True)
    loss = entropy_loss(
        entropies, torch.zeros(2, 3, dtype=torch.bool), coefficient=0.1, num_tokens=0
    )
    loss.backward()
    assert loss.item() == 0.0
    assert entropies.grad.tolist() == [[0.0] * 3] * 2


def test_controller_moves_by_its_step_within_its_bounds():
    options = {"target": 0.2, "low": 0.0, "high": 0.012}
    coefficient, seen = 0.0, []
    for entropy in (0.3, 0.2, 0.1, 0.1, 0.1, 0.21, 0.5, 0.5, 0.5):
        coefficient = next_entropy_coefficient(coefficient, entropy, **options)
        seen.append((coefficient, applied_entropy_coefficient(coefficient, entropy, target=0.2)))
    moves = [0.0, 0.005, 0.010, 0.012, 0.012, 0.007, 0.002, 0.0, 0.0]
    assert [value for value, _ in seen] == pytest.approx(moves, abs=1e-12)
    applied = [0.0, 0.005, 0.010, 0.012, 0.012, 0.0, 0.0, 0.0, 0.0]
    assert [value for _, value in seen] == pytest.approx(applied, abs=1e-12)


def test_controller_refuses_what_makes_no_sense():
    with pytest.raises(ValueError, match="entropy=nan"):
        next_entropy_coefficient(0.0, math.nan, target=0.2)
    with pytest.raises(ValueError, match="low <= high"):
        next_entropy_coefficient(0.0, 0.1, target=0.2, low=1.0, high=0.5)
