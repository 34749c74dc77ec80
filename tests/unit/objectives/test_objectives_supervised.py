"""The SFT losses against plain float64 loops: values, gradients, examples E27 to E29, edges."""

from __future__ import annotations

import math

import pytest
import torch

from workings.objectives.reductions import StepTotals
from workings.objectives.supervised import dft_loss, sft_loss

LOSSES = ("nll", "seq_sum", "dft")
CONSTANT = 7.0


def length_mask(*lengths):
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


def totals_of(mask):
    counts = mask.sum(1)
    return StepTotals(num_rows=int((counts > 0).sum()), num_tokens=int(counts.sum()))


def batch(seed=0):
    """Log-probabilities, and a mask with gaps and one row off altogether."""
    generator = torch.Generator().manual_seed(seed)
    logprobs = -3 * torch.rand(5, 7, generator=generator, dtype=torch.float64)
    mask = torch.rand(5, 7, generator=generator) < 0.7
    mask[3] = False
    return logprobs.requires_grad_(), mask


def looped(logprobs, mask, loss):
    """(value, gradient) by the definitions, one token at a time, in Python floats."""
    num_tokens = sum(sum(row) for row in mask.tolist())
    num_rows = sum(any(row) for row in mask.tolist())
    value = 0.0
    gradient = [[0.0] * mask.shape[1] for _ in range(mask.shape[0])]
    for i, row in enumerate(mask.tolist()):
        for t, trained in enumerate(row):
            if not trained:
                continue
            lp = float(logprobs[i, t])
            p = math.exp(lp)
            share, slope = {
                "nll": (-lp / num_tokens, -1 / num_tokens),
                "seq_sum": (-lp / CONSTANT / num_rows, -1 / CONSTANT / num_rows),
                "dft": (-p * lp / num_tokens, -p / num_tokens),
            }[loss]
            value += share
            gradient[i][t] = slope
    return value, torch.tensor(gradient, dtype=torch.float64)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_values_and_gradients_equal_the_loops(loss, seed):
    logprobs, mask = batch(seed)
    value = sft_loss(logprobs, mask, totals_of(mask), loss=loss, normalize_constant=CONSTANT)
    value.backward()
    wanted, gradient = looped(logprobs.detach(), mask, loss)
    assert value.item() == pytest.approx(wanted, abs=1e-12)
    assert torch.allclose(logprobs.grad, gradient, atol=1e-12, rtol=0)


@pytest.mark.parametrize("split", [[(0, 1)], [(0,), (1,)]])
def test_e27_the_nll_of_a_step_is_1_75_however_it_is_cut(split):
    logprobs = torch.tensor([[-4.0, 0.0, 0.0], [-1.0, -1.0, -1.0]])
    mask = length_mask(1, 3)
    shares = [
        sft_loss(logprobs[list(rows)], mask[list(rows)], totals_of(mask)).item() for rows in split
    ]
    assert sum(shares) == pytest.approx(1.75, abs=1e-6)


def test_e27_scaled_rank_sums_average_to_1_75():
    """With gradients averaged over two ranks, each rank's share counts twice: 2 and 1.5."""
    logprobs = torch.tensor([[-4.0, 0.0, 0.0], [-1.0, -1.0, -1.0]])
    mask = length_mask(1, 3)
    ranks = [2 * sft_loss(logprobs[[i]], mask[[i]], totals_of(mask)).item() for i in (0, 1)]
    assert ranks == pytest.approx([2.0, 1.5])
    assert sum(ranks) / 2 == pytest.approx(1.75)


def test_e28_seq_sum_over_two_accumulated_batches_of_two_rows():
    """Four rows in the step: every trained token has a gradient of 1/4, constant 1."""
    mask = length_mask(3, 5, 2, 4)
    logprobs = torch.full(mask.shape, -0.5, requires_grad=True)
    for rows in ([0, 1], [2, 3]):
        sft_loss(logprobs[rows], mask[rows], totals_of(mask), loss="seq_sum").backward()
    assert torch.equal(logprobs.grad, torch.where(mask, -0.25, 0.0))


def test_e29_dft_is_the_probability_times_the_nll():
    logprobs = torch.tensor([0.5, 0.1], dtype=torch.float64).log().requires_grad_()
    per_token = dft_loss(logprobs)
    assert per_token.tolist() == pytest.approx([0.346574, 0.230259], abs=1e-6)
    assert per_token.mean().item() == pytest.approx(0.288416, abs=1e-6)
    per_token.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([-0.5, -0.1], abs=1e-12)


def test_e29_dft_of_a_step():
    logprobs = torch.tensor([[0.5, 0.1]]).log()
    mask = torch.ones(1, 2, dtype=torch.bool)
    assert sft_loss(logprobs, mask, totals_of(mask), loss="dft").item() == pytest.approx(
        0.288416, abs=1e-6
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_everything_masked_is_exactly_zero_with_zero_gradients(loss):
    logprobs = torch.randn(2, 3, requires_grad=True)
    mask = torch.zeros(2, 3, dtype=torch.bool)
    value = sft_loss(logprobs, mask, StepTotals(num_rows=0, num_tokens=0), loss=loss)
    value.backward()
    assert value.item() == 0.0
    assert torch.equal(logprobs.grad, torch.zeros(2, 3))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_what_stands_off_the_mask_does_not_leak(loss, bad):
    logprobs = torch.tensor([[-1.0, bad]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    value = sft_loss(logprobs, mask, totals_of(mask), loss=loss)
    value.backward()
    alone = torch.tensor([[-1.0]], requires_grad=True)
    wanted = sft_loss(alone, mask[:, :1], totals_of(mask), loss=loss)
    wanted.backward()
    assert value.item() == wanted.item()
    assert logprobs.grad[0].tolist() == [alone.grad.item(), 0.0]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_very_unlikely_token_has_a_finite_loss(loss):
    logprobs = torch.tensor([[-500.0]], requires_grad=True)
    mask = torch.ones(1, 1, dtype=torch.bool)
    value = sft_loss(logprobs, mask, totals_of(mask), loss=loss)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(logprobs.grad).all()


def test_an_unknown_loss_is_named():
    with pytest.raises(ValueError, match="unknown SFT loss 'mse'; expected nll, seq_sum or dft"):
        sft_loss(
            torch.zeros(1, 1),
            torch.ones(1, 1, dtype=torch.bool),
            StepTotals(num_rows=1, num_tokens=1),
            loss="mse",
        )
