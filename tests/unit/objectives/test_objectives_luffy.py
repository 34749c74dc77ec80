"""The mixed loss: worked example, what off-policy tokens depend on, recorded probabilities."""

from __future__ import annotations

import math

import pytest
import torch

from workings.objectives.luffy import (
    confident_tokens,
    mixed_loss,
    off_policy_loss,
    on_policy_loss,
)
from workings.objectives.policy import weighted_loss
from workings.objectives.ratios import level_log_ratio, log_ratio
from workings.objectives.reductions import StepTotals, token_weights
from workings.objectives.shaping import SHAPINGS, shaped_ratio
from workings.objectives.surrogates import surrogate_loss

# A teacher's row, a row that is half and half, own rows, one token trained.
MASK = torch.tensor(
    [
        [True, True, True, False],
        [True, True, True, True],
        [True, True, False, False],
        [False, True, False, False],
    ]
)
OFF = torch.tensor([[True] * 4, [True, True, False, False], [False] * 4, [False] * 4])
ADVANTAGES = torch.tensor([[0.875], [-0.5], [-0.125], [0.4]], dtype=torch.float64)


def inputs(seed=0):
    generator = torch.Generator().manual_seed(seed)
    old = -2 * torch.rand(MASK.shape, dtype=torch.float64, generator=generator) - 0.1
    moved = torch.randn(MASK.shape, dtype=torch.float64, generator=generator) * 0.3
    return torch.minimum(old + moved, torch.tensor(-0.01)).requires_grad_(), old


def mixed(logprobs, old, *, surrogate="ratio", level="token", advantages=ADVANTAGES, **more):
    own = MASK & ~OFF
    on_loss = surrogate_loss(
        logprobs,
        old,
        level_log_ratio(logprobs, old, own, level=level),
        advantages,
        surrogate=surrogate,
        mask=own,
        **({"epsilon": 0.2} if surrogate == "ppo_clip" else {}),
    )
    return mixed_loss(logprobs, advantages, on_loss, mask=MASK, off_policy_mask=OFF, **more)


@pytest.mark.parametrize(
    ("reduction", "num_rows", "wanted"),
    [
        ("seq_mean_token_sum_norm", 1, -0.197917),  # sum / L, as published
        ("token_mean", 2, -0.158333),
        ("seq_mean_token_sum_norm", 2, -0.098958),
        ("seq_mean_token_sum", 1, -0.791667),
    ],
)
@pytest.mark.parametrize("cut", [[[0, 1]], [[0], [1]]])
def test_luffy_worked_example(reduction, num_rows, wanted, cut):
    logprobs = torch.tensor([[0.5, 0.1, 0.7], [0.3, 0.3, 0.3]], dtype=torch.float64).log()
    mask = torch.tensor([[True, True, False], [True, True, True]])
    off = torch.tensor([[True] * 3, [False] * 3])
    advantages = torch.tensor([[0.875], [-0.125]], dtype=torch.float64)
    on_loss = surrogate_loss(
        logprobs,
        logprobs,
        log_ratio(logprobs, logprobs),
        advantages,
        surrogate="ratio",
        mask=mask & ~off,
    )
    totals = StepTotals(num_rows=num_rows, num_tokens=5)
    total = 0.0
    for rows in cut:
        result = mixed_loss(
            logprobs[rows],
            advantages[rows],
            on_loss[rows],
            mask=mask[rows],
            off_policy_mask=off[rows],
        )
        weights = token_weights(
            mask[rows], totals, reduction=reduction, max_length=4, dtype=torch.float64
        )
        total += weighted_loss(result.token_loss, weights).item()
        for row, part in zip(rows, (result.token_loss.sum(1)), strict=True):
            assert part.item() == pytest.approx((-1.166667, 0.375)[row], abs=1e-6)
    assert total == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("surrogate", ["ratio", "ppo_clip"])
@pytest.mark.parametrize("gamma", [0.1, 0.37])
def test_values_and_gradients_against_plain_loops(surrogate, gamma):
    logprobs, old = inputs()
    result = mixed(logprobs, old, surrogate=surrogate, gamma=gamma)
    result.token_loss.sum().backward()
    for row, t in MASK.nonzero().tolist():
        a, p = ADVANTAGES[row].item(), math.exp(logprobs[row, t].item())
        if OFF[row, t]:
            value, slope = -a * p / (p + gamma), -a * gamma * p / (p + gamma) ** 2
        else:
            r = p / math.exp(old[row, t].item())
            value, slope = -a * r, -a * r
            if surrogate == "ppo_clip" and ((a > 0 and r > 1.2) or (a < 0 and r < 0.8)):
                value, slope = -a * min(max(r, 0.8), 1.2), 0.0
        assert result.token_loss[row, t].item() == pytest.approx(value, abs=1e-12)
        assert logprobs.grad[row, t].item() == pytest.approx(slope, abs=1e-12)
    assert torch.equal(result.mask, MASK)
    assert result.token_loss[~MASK].count_nonzero() == 0
    assert logprobs.grad[~MASK].count_nonzero() == 0


def test_gradients_by_finite_differences():
    logprobs, old = inputs(seed=1)
    assert torch.autograd.gradcheck(lambda values: mixed(values, old).token_loss, logprobs)


def test_off_policy_tokens_have_no_gradient_where_the_advantage_is_0():
    logprobs, old = inputs()
    mixed(logprobs, old, advantages=torch.zeros(4, 1).double()).token_loss.sum().backward()
    assert logprobs.grad.count_nonzero() == 0


@pytest.mark.parametrize("filling", [0.0, -50.0, math.nan, -math.inf])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_old_policy_has_no_influence_on_off_policy_tokens(filling, level):
    results = []
    for changed in (False, True):
        logprobs, old = inputs()
        old = torch.where(OFF, filling, old) if changed else old
        loss = mixed(logprobs, old, level=level).token_loss
        loss.sum().backward()
        results.append((loss.detach(), logprobs.grad))
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(second, first, rtol=0, atol=0)


def test_sequence_ratios_of_a_mixed_row_are_those_of_its_own_tokens():
    logprobs, old = inputs()
    loss = mixed(logprobs, old, level="sequence").token_loss
    differences = (logprobs - old)[1, 2:]
    wanted = 0.5 * math.exp(differences.mean().item())
    assert loss[1, 2:].tolist() == pytest.approx([wanted] * 2, abs=1e-12)


def test_the_clip_does_not_touch_off_policy_tokens():
    logprobs, old = inputs()
    free, clipped = mixed(logprobs, old), mixed(logprobs, old, surrogate="ppo_clip")
    assert torch.equal(free.token_loss[OFF], clipped.token_loss[OFF])


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
def test_A7d_what_stands_off_the_mask_has_no_effect(garbage):
    results = []
    for filling in (-1.0, garbage):
        logprobs, old = inputs()
        dirty = torch.where(MASK, logprobs.detach(), filling).requires_grad_()
        loss = mixed(
            dirty,
            torch.where(MASK, old, filling),
            advantages=torch.where(MASK, ADVANTAGES, filling),
            recorded_logprobs=torch.where(MASK, -0.5, filling),
            prob_clip_max=0.8,
        )
        loss.token_loss.sum().backward()
        results.append((loss.token_loss.detach(), dirty.grad, loss.mask))
    for first, second in zip(*results, strict=True):
        assert torch.equal(first, second)


def test_A7a_everything_masked_is_0_with_gradients_of_0():
    logprobs = torch.full((2, 3), math.nan, requires_grad=True)
    nothing, off = torch.zeros(2, 3, dtype=torch.bool), torch.ones(2, 3, dtype=torch.bool)
    result = mixed_loss(
        logprobs,
        torch.full((2, 1), math.nan),
        torch.full((2, 3), math.inf),
        mask=nothing,
        off_policy_mask=off,
    )
    result.token_loss.sum().backward()
    assert result.token_loss.count_nonzero() == 0
    assert logprobs.grad.tolist() == [[0.0] * 3] * 2


# ------------------------------------------------------------------- recorded probabilities


def recorded_loss(p, q, **more):
    logprobs = torch.tensor([[math.log(p)]], dtype=torch.float64, requires_grad=True)
    recorded = torch.tensor([[math.log(q)]], dtype=torch.float64, requires_grad=True)
    advantage = torch.tensor([[2.0]], dtype=torch.float64)
    loss = off_policy_loss(logprobs, advantage, recorded_logprobs=recorded, **more)
    loss.sum().backward()
    assert recorded.grad is None
    return loss.item(), logprobs.grad.item()


@pytest.mark.parametrize("p", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("q", [1e-7, 0.02, 0.5, 1.0])
def test_recorded_probabilities_make_a_ratio_without_shaping(p, q):
    wanted = -2 * p / (q + 1e-6)
    assert recorded_loss(p, q) == pytest.approx((wanted, wanted), rel=1e-12)
    assert recorded_loss(p, q, gamma=0.7) == pytest.approx((wanted, wanted), rel=1e-12)


@pytest.mark.parametrize("p", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("q", [0.02, 0.5, 1.0])
def test_exgrpo_shapes_the_ratio_to_the_recorded_policy(p, q):
    w = p / q
    got = recorded_loss(p, q, shape_recorded=True, probability_floor=0.0)
    assert got == pytest.approx((-2 * w / (w + 0.1), -2 * 0.1 * w / (w + 0.1) ** 2), rel=1e-12)


def test_a_token_that_nobody_recorded_is_shaped_as_without_a_record():
    logprobs, _ = inputs()
    recorded = torch.full(MASK.shape, math.nan, dtype=torch.float64)
    recorded[0, 1] = math.log(0.5)
    loss = off_policy_loss(logprobs, ADVANTAGES, recorded_logprobs=recorded)
    loss.sum().backward()
    plain = off_policy_loss(logprobs, ADVANTAGES)
    known = ~torch.isnan(recorded)
    assert torch.equal(loss[~known], plain[~known])
    wanted = -0.875 * logprobs[0, 1].exp().item() / (0.5 + 1e-6)
    assert loss[0, 1].item() == pytest.approx(wanted)
    assert torch.isfinite(logprobs.grad).all()


@pytest.mark.parametrize("shape_recorded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_A8b_ratios_to_recorded_probabilities_are_finite(shape_recorded, dtype):
    logprobs = torch.tensor([[0.0, -100.0]], dtype=dtype, requires_grad=True)
    loss = off_policy_loss(
        logprobs,
        torch.tensor([[1.0]]),
        recorded_logprobs=torch.tensor([[-100.0, 0.0]]),
        shape_recorded=shape_recorded,
        probability_floor=0.0,
    )
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(logprobs.grad).all()


# ----------------------------------------------------------------------------------- clamps


def test_clamps_bound_what_off_policy_tokens_weigh():
    logprobs = torch.tensor([[0.01, 0.1, 0.9]], dtype=torch.float64).log().requires_grad_()
    advantage = torch.tensor([[-1.0]], dtype=torch.float64)
    loss = off_policy_loss(logprobs, advantage, clip_min=0.2, clip_max=0.8)
    loss.sum().backward()
    assert loss[0].tolist() == pytest.approx([0.2, 0.5, 0.8])
    assert logprobs.grad[0].tolist() == pytest.approx([0.0, 0.25, 0.0])


def test_prob_clip_max_drops_sure_tokens_of_either_kind():
    logprobs, old = inputs()
    probabilities = logprobs.detach().exp()
    sure = 0.99 * min(probabilities[MASK & kind].max().item() for kind in (OFF, ~OFF))
    free, result = mixed(logprobs, old), mixed(logprobs, old, prob_clip_max=sure)
    dropped = MASK & (probabilities > sure)
    assert (dropped & OFF).any()
    assert (dropped & ~OFF).any()
    assert torch.equal(result.mask, MASK & ~dropped)
    assert torch.equal(confident_tokens(logprobs, prob_clip_max=sure) & MASK, dropped)
    wanted = torch.where(result.mask, free.token_loss, 0.0)
    assert torch.equal(result.token_loss, wanted)
    result.token_loss.sum().backward()
    assert logprobs.grad[dropped].count_nonzero() == 0


# -------------------------------------------------------------------------- on-policy tokens


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_on_policy_loss_is_the_reshaped_ratio(shaping):
    logprobs, old = inputs()
    logs = log_ratio(logprobs, old)
    loss = on_policy_loss(logprobs, old, logs, ADVANTAGES, shaping=shaping, gamma=0.3)
    value = shaped_ratio(logprobs, old, logs, shaping=shaping, gamma=0.3)
    torch.testing.assert_close(loss, -ADVANTAGES * value, rtol=0, atol=0)


@pytest.mark.parametrize("high", [None, 0.28])
def test_on_policy_loss_without_shaping_is_ratio_or_ppo_clip(high):
    logprobs, old = inputs()
    logs = log_ratio(logprobs, old)
    plain = on_policy_loss(logprobs, old, logs, ADVANTAGES)
    wanted = surrogate_loss(logprobs, old, logs, ADVANTAGES, surrogate="ratio")
    torch.testing.assert_close(plain, wanted, rtol=0, atol=0)
    bounds = {"epsilon": 0.2, "epsilon_high": high}
    clipped = on_policy_loss(logprobs, old, logs, ADVANTAGES, **bounds)
    wanted = surrogate_loss(logprobs, old, logs, ADVANTAGES, surrogate="ppo_clip", **bounds)
    torch.testing.assert_close(clipped, wanted, rtol=0, atol=0)


def test_the_clip_is_on_the_reshaped_ratio():
    logprobs = torch.tensor([[math.log(0.36), math.log(0.9)]], dtype=torch.float64)
    old = torch.tensor([[math.log(0.25), math.log(0.25)]], dtype=torch.float64)
    loss = on_policy_loss(
        logprobs,
        old,
        log_ratio(logprobs, old),
        torch.tensor([[1.0]], dtype=torch.float64),
        shaping="square_root",
        epsilon=0.2,
        epsilon_high=0.3,
    )
    assert loss[0].tolist() == pytest.approx([-1.2, -1.3])


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_on_policy_loss_is_clean_off_its_mask(shaping):
    logprobs = torch.tensor([[-0.5, math.nan, -math.inf]], requires_grad=True)
    old = torch.tensor([[-0.6, math.inf, math.nan]])
    mask = torch.tensor([[True, False, False]])
    loss = on_policy_loss(
        logprobs,
        old,
        logprobs - old,
        torch.tensor([[1.0, math.nan, math.inf]]),
        shaping=shaping,
        epsilon=0.2,
        mask=mask,
    )
    loss.sum().backward()
    assert loss[0, 1:].tolist() == [0.0, 0.0]
    assert logprobs.grad[0, 1:].tolist() == [0.0, 0.0]
    assert torch.isfinite(loss).all()


def test_a_record_is_needed_to_shape_it():
    with pytest.raises(ValueError, match="shape_recorded needs recorded_logprobs"):
        off_policy_loss(torch.zeros(1, 1), torch.ones(1, 1), shape_recorded=True)


def test_gamma_lifts_a_rare_teacher_token_faster_than_no_shaping():
    # luffy reference, section 8: from p = 0.01, by gradient steps on the logits of one token.
    reached = {}
    for shaping in ("ratio", "no_reshape"):
        logits = torch.zeros(2, dtype=torch.float64)
        logits[0] = math.log(0.01 / 0.99)
        logits.requires_grad_()
        path = []
        for _ in range(20):
            logprob = torch.log_softmax(logits, 0)[:1][None]
            loss = off_policy_loss(
                logprob, torch.ones(1, 1, dtype=torch.float64), shaping=shaping, gamma=0.1
            )
            (slope,) = torch.autograd.grad(loss.sum(), logits)
            logits = (logits - slope).detach().requires_grad_()
            path.append(torch.softmax(logits, 0)[0].item())
        reached[shaping] = path
    assert path[0] > 0.01
    assert all(a > b for a, b in zip(reached["ratio"], reached["no_reshape"], strict=True))
    assert reached["ratio"][-1] > 0.5 > reached["no_reshape"][-1]
