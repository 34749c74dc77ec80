"""LUFFY's reshaping: the table of the reference, closed forms, and what far tokens do."""

from __future__ import annotations

import math

import pytest
import torch

from workings.objectives.shaping import SHAPINGS, shaped, shaped_ratio

PROBABILITIES = (0.001, 0.01, 0.1, 0.5, 0.9, 1.0)
SETTINGS = [
    ("no_reshape", {}),
    ("ratio", {"gamma": 0.1}),
    ("ratio", {"gamma": 0.3}),
    ("ratio", {"gamma": 0.5}),
    ("ratio", {"gamma": 0.0371}),
    ("ratio", {"gamma": 7.0}),
    ("square_root", {}),
    ("pow", {"power": 0.5}),
    ("pow", {"power": 0.8}),
    ("pow", {"power": 2.0}),
    ("logp", {"weight": 0.1}),
    ("logp", {"weight": 0.7}),
    ("p_logp", {"weight": 0.1}),
    ("p_logp", {"weight": 0.7}),
]


def closed_form(shaping, x, gamma=0.1, weight=0.1, power=0.5):
    """(f, df / dlog x) of the table in luffy.md 1.4, with x as a number."""
    return {
        "no_reshape": lambda: (x, x),
        "ratio": lambda: (x / (x + gamma), gamma * x / (x + gamma) ** 2),
        "square_root": lambda: (math.sqrt(x), math.sqrt(x) / 2),
        "pow": lambda: (x**power, power * x**power),
        "logp": lambda: (weight * math.log(x), weight),
        "p_logp": lambda: (x + weight * math.log(x), x + weight),
    }[shaping]()


def value_and_pull(log_value, shaping, **settings):
    start = torch.tensor([log_value], dtype=torch.float64, requires_grad=True)
    value = shaped(start, shaping=shaping, **settings)
    value.sum().backward()
    return value.item(), start.grad.item()


@pytest.mark.parametrize(("shaping", "settings"), SETTINGS)
@pytest.mark.parametrize("p", PROBABILITIES)
def test_value_and_pull_against_the_closed_form(shaping, settings, p):
    got = value_and_pull(math.log(p), shaping, **settings)
    assert got == pytest.approx(closed_form(shaping, p, **settings), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(("shaping", "settings"), SETTINGS)
def test_pull_by_finite_differences(shaping, settings):
    logs = torch.tensor(PROBABILITIES, dtype=torch.float64).log().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: shaped(x, shaping=shaping, **settings), logs)


# The table of luffy.md 1.4: f and pull at p = 0.5, then at p = 0.1
@pytest.mark.parametrize(
    ("shaping", "gamma", "at_half", "at_tenth"),
    [
        ("no_reshape", 0.1, (0.5, 0.5), (0.1, 0.1)),
        ("ratio", 0.1, (0.833333, 0.138889), (0.5, 0.25)),
        ("ratio", 0.3, (0.625, 0.234375), (0.25, 0.1875)),
        ("ratio", 0.5, (0.5, 0.25), (0.166667, 0.138889)),
        ("square_root", 0.1, (0.707107, 0.353553), (0.316228, 0.158114)),
        ("pow", 0.1, (0.707107, 0.353553), (0.316228, 0.158114)),
        ("logp", 0.1, (-0.069315, 0.1), (-0.230259, 0.1)),
        ("p_logp", 0.1, (0.430685, 0.6), (-0.130259, 0.2)),
    ],
)
def test_luffy_table(shaping, gamma, at_half, at_tenth):
    assert value_and_pull(math.log(0.5), shaping, gamma=gamma) == pytest.approx(at_half, abs=1e-6)
    assert value_and_pull(math.log(0.1), shaping, gamma=gamma) == pytest.approx(at_tenth, abs=1e-6)


@pytest.mark.parametrize(
    ("p", "pull"), [(0.001, 0.009803), (0.01, 0.082645), (0.1, 0.25), (0.9, 0.09), (1.0, 0.082645)]
)
def test_pull_of_gamma_0_1(p, pull):
    assert value_and_pull(math.log(p), "ratio")[1] == pytest.approx(pull, abs=1e-6)


def test_rare_tokens_are_multiplied_and_sure_ones_damped():
    for p, factor in ((0.01, 8.26), (0.9, 0.1)):
        assert value_and_pull(math.log(p), "ratio")[1] / p == pytest.approx(factor, abs=0.005)


@pytest.mark.parametrize("gamma", [0.02, 0.1, 0.4])
def test_pull_peaks_at_gamma_with_a_quarter(gamma):
    logs = torch.linspace(-8, 0, 8001, dtype=torch.float64).requires_grad_()
    shaped(logs, shaping="ratio", gamma=gamma).sum().backward()
    best = logs.grad.argmax()
    assert logs.grad[best].item() == pytest.approx(0.25, abs=1e-6)
    assert logs[best].exp().item() == pytest.approx(gamma, rel=1e-3)


def test_clamps_bound_f_and_stop_the_gradient_outside():
    logs = torch.tensor([0.01, 0.1, 0.9], dtype=torch.float64).log().requires_grad_()
    value = shaped(logs, shaping="ratio", clip_min=0.2, clip_max=0.8)
    value.sum().backward()
    assert value.tolist() == pytest.approx([0.2, 0.5, 0.8])
    assert logs.grad.tolist() == pytest.approx([0.0, 0.25, 0.0])
    one_side = shaped(logs, shaping="ratio", clip_max=0.4)
    assert one_side.tolist() == pytest.approx([0.01 / 0.11, 0.4, 0.4])
    other = shaped(logs, shaping="no_reshape", clip_min=0.05)
    assert other.tolist() == pytest.approx([0.05, 0.1, 0.9])


@pytest.mark.parametrize("shaping", SHAPINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_A8b_shapings_of_improbable_tokens_are_finite(shaping, dtype):
    logs = torch.tensor([-100.0, -1000.0, 0.0], dtype=dtype, requires_grad=True)
    value = shaped(logs, shaping=shaping)
    value.sum().backward()
    assert value.dtype == torch.float32
    assert torch.isfinite(value).all()
    assert torch.isfinite(logs.grad).all()


def test_a_probability_of_0_has_no_value_and_no_pull():
    for shaping in ("no_reshape", "ratio", "square_root", "pow"):
        assert value_and_pull(-math.inf, shaping) == (0.0, 0.0)


# ------------------------------------------------------------------------- on-policy reshaping


def closed_form_on_policy(shaping, p, old, gamma=0.1, weight=0.1, power=0.5):
    """(x, dx / dlog p) with r = p / old."""
    r = p / old

    def f(q):
        return q / (q + gamma)

    return {
        "no_reshape": lambda: (r, r),
        "ratio": lambda: (f(p) / f(old), gamma * p / (p + gamma) ** 2 / f(old)),
        "square_root": lambda: (math.sqrt(r), math.sqrt(r) / 2),
        "pow": lambda: (r**power, power * r**power),
        "logp": lambda: (math.log(r), 1.0),
        "p_logp": lambda: (r + weight * math.log(r), r + weight),
    }[shaping]()


@pytest.mark.parametrize(("shaping", "settings"), SETTINGS)
@pytest.mark.parametrize("p", PROBABILITIES)
@pytest.mark.parametrize("old", [0.003, 0.1, 0.95])
def test_reshaped_ratios_against_the_closed_form(shaping, settings, p, old):
    logprobs = torch.tensor([math.log(p)], dtype=torch.float64, requires_grad=True)
    before = torch.tensor([math.log(old)], dtype=torch.float64, requires_grad=True)
    value = shaped_ratio(logprobs, before, logprobs - before.detach(), shaping=shaping, **settings)
    value.sum().backward()
    wanted = closed_form_on_policy(shaping, p, old, **settings)
    assert (value.item(), logprobs.grad.item()) == pytest.approx(wanted, rel=1e-11)
    assert before.grad is None


@pytest.mark.parametrize("shaping", SHAPINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("difference", [100.0, -100.0])
def test_A8b_reshaped_ratios_are_finite(shaping, dtype, difference):
    logprobs = torch.tensor([min(difference, 0.0)], dtype=dtype, requires_grad=True)
    old = logprobs.detach() - difference
    value = shaped_ratio(logprobs, old, logprobs - old, shaping=shaping)
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert torch.isfinite(logprobs.grad).all()


def test_bad_settings_are_refused():
    logs = torch.zeros(1)
    with pytest.raises(ValueError, match=r"unknown shaping 'p_div_p_0\.1'; expected no_reshape"):
        shaped(logs, shaping="p_div_p_0.1")
    for gamma in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="expected a number above 0"):
            shaped(logs, shaping="ratio", gamma=gamma)
        with pytest.raises(ValueError, match="expected a number above 0"):
            shaped_ratio(logs, logs, logs, shaping="ratio", gamma=gamma)
    with pytest.raises(ValueError, match="power=0"):
        shaped(logs, shaping="pow", power=0)
