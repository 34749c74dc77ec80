"""Surrogates: worked examples, values and gradients against plain numbers, overflow, masks."""

from __future__ import annotations

import math

import pytest
import torch

from workings.objectives.ratios import RATIO_LEVELS, level_log_ratio
from workings.objectives.surrogates import (
    COVARIANCE_SURROGATES,
    SURROGATE_KEYWORDS,
    SURROGATES,
    clipped_tokens,
    dppo_tv,
    ppo_clip,
    sapo,
    surrogate_loss,
    vespo,
)

# More than one setting of a surrogate, by a name for the test.
SETTINGS = {
    "logp": ("logp", {}),
    "ratio": ("ratio", {}),
    "ppo_clip": ("ppo_clip", {"epsilon": 0.2}),
    "clip_higher": ("ppo_clip", {"epsilon": 0.2, "epsilon_high": 0.28}),
    "dual_clip": ("ppo_clip", {"epsilon": 0.2, "epsilon_high": 0.28, "dual_clip": 1.5}),
    "cispo": ("cispo", {}),
    "cispo_two_sided": ("cispo", {"cap_low": 0.8, "cap_high": 1.2}),
    "sapo": ("sapo", {}),
    "sapo_other": ("sapo", {"tau_positive": 0.7, "tau_negative": 2.1}),
    "vespo": ("vespo", {}),
    "vespo_other": ("vespo", {"vespo_positive": (1.1, 1.7), "vespo_negative": (2.3, 0.9)}),
    "gmpo": ("gmpo", {}),
    "dppo_tv": ("dppo_tv", {}),
    "dppo_tv_narrow": (
        "dppo_tv",
        {"tv_low": 0.02, "tv_high": 0.03, "ratio_cap": 1.2, "log_ratio_penalty": 1e-3},
    ),
    "clip_cov": ("clip_cov", {"epsilon": 0.2, "epsilon_high": 0.28, "dual_clip": 3.0}),
    "kl_cov": ("kl_cov", {"kl_cov_coef": 0.3}),
    "dro": ("dro", {"dro_beta": 0.7}),
}
# Constants for one call of every surrogate.
NEEDED = {"ppo_clip": {"epsilon": 0.2}, "clip_cov": {"epsilon": 0.2}, "dro": {"dro_beta": 0.5}}

MASK = torch.tensor(
    [
        [True, True, True, True, True],
        [True, True, True, False, False],
        [False, True, False, True, True],
        [False, False, False, False, False],
    ]
)
ADVANTAGES = torch.tensor([[1.3], [-0.8], [-1.7], [2.0]], dtype=torch.float64)
CHOSEN = torch.tensor([[True, False, True, False, True]]) & MASK
LOG_RANGE = 0.25


def inputs(seed=0, spread=0.45):
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(MASK.shape, dtype=torch.float64, generator=generator) * 2 - 0.2
    moved = torch.randn(MASK.shape, dtype=torch.float64, generator=generator) * spread
    return torch.minimum(old + moved, torch.tensor(-0.01)).requires_grad_(), old


def log_ratios_of(logprobs, old, mask, level, advantages):
    return level_log_ratio(
        logprobs, old, mask, level=level, advantages=advantages, log_range=LOG_RANGE
    )


def chosen_for(surrogate, chosen):
    return chosen if surrogate in COVARIANCE_SURROGATES else None


def plain(surrogate, lp, old, log_r, a, chosen, c):
    """(loss, d loss / d log r, d loss / d lp) of one token, by the formulas of the reference.

    What the formula stops the gradient of is a constant here.
    """
    r = math.exp(log_r)
    if surrogate == "logp":
        return -a * lp, 0.0, -a
    if surrogate in ("ratio", "gmpo"):
        return -a * r, -a * r, 0.0
    if surrogate in ("ppo_clip", "clip_cov"):
        if surrogate == "clip_cov" and chosen:
            return 0.0, 0.0, 0.0
        low, high = 1 - c["epsilon"], 1 + c.get("epsilon_high", c["epsilon"])
        dual = c.get("dual_clip", math.inf)
        if (a > 0 and r > high) or (a < 0 and r < low):
            return -a * min(max(r, low), high), 0.0, 0.0
        if a < 0 and r > dual:
            return -a * dual, 0.0, 0.0
        return -a * r, -a * r, 0.0
    if surrogate == "cispo":
        low, high = c.get("cap_low", -math.inf), c.get("cap_high", 5.0)
        weight = min(max(r, low), high)
        return -weight * a * lp, 0.0, -weight * a
    if surrogate == "sapo":
        tau = c.get("tau_positive", 1.0) if a > 0 else c.get("tau_negative", 1.05)
        gate = 1 / (1 + math.exp(-tau * (r - 1)))
        return -4 / tau * gate * a, -4 * gate * (1 - gate) * r * a, 0.0
    if surrogate == "vespo":
        positive, negative = c.get("vespo_positive", (2, 3)), c.get("vespo_negative", (3, 2))
        k, lam = positive if a >= 0 else negative
        w = max(r, 1e-8)
        phi = w**k * math.exp(lam - lam * w)
        return -phi * a * lp, 0.0, -phi * a
    if surrogate == "dppo_tv":
        moved = math.exp(lp) - math.exp(old)
        kept = moved <= c.get("tv_high", 0.2) if a > 0 else moved >= -c.get("tv_low", 0.2)
        weight = min(r, c.get("ratio_cap", 20.0)) * kept
        penalty = c.get("log_ratio_penalty", 0.0)
        return -weight * a * lp + penalty * log_r**2, 2 * penalty * log_r, -weight * a
    if surrogate == "kl_cov":
        penalty = c["kl_cov_coef"] * chosen
        slope = -a * r + math.copysign(penalty, log_r)
        return -a * r + penalty * abs(log_r), slope, 0.0
    assert surrogate == "dro"
    beta = c["dro_beta"]
    return -(a * lp - beta / 2 * log_r**2), beta * log_r, -a


def plain_jacobian(differences, level, advantage):
    """d log r_t / d lp_u of one row of trained tokens."""
    count = max(len(differences), 1)
    if level in ("token", "sequence_token"):
        return [[float(t == u) for u in range(count)] for t in range(count)]
    if level == "sequence_product":
        return [[1.0] * count] * count
    if level == "sequence":
        return [[1 / count] * count] * count
    inside = [d < LOG_RANGE if advantage >= 0 else d > -LOG_RANGE for d in differences]
    return [[float(free) / count for free in inside]] * count


@pytest.mark.parametrize("level", RATIO_LEVELS)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", [0, 1])
def test_values_and_gradients_against_plain_loops(level, setting, seed):
    surrogate, constants = SETTINGS[setting]
    logprobs, old = inputs(seed)
    logs = log_ratios_of(logprobs, old, MASK, level, ADVANTAGES)
    loss = surrogate_loss(
        logprobs,
        old,
        logs,
        ADVANTAGES,
        surrogate=surrogate,
        mask=MASK,
        chosen=chosen_for(surrogate, CHOSEN),
        **constants,
    )
    weights = torch.linspace(0.5, 2, MASK.numel(), dtype=torch.float64).view(MASK.shape)
    (weights * loss).sum().backward()
    for row in range(len(MASK)):
        places = MASK[row].nonzero().flatten().tolist()
        advantage = ADVANTAGES[row].item()
        jacobian = plain_jacobian(
            [(logprobs[row, t] - old[row, t]).item() for t in places], level, advantage
        )
        values, slopes = [0.0] * MASK.shape[1], [0.0] * MASK.shape[1]
        for i, t in enumerate(places):
            value, in_ratio, in_logprob = plain(
                surrogate,
                logprobs[row, t].item(),
                old[row, t].item(),
                logs[row, t].item(),
                advantage,
                bool(CHOSEN[row, t]),
                constants,
            )
            values[t] = value
            slopes[t] += weights[row, t].item() * in_logprob
            for j, u in enumerate(places):
                slopes[u] += weights[row, t].item() * in_ratio * jacobian[i][j]
        assert loss[row].tolist() == pytest.approx(values, rel=1e-10, abs=1e-12)
        assert logprobs.grad[row].tolist() == pytest.approx(slopes, rel=1e-10, abs=1e-12)


# Where a part of the formula is constant, the ratio is held fixed and lp alone moves.
@pytest.mark.parametrize("setting", SETTINGS)
def test_gradients_by_finite_differences(setting):
    surrogate, constants = SETTINGS[setting]
    logprobs, old = inputs(seed=5, spread=0.3)
    fixed = log_ratios_of(logprobs.detach(), old, MASK, "token", None)

    def function(values):
        held = surrogate in ("cispo", "vespo", "dppo_tv")
        logs = fixed if held else log_ratios_of(values, old, MASK, "token", None)
        return surrogate_loss(
            values,
            old,
            logs,
            ADVANTAGES,
            surrogate=surrogate,
            mask=MASK,
            chosen=chosen_for(surrogate, CHOSEN),
            **constants,
        )

    ratio = fixed.exp()[MASK]
    for kink in (0.8, 1.2, 1.28, 1.5, 3.0):
        assert (ratio - kink).abs().min() > 1e-4
    assert torch.autograd.gradcheck(function, logprobs)


# E3: ratio, advantage, epsilon_high, dual_clip, loss, d loss / d ratio
@pytest.mark.parametrize(
    ("ratio", "advantage", "high", "dual", "value", "slope"),
    [
        (0.5, 1, 0.2, None, -0.5, -1),
        (0.5, 1, 0.28, None, -0.5, -1),
        (0.5, 1, 0.2, 3.0, -0.5, -1),
        (0.5, -1, 0.2, None, 0.8, 0),
        (0.5, -1, 0.28, None, 0.8, 0),
        (0.5, -1, 0.2, 3.0, 0.8, 0),
        (1.25, 1, 0.2, None, -1.2, 0),
        (1.25, 1, 0.28, None, -1.25, -1),
        (1.25, 1, 0.2, 3.0, -1.2, 0),
        (1.25, -1, 0.2, None, 1.25, 1),
        (1.25, -1, 0.28, None, 1.25, 1),
        (1.25, -1, 0.2, 3.0, 1.25, 1),
        (1.5, 1, 0.2, None, -1.2, 0),
        (1.5, 1, 0.28, None, -1.28, 0),
        (1.5, 1, 0.2, 3.0, -1.2, 0),
        (4.0, 1, 0.2, None, -1.2, 0),
        (4.0, 1, 0.28, None, -1.28, 0),
        (4.0, 1, 0.2, 3.0, -1.2, 0),
        (4.0, -1, 0.2, None, 4.0, 1),
        (4.0, -1, 0.28, None, 4.0, 1),
        (4.0, -1, 0.2, 3.0, 3.0, 0),
    ],
)
def test_E3_clip_clip_higher_and_dual_clip(ratio, advantage, high, dual, value, slope):
    logs = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([[float(advantage)]], dtype=torch.float64)
    bounds = {"epsilon": 0.2, "epsilon_high": high, "dual_clip": dual}
    loss = ppo_clip(logs, weight, **bounds)
    loss.sum().backward()
    assert loss.item() == pytest.approx(value, abs=1e-12)
    assert logs.grad.item() / ratio == pytest.approx(slope, abs=1e-12)
    clipped = clipped_tokens(logs, weight, **bounds)
    assert clipped.low.item() == (ratio < 0.8 and advantage < 0)
    assert clipped.high.item() == (ratio > 1 + high and advantage > 0)
    assert clipped.dual.item() == (dual is not None and ratio > dual and advantage < 0)
    assert (slope == 0) == (clipped.low | clipped.high | clipped.dual).item()


def test_dual_clip_is_the_delta_cap_and_the_dual_clip_of_its_paper():
    ratio = torch.linspace(0.1, 6, 60, dtype=torch.float64)[None]
    for sign in (1.0, -1.0):
        advantage = torch.tensor([[sign]], dtype=torch.float64)
        clipped = ratio.clamp(0.8, 1.28) * advantage
        delta = -torch.minimum(ratio.clamp(max=3.0) * advantage, clipped)
        dual = -torch.minimum(ratio * advantage, clipped)
        if sign < 0:
            dual = -torch.maximum(torch.minimum(ratio * advantage, clipped), 3.0 * advantage)
        got = ppo_clip(ratio.log(), advantage, epsilon=0.2, epsilon_high=0.28, dual_clip=3.0)
        torch.testing.assert_close(got, delta, rtol=0, atol=1e-12)
        torch.testing.assert_close(got, dual, rtol=0, atol=1e-12)


def one_token(function, *, lp, advantage, ratio, **constants):
    """(loss, gradient in lp) of a surrogate on one token with that ratio."""
    logprobs = torch.tensor([[lp]], dtype=torch.float64, requires_grad=True)
    old = logprobs.detach() - math.log(ratio)
    logs = logprobs - old
    loss = surrogate_loss(
        logprobs,
        old,
        logs,
        torch.tensor([[float(advantage)]], dtype=torch.float64),
        surrogate=function,
        **constants,
    )
    loss.sum().backward()
    return loss.item(), logprobs.grad.item()


def test_E4_cispo_keeps_the_gradient_of_a_capped_token():
    got = one_token("cispo", lp=math.log(0.5), advantage=1, ratio=6)
    assert got == pytest.approx((3.465736, -5.0), abs=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value"),
    [
        (1, 1, -2.0),
        (1, -1, 1.904762),
        (1.5, 1, -2.489837),
        (1.5, -1, 2.393585),
        (0.5, 1, -1.510163),
        (0.5, -1, 1.415938),
        (2, 1, -2.924234),
        (2, -1, 2.822000),
    ],
)
def test_E5_sapo(ratio, advantage, value):
    loss, slope = one_token("sapo", lp=-1.0, advantage=advantage, ratio=ratio)
    assert loss == pytest.approx(value, abs=1e-6)
    if ratio == 1:
        assert slope == pytest.approx(-advantage, abs=1e-12)


@pytest.mark.parametrize(
    ("weight", "positive", "negative"),
    [
        (1, 1, 1),
        (2, 0.199148, 1.082683),
        (0.5, 1.120422, 0.339785),
        (4, 0.001975, 0.158640),
        (2 / 3, 1.208125, None),
        (3 / 2, None, 1.241593),
    ],
)
def test_E6_vespo_phi(weight, positive, negative):
    for advantage, phi in ((1, positive), (-1, negative)):
        if phi is None:
            continue
        loss, slope = one_token("vespo", lp=-0.7, advantage=advantage, ratio=weight)
        assert slope == pytest.approx(-phi * advantage, abs=1e-6)
        assert loss == pytest.approx(0.7 * phi * advantage, abs=1e-6)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_E6_vespo_peaks_at_k_over_lambda(advantage):
    peak = 2 / 3 if advantage > 0 else 3 / 2
    weights = torch.linspace(0.2, 3, 2801, dtype=torch.float64)[None]
    loss = vespo(torch.full_like(weights, -1.0), weights.log(), torch.tensor([[advantage]]))
    best = weights[0, (loss * advantage).argmax()].item()
    assert best == pytest.approx(peak, abs=1e-3)


@pytest.mark.parametrize(("new", "old", "kept"), [(0.6, 0.3, False), (0.3, 0.15, True)])
def test_E7_dppo_looks_at_probabilities_rather_than_ratios(new, old, kept):
    loss, slope = one_token("dppo_tv", lp=math.log(new), advantage=1, ratio=new / old)
    assert loss == pytest.approx(-2 * math.log(new) * kept, abs=1e-12)
    assert slope == pytest.approx(-2.0 * kept, abs=1e-12)


def test_dppo_drops_a_token_only_where_the_advantage_pushes_it_further():
    old = torch.tensor([[0.5, 0.5, 0.5, 0.5]], dtype=torch.float64).log()
    new = torch.tensor([[0.75, 0.25, 0.75, 0.25]], dtype=torch.float64).log()
    advantages = torch.tensor([[1.0, 1.0, -1.0, -1.0]], dtype=torch.float64)
    loss = dppo_tv(new, old, new - old, advantages)
    assert (loss != 0).tolist() == [[False, True, True, False]]


@pytest.mark.parametrize("surrogate", ["logp", "ratio", "ppo_clip", "cispo", "sapo", "vespo"])
@pytest.mark.parametrize("level", ["token", "sequence_token"])
def test_on_policy_identity_of_gradients(surrogate, level):
    # Tests required, 3: at ratio 1 the gradient is that of REINFORCE.
    logprobs = inputs()[0]
    old = logprobs.detach().clone()
    loss = surrogate_loss(
        logprobs,
        old,
        log_ratios_of(logprobs, old, MASK, level, None),
        ADVANTAGES,
        surrogate=surrogate,
        mask=MASK,
        **NEEDED.get(surrogate, {}),
    )
    loss.sum().backward()
    wanted = torch.where(MASK, -ADVANTAGES, 0.0)
    torch.testing.assert_close(logprobs.grad, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("level", RATIO_LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("difference", [100.0, -100.0])
def test_A8b_surrogates_stay_finite_at_huge_log_ratios(surrogate, level, dtype, difference):
    # Once as a policy that moved (lp = -100 or 0) and once with numbers no policy gives.
    for start in (min(difference, 0.0), difference):
        logprobs = torch.full((2, 3), start, dtype=dtype, requires_grad=True)
        old = torch.full((2, 3), start - difference, dtype=dtype)
        mask = torch.ones(2, 3, dtype=torch.bool)
        advantages = torch.tensor([[1.0], [-1.0]], dtype=dtype)
        loss = surrogate_loss(
            logprobs,
            old,
            log_ratios_of(logprobs, old, mask, level, advantages),
            advantages,
            surrogate=surrogate,
            mask=mask,
            chosen=chosen_for(surrogate, mask),
            **NEEDED.get(surrogate, {}),
        )
        loss.sum().backward()
        assert loss.dtype == torch.float32
        assert torch.isfinite(loss).all()
        assert torch.isfinite(logprobs.grad).all()


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_A8b_log_ratios_that_nobody_clamped_are_clamped_here(surrogate):
    logprobs = torch.tensor([[0.0, -100.0]], requires_grad=True)
    old = torch.tensor([[-100.0, 0.0]])
    loss = surrogate_loss(
        logprobs,
        old,
        logprobs - old,
        torch.tensor([[1.0, -1.0]]),
        surrogate=surrogate,
        chosen=chosen_for(surrogate, torch.ones(1, 2, dtype=torch.bool)),
        **NEEDED.get(surrogate, {}),
    )
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(logprobs.grad).all()


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
def test_A7d_what_stands_off_the_mask_has_no_effect(surrogate, garbage):
    results = []
    for filling in (0.0, garbage):
        logprobs, old = inputs()
        dirty = torch.where(MASK, logprobs.detach(), filling).requires_grad_()
        old = torch.where(MASK, old, filling)
        advantages = torch.where(MASK, ADVANTAGES, filling)
        logs = torch.where(MASK, dirty - old, filling)
        loss = surrogate_loss(
            dirty,
            old,
            logs,
            advantages,
            surrogate=surrogate,
            mask=MASK,
            chosen=chosen_for(surrogate, CHOSEN),
            correction=torch.where(MASK, 0.9, filling),
            **NEEDED.get(surrogate, {}),
        )
        loss.sum().backward()
        results.append((loss.detach(), dirty.grad))
    for clean, soiled in zip(*results, strict=True):
        torch.testing.assert_close(soiled, clean, rtol=0, atol=0)
    assert results[1][0][~MASK].count_nonzero() == 0
    assert results[1][1][~MASK].count_nonzero() == 0


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_A7a_everything_masked_is_0_with_gradients_of_0(surrogate):
    logprobs = torch.full((2, 3), math.nan, requires_grad=True)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    loss = surrogate_loss(
        logprobs,
        torch.full((2, 3), math.nan),
        log_ratios_of(logprobs, logprobs.detach(), nothing, "token", None),
        torch.full((2, 1), math.inf),
        surrogate=surrogate,
        mask=nothing,
        chosen=chosen_for(surrogate, nothing),
        **NEEDED.get(surrogate, {}),
    )
    loss.sum().backward()
    assert loss.count_nonzero() == 0
    assert logprobs.grad.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("surrogate", sorted(set(SURROGATES) - {"vespo"}))
def test_a_correction_multiplies_the_loss_and_carries_no_gradient(surrogate):
    correction = torch.linspace(0, 2, MASK.numel(), dtype=torch.float64).view(MASK.shape)
    correction.requires_grad_()
    logprobs, old = inputs()
    logs = log_ratios_of(logprobs, old, MASK, "token", None)

    def loss(given):
        return surrogate_loss(
            logprobs,
            old,
            logs,
            ADVANTAGES,
            surrogate=surrogate,
            mask=MASK,
            chosen=chosen_for(surrogate, CHOSEN),
            correction=given,
            **NEEDED.get(surrogate, {}),
        )

    corrected = loss(correction)
    torch.testing.assert_close(corrected, loss(None) * correction.detach())
    corrected.sum().backward()
    assert correction.grad is None


def test_vespo_takes_the_product_of_corrections_into_its_weight():
    logprobs, old = inputs()
    correction = torch.linspace(0.5, 1.5, MASK.numel(), dtype=torch.float64).view(MASK.shape)
    logs = log_ratios_of(logprobs, old, MASK, "sequence_product", None)
    loss = surrogate_loss(
        logprobs, old, logs, ADVANTAGES, surrogate="vespo", mask=MASK, correction=correction
    )
    for row in range(3):
        places = MASK[row].nonzero().flatten().tolist()
        w = math.exp(sum((logprobs[row, t] - old[row, t]).item() for t in places))
        w *= math.prod(correction[row, t].item() for t in places)
        a = ADVANTAGES[row].item()
        k, lam = (2, 3) if a >= 0 else (3, 2)
        phi = math.exp(lam + k * math.log(w) - lam * w)
        for t in places:
            wanted = -phi * a * logprobs[row, t].item()
            assert loss[row, t].item() == pytest.approx(wanted, rel=1e-10)
    assert loss[~MASK].count_nonzero() == 0


def test_vespo_multiplies_before_it_clamps():
    # The policy moved by e^98 and the engine was off by e^-98: w = 1, phi = 1.
    logprobs = torch.full((1, 7), -1.0, dtype=torch.float64, requires_grad=True)
    old = torch.full((1, 7), -15.0, dtype=torch.float64)
    correction = torch.full((1, 7), math.exp(-14), dtype=torch.float64)
    mask = torch.ones(1, 7, dtype=torch.bool)
    logs = log_ratios_of(logprobs, old, mask, "sequence_product", None)
    surrogate_loss(
        logprobs, old, logs, torch.ones(1, 1), surrogate="vespo", mask=mask, correction=correction
    ).sum().backward()
    assert logprobs.grad[0].tolist() == pytest.approx([-1.0] * 7, abs=1e-9)


def test_vespo_bounds_its_weight_and_drops_what_is_not_finite():
    logprobs = torch.full((1, 4), -1.0, dtype=torch.float64)
    logs = torch.tensor([[-300.0, math.log(1e-8), 300.0, math.nan]], dtype=torch.float64)
    phi = vespo(logprobs, logs, torch.ones(1, 1, dtype=torch.float64))
    lowest = math.exp(3 + 2 * math.log(1e-8) - 3e-8)
    assert phi[0].tolist() == pytest.approx([lowest, lowest, 0.0, 0.0], rel=1e-12)
    # e^600 is a number, e^1800 is not.
    for k, count in ((30.0, 4), (90.0, 0)):
        weights = torch.full_like(logs, 20.0)
        phi = vespo(logprobs, weights, torch.ones(1, 1), vespo_positive=(k, 0.0))
        assert phi.count_nonzero() == count


def test_a_row_whose_correction_is_0_has_no_weight_in_vespo():
    logprobs, old = inputs()
    logs = log_ratios_of(logprobs, old, MASK, "sequence_product", None)
    loss = surrogate_loss(
        logprobs,
        old,
        logs,
        ADVANTAGES,
        surrogate="vespo",
        mask=MASK,
        correction=torch.zeros_like(old),
    )
    loss.sum().backward()
    assert loss.abs().max() < 1e-12
    assert torch.isfinite(logprobs.grad).all()


def test_constants_of_float64_are_not_rounded_to_float32():
    logs = torch.tensor([[0.3]], dtype=torch.float64)
    loss = sapo(logs, torch.tensor([[-1.0]], dtype=torch.float64), tau_negative=1.05)
    wanted = 4 / 1.05 / (1 + math.exp(-1.05 * (math.exp(0.3) - 1)))
    assert loss.item() == pytest.approx(wanted, rel=1e-14)


def test_clipped_tokens_are_low_high_and_dual_apart():
    logs = torch.tensor([[0.5, 0.5, 1.25, 4.0, 4.0, 1.0]]).log()
    advantages = torch.tensor([[-1.0, 1.0, 1.0, -1.0, 1.0, -1.0]])
    found = clipped_tokens(logs, advantages, epsilon=0.2, epsilon_high=0.28, dual_clip=3.0)
    assert found.low.tolist() == [[True, False, False, False, False, False]]
    assert found.high.tolist() == [[False, False, False, False, True, False]]
    assert found.dual.tolist() == [[False, False, False, True, False, False]]
    without = clipped_tokens(logs, advantages, epsilon=0.2)
    assert without.high.tolist() == [[False, False, True, False, True, False]]
    assert without.dual.count_nonzero() == 0
    by_row = clipped_tokens(logs, torch.tensor([[-1.0]]), epsilon=0.2, dual_clip=3.0)
    assert by_row.low.shape == by_row.high.shape == by_row.dual.shape == logs.shape


def test_no_gradient_into_the_old_policy():
    logprobs, old = inputs()
    old.requires_grad_()
    for surrogate in SURROGATES:
        logs = log_ratios_of(logprobs, old, MASK, "token", None)
        surrogate_loss(
            logprobs,
            old,
            logs,
            ADVANTAGES,
            surrogate=surrogate,
            mask=MASK,
            chosen=chosen_for(surrogate, CHOSEN),
            **NEEDED.get(surrogate, {}),
        ).sum().backward()
        assert old.grad is None


# ------------------------------------------------------------------------------------ refusals


def call(surrogate, **more):
    logprobs, old = inputs()
    return surrogate_loss(logprobs, old, logprobs - old, ADVANTAGES, surrogate=surrogate, **more)


def test_every_surrogate_has_its_keywords():
    assert set(SURROGATE_KEYWORDS) == set(SURROGATES)


def test_a_constant_that_the_surrogate_does_not_read_is_refused():
    with pytest.raises(ValueError, match="was given, but the surrogate 'sapo' does not"):
        call("sapo", epsilon=0.2)
    with pytest.raises(ValueError, match="it reads no constant"):
        call("logp", dro_beta=1.0)


def test_missing_constants_and_unknown_names_are_refused():
    with pytest.raises(ValueError, match="'ppo_clip' needs epsilon"):
        call("ppo_clip")
    with pytest.raises(ValueError, match="'dro' needs dro_beta"):
        call("dro")
    with pytest.raises(ValueError, match="unknown surrogate 'ppo'; expected logp, ratio, ppo_clip"):
        call("ppo")
    with pytest.raises(ValueError, match=r"dual_clip=1.1 lies inside the clip range.*1.2"):
        call("ppo_clip", epsilon=0.2, dual_clip=1.1)


def test_chosen_tokens_go_with_the_covariance_surrogates_only():
    with pytest.raises(ValueError, match="'kl_cov' needs chosen"):
        call("kl_cov")
    with pytest.raises(ValueError, match="'ratio' does not read chosen"):
        call("ratio", chosen=CHOSEN)


def test_vespo_needs_the_mask_to_multiply_corrections():
    with pytest.raises(ValueError, match="vespo with a correction needs mask"):
        call("vespo", correction=torch.ones_like(MASK, dtype=torch.float64))
