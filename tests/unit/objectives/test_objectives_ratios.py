"""Ratio levels: worked examples, values and gradients against plain loops, overflow, masks."""

from __future__ import annotations

import math

import pytest
import torch

from workings.objectives.ratios import (
    MAX_LOG_RATIO,
    RATIO_LEVELS,
    at_least_float32,
    level_log_ratio,
    log_ratio,
)

# Rows of unequal length, one token trained, a hole in the middle, nothing trained.
MASK = torch.tensor(
    [
        [True, True, True, True],
        [True, True, False, False],
        [False, True, False, False],
        [True, False, True, True],
        [False, False, False, False],
    ]
)
ADVANTAGES = torch.tensor([[1.0], [-2.0], [0.5], [-0.25], [3.0]], dtype=torch.float64)
LOG_RANGE = 0.15


def inputs(seed=0, spread=0.4):
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(MASK.shape, dtype=torch.float64, generator=generator) * 3
    moved = torch.randn(MASK.shape, dtype=torch.float64, generator=generator) * spread
    return (old + moved).requires_grad_(), old


def level(logprobs, old, mask, name, advantages=ADVANTAGES):
    return level_log_ratio(
        logprobs, old, mask, level=name, advantages=advantages, log_range=LOG_RANGE
    )


def plain_row(differences, name, advantages):
    """(log-ratio per token, Jacobian [t][u]) of one row of trained tokens, without tensors."""
    count = max(len(differences), 1)
    same = [[float(t == u) for u in range(count)] for t in range(count)]
    if name == "token":
        return list(differences), same
    if name == "sequence_product":
        return [sum(differences)] * count, [[1.0] * count] * count
    if name == "geo_clipped":
        bounded = [
            min(d, LOG_RANGE) if a >= 0 else max(d, -LOG_RANGE)
            for d, a in zip(differences, advantages, strict=True)
        ]
        free = [float(b == d) / count for b, d in zip(bounded, differences, strict=True)]
        return [sum(bounded) / count] * count, [free] * count
    mean = sum(differences) / count
    jacobian = same if name == "sequence_token" else [[1 / count] * count] * count
    return [mean] * count, jacobian


@pytest.mark.parametrize("name", RATIO_LEVELS)
@pytest.mark.parametrize("per_token", [False, True])
def test_values_and_gradients_against_plain_loops(name, per_token):
    logprobs, old = inputs()
    advantages = ADVANTAGES
    if per_token:
        signs = torch.where(torch.arange(4) % 2 == 0, 1.0, -0.5)
        advantages = ADVANTAGES * signs
    weights = torch.linspace(-1, 2, MASK.numel(), dtype=torch.float64).view(MASK.shape)
    logs = level(logprobs, old, MASK, name, advantages)
    (weights * logs.exp()).sum().backward()
    for row in range(len(MASK)):
        places = MASK[row].nonzero().flatten().tolist()
        line = advantages.expand(MASK.shape)[row]
        values, jacobian = plain_row(
            [(logprobs[row, t] - old[row, t]).item() for t in places],
            name,
            [line[t].item() for t in places],
        )
        wanted = [0.0] * MASK.shape[1]
        slopes = [0.0] * MASK.shape[1]
        for i, t in enumerate(places):
            wanted[t] = values[i]
            for j, u in enumerate(places):
                slopes[u] += weights[row, t].item() * math.exp(values[i]) * jacobian[i][j]
        assert logs[row].tolist() == pytest.approx(wanted, abs=1e-12)
        assert logprobs.grad[row].tolist() == pytest.approx(slopes, abs=1e-12)


# A constant part of sequence_token makes finite differences see a gradient of 0.
@pytest.mark.parametrize("name", sorted(set(RATIO_LEVELS) - {"sequence_token"}))
def test_gradients_by_finite_differences(name):
    logprobs, old = inputs(seed=3)
    assert torch.autograd.gradcheck(lambda values: level(values, old, MASK, name), logprobs)


def test_E1_geometric_mean_and_product():
    logprobs = torch.tensor([[0.2, -0.1, 0.05]], dtype=torch.float64)
    mask = torch.ones(1, 3, dtype=torch.bool)
    for name, wanted in (("sequence", 1.051271), ("sequence_product", 1.161834)):
        ratio = level(logprobs, torch.zeros_like(logprobs), mask, name, None).exp()
        assert ratio[0].tolist() == pytest.approx([wanted] * 3, abs=1e-6)


@pytest.mark.parametrize(("advantage", "wanted"), [(1.0, 1.010050), (-1.0, 1.058303)])
def test_E2_gmpo_clips_in_the_direction_of_the_advantage(advantage, wanted):
    logprobs = torch.tensor([[0.2, -0.1, 0.05]], dtype=torch.float64)
    ratio = level_log_ratio(
        logprobs,
        torch.zeros_like(logprobs),
        torch.ones(1, 3, dtype=torch.bool),
        level="geo_clipped",
        advantages=torch.tensor([[advantage]]),
        log_range=0.08,
    ).exp()
    assert ratio[0].tolist() == pytest.approx([wanted] * 3, abs=1e-6)


def test_sequence_token_has_the_gradient_of_sequence_where_the_advantage_is_constant():
    gradients = []
    for name in ("sequence", "sequence_token"):
        logprobs, old = inputs(seed=1)
        ratio = level(logprobs, old, MASK, name).exp()
        torch.where(MASK, -ADVANTAGES * ratio, 0.0).sum().backward()
        gradients.append(logprobs.grad)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-14)


def test_sequence_token_is_bounded_at_10_above():
    logprobs = torch.full((1, 2), 12.0, requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    logs = level(logprobs, torch.zeros(1, 2), mask, "sequence_token")
    assert logs.tolist() == [[10.0, 10.0]]
    assert level(logprobs, torch.zeros(1, 2), mask, "sequence").tolist() == [[12.0, 12.0]]


@pytest.mark.parametrize("name", RATIO_LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("difference", [100.0, -100.0])
def test_A8b_ratio_levels_are_bounded_before_the_exponential(name, dtype, difference):
    logprobs = torch.full((2, 3), difference, dtype=dtype, requires_grad=True)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    advantages = torch.tensor([[1.0], [-1.0]])
    logs = level(logprobs, torch.zeros(2, 3, dtype=dtype), mask, name, advantages)
    ratio = logs.exp()
    ratio.sum().backward()
    assert logs.dtype == torch.float32
    assert logs.abs().max() <= MAX_LOG_RATIO
    assert torch.isfinite(ratio).all()
    assert torch.isfinite(logprobs.grad).all()


def test_A8b_a_plain_log_ratio_has_a_finite_gradient_of_0_where_it_is_clamped():
    # E0b: a clamp after exp gives 0 * inf there.
    logprobs = torch.tensor([100.0, -100.0, 0.5], requires_grad=True)
    log_ratio(logprobs, torch.zeros(3)).exp().sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([0.0, 0.0, math.exp(0.5)])
    late = torch.tensor([100.0], requires_grad=True)
    late.exp().clamp(max=math.exp(20)).sum().backward()
    assert math.isnan(late.grad.item())


@pytest.mark.parametrize("name", RATIO_LEVELS)
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
def test_A7d_what_stands_off_the_mask_has_no_effect(name, garbage):
    results = []
    for filling in (0.0, garbage):
        logprobs, old = inputs()
        dirty = torch.where(MASK, logprobs.detach(), filling).requires_grad_()
        advantages = torch.where(MASK, ADVANTAGES, filling)
        logs = level(dirty, torch.where(MASK, old, -filling), MASK, name, advantages)
        logs.exp().sum().backward()
        results.append((logs.detach(), dirty.grad))
    for clean, soiled in zip(*results, strict=True):
        torch.testing.assert_close(soiled, clean, rtol=0, atol=0)
    assert results[1][0][~MASK].count_nonzero() == 0
    assert results[1][1][~MASK].count_nonzero() == 0


@pytest.mark.parametrize("name", RATIO_LEVELS)
def test_padding_changes_nothing(name):
    logprobs, old = inputs()
    wide = torch.nn.functional.pad
    logs = level(logprobs, old, MASK, name)
    padded = level(wide(logprobs, (2, 3)), wide(old, (2, 3)), wide(MASK, (2, 3)), name)
    torch.testing.assert_close(padded[:, 2:-3], logs, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", RATIO_LEVELS)
def test_no_gradient_into_the_old_policy(name):
    logprobs, old = inputs()
    old.requires_grad_()
    level(logprobs, old, MASK, name).sum().backward()
    assert old.grad is None
    assert log_ratio(old.detach(), old).requires_grad is False


def test_ratios_are_computed_in_float32_or_wider():
    for dtype, wanted in (
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float64, torch.float64),
    ):
        values = torch.zeros(1, 1, dtype=dtype)
        assert at_least_float32(values).dtype == wanted
        assert log_ratio(values, values).dtype == wanted
    # 200 steps of 0.01 in bfloat16 would stop near 4 long before their sum.
    steps = torch.full((1, 800), 0.01, dtype=torch.bfloat16)
    mask = torch.ones(1, 800, dtype=torch.bool)
    total = level(steps, torch.zeros_like(steps), mask, "sequence_product")
    assert total[0, 0].item() == pytest.approx(800 * steps[0, 0].item(), rel=1e-5)


def test_unknown_levels_and_missing_arguments_are_refused():
    logprobs, old = inputs()
    with pytest.raises(ValueError, match="unknown ratio level 'row'; expected token, sequence"):
        level_log_ratio(logprobs, old, MASK, level="row")
    for given in ({"advantages": ADVANTAGES}, {"log_range": 0.4}):
        with pytest.raises(ValueError, match="'geo_clipped' needs advantages and log_range"):
            level_log_ratio(logprobs, old, MASK, level="geo_clipped", **given)
