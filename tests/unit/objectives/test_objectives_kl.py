"""KL estimators: worked examples, values and gradients against plain numbers, overflow."""

from __future__ import annotations

import math

import pytest
import torch

from workings.objectives.kl import (
    KL_ESTIMATORS,
    kl_penalty,
    kl_token_penalties,
    next_kl_coefficient,
)


def value_and_slope(x, estimator, *, log_ratio=0.0):
    """The estimate at logprob - ref = x and its derivative in the log-probability, by autograd."""
    start = torch.tensor([x], dtype=torch.float64, requires_grad=True)
    # A ratio of exp(log_ratio) whose log moves with the log-probability, as pi / pi_old does.
    ratios = start - x + log_ratio
    value = kl_penalty(
        start, torch.zeros(1, dtype=torch.float64), estimator=estimator, log_ratios=ratios
    )
    value.sum().backward()
    return value.item(), start.grad.item()


def plain(x, estimator, log_ratio=0.0):
    """(value, derivative) by the formulas of the objectives reference, section 6."""
    k3, slope = math.exp(-x) + x - 1, 1 - math.exp(-x)
    ratio = math.exp(log_ratio)
    return {
        "k1": (x, 1.0),
        "abs": (abs(x), math.copysign(1.0, x) if x else 0.0),
        "k2": (x * x / 2, x),
        "k3": (k3, slope),
        "k1_plus": (x, x),
        "k3_plus": (k3, x),
        "k3_is": (ratio * k3, ratio * (k3 + slope)),
    }[estimator]


@pytest.mark.parametrize("estimator", KL_ESTIMATORS)
@pytest.mark.parametrize("x", [-19.0, -2.5, -0.5, -1e-3, 0.0, 1e-3, 0.5, 2.0, 19.0, 40.0])
@pytest.mark.parametrize("log_ratio", [0.0, 0.7, -3.0])
def test_values_and_gradients_against_the_formulas(estimator, x, log_ratio):
    value, slope = value_and_slope(x, estimator, log_ratio=log_ratio)
    wanted_value, wanted_slope = plain(x, estimator, log_ratio)
    assert value == pytest.approx(wanted_value, rel=1e-8, abs=1e-9)
    assert slope == pytest.approx(wanted_slope, rel=1e-8, abs=1e-9)


@pytest.mark.parametrize(
    ("estimator", "x", "value", "slope"),
    [
        ("k1", 0.5, 0.5, 1),
        ("k2", 0.5, 0.125, 0.5),
        ("k3", 0.5, 0.106531, 0.393469),
        ("k3", -0.5, 0.148721, -0.648721),
        ("k3", 2.0, 1.135335, 0.864665),
        ("k3_plus", 0.5, 0.106531, 0.5),
    ],
)
def test_e22(estimator, x, value, slope):
    got = value_and_slope(x, estimator)
    assert got == pytest.approx((value, slope), abs=1e-6)


# E23: pi = [.75, .25] against a uniform reference, by enumeration of both tokens
def expectation_and_logit_gradient(estimator):
    """E[value], and the expected gradient of the loss in the first logit, over sampled tokens."""
    logits = torch.tensor([math.log(3), 0.0], dtype=torch.float64)
    probabilities = torch.softmax(logits, 0)
    reference = torch.log(torch.full((2,), 0.5, dtype=torch.float64))
    expected, gradient = 0.0, torch.zeros(2, dtype=torch.float64)
    for token in range(2):
        free = logits.clone().requires_grad_()
        logprob = torch.log_softmax(free, 0)[token : token + 1]
        value = kl_penalty(
            logprob,
            reference[token : token + 1],
            estimator=estimator,
            log_ratios=logprob - logprob.detach(),
        )
        value.sum().backward()
        expected += probabilities[token].item() * value.item()
        gradient += probabilities[token] * free.grad
    assert gradient.sum().item() == pytest.approx(0, abs=1e-12)
    return expected, gradient[0].item()


def test_e23_true_divergence_and_gradient():
    logits = torch.tensor([math.log(3), 0.0], dtype=torch.float64, requires_grad=True)
    logprobs = torch.log_softmax(logits, 0)
    divergence = (logprobs.exp() * (logprobs - math.log(0.5))).sum()
    divergence.backward()
    assert divergence.item() == pytest.approx(0.130812, abs=1e-6)
    assert logits.grad.tolist() == pytest.approx([0.205990, -0.205990], abs=1e-6)


@pytest.mark.parametrize(
    ("estimator", "expected", "gradient"),
    [
        ("k1", 0.130812, 0.0),
        ("k2", 0.121707, 0.205990),
        ("k3", 0.130812, 0.25),
        ("k1_plus", 0.130812, 0.205990),
        ("k3_plus", 0.130812, 0.205990),
        ("k3_is", 0.130812, 0.205990),
    ],
)
def test_e23_expected_values_and_gradients(estimator, expected, gradient):
    got = expectation_and_logit_gradient(estimator)
    assert got == pytest.approx((expected, gradient), abs=1e-6)


@pytest.mark.parametrize("estimator", KL_ESTIMATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gap", [100.0, -100.0])
def test_a8a_overflow_gives_finite_value_and_gradient(estimator, dtype, gap):
    logprobs = torch.tensor([[-110.0]], dtype=dtype, requires_grad=True)
    value = kl_penalty(
        logprobs,
        logprobs.detach() + gap,
        estimator=estimator,
        log_ratios=logprobs - logprobs.detach() - gap,
    )
    value.sum().backward()
    assert value.dtype == torch.float32
    assert torch.isfinite(value).all()
    assert torch.isfinite(logprobs.grad).all()
    # Whatever is left of the gradient never pushes away from the reference.
    if estimator not in ("k1", "k3_is"):
        assert logprobs.grad.item() * -gap >= 0


def test_the_reference_gets_no_gradient():
    for estimator in KL_ESTIMATORS:
        logprobs = torch.tensor([-1.0], requires_grad=True)
        reference = torch.tensor([-2.0], requires_grad=True)
        kl_penalty(logprobs, reference, estimator=estimator, log_ratios=logprobs + 1).backward()
        assert reference.grad is None


@pytest.mark.parametrize("estimator", KL_ESTIMATORS)
@pytest.mark.parametrize("trash", [math.inf, -math.inf, math.nan])
def test_what_stands_off_the_mask_does_not_leak(estimator, trash):
    logprobs = torch.tensor([[-1.0, trash, -1.0]], requires_grad=True)
    reference = torch.tensor([[-1.5, -1.0, trash]])
    mask = torch.tensor([[True, False, False]])
    value = kl_penalty(logprobs, reference, estimator=estimator, log_ratios=logprobs + 1, mask=mask)
    value.sum().backward()
    assert value[0, 1:].tolist() == [0, 0]
    assert logprobs.grad[0, 1:].tolist() == [0, 0]
    assert value[0, 0].item() == pytest.approx(plain(0.5, estimator)[0], abs=1e-6)
    penalties = kl_token_penalties(logprobs, reference, mask, coefficient=0.1)
    assert penalties[0].tolist() == pytest.approx([0.05, 0, 0])
    assert not penalties.requires_grad


def test_unknown_estimators_and_missing_ratios_are_refused():
    zeros = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="unknown KL estimator 'k4'; expected k1, abs, k2"):
        kl_penalty(zeros, zeros, estimator="k4")
    with pytest.raises(ValueError, match="k3_is needs log_ratios"):
        kl_penalty(zeros, zeros, estimator="k3_is")


def test_adaptive_coefficient():
    options = {"target": 6.0, "horizon": 10_000.0, "num_rows": 256}
    for kl, error in [(6.0, 0.0), (6.6, 0.1), (5.4, -0.1), (60.0, 0.2), (0.0, -0.2)]:
        got = next_kl_coefficient(0.2, kl, **options)
        assert got == pytest.approx(0.2 * (1 + error * 256 / 10_000), abs=1e-12)
    assert next_kl_coefficient(0.2, 0.0, target=1.0, horizon=1.0, num_rows=99) == 0.0
    with pytest.raises(ValueError, match="kl=nan"):
        next_kl_coefficient(0.2, math.nan, **options)
    with pytest.raises(ValueError, match=r"target=0\.0"):
        next_kl_coefficient(0.2, 1.0, target=0.0, horizon=1.0, num_rows=1)
