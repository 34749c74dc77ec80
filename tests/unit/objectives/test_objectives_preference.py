"""The DPO family against plain Python formulas: values, gradients, column E30, sorting, edges."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workings.objectives.preference import (
    PreferenceLoss,
    chosen_nll,
    discounted_sums,
    preference_loss,
    preferred,
    sorted_partners,
)

LOSSES = get_args(PreferenceLoss)
PAIRWISE = tuple(name for name in LOSSES if not name.startswith("aot"))
SMOOTHED = ("cdpo", "robust", "exo_pair")
STEP = 1e-6

# name: value at c=2, j=-1, b=0.1, n_c=4, n_j=5, e=0.1 (objectives reference, section 11)
E30 = {
    "sigmoid": 0.554355,
    "cdpo": 0.584355,
    "robust": 0.516855,
    "hinge": 0.7,
    "ipo": 18.49,
    "sigmoid_norm": 0.658760,
    "exo_pair": 0.358383,
    "nca_pair": 1.319407,
    "bco_pair": 1.242536,
    "sppo_hard": 25.0,
    "apo_zero": 0.925187,
    "apo_down": 0.975391,
    "discopop": 0.740357,
}


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def sig(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def logsig(x):
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


def formula(name, c, j, b, e, n_c, n_j):
    """The table of the reference, in Python floats."""
    d, norm = c - j, c / n_c - j / n_j
    p, q = sig(b * d), sig(-b * d)
    return {
        "sigmoid": lambda: -logsig(b * d),
        "cdpo": lambda: -(1 - e) * logsig(b * d) - e * logsig(-b * d),
        "robust": lambda: (-(1 - e) * logsig(b * d) + e * logsig(-b * d)) / (1 - 2 * e),
        "hinge": lambda: max(0.0, 1 - b * d),
        "ipo": lambda: (norm - 1 / (2 * b)) ** 2,
        "ipo_sum": lambda: (d - 1 / (2 * b)) ** 2,
        "sigmoid_norm": lambda: -logsig(b * norm),
        "exo_pair": lambda: p * math.log(p / (1 - e)) + q * math.log(q / e),
        "nca_pair": lambda: -logsig(b * c) - 0.5 * logsig(-b * c) - 0.5 * logsig(-b * j),
        "bco_pair": lambda: -logsig(b * c) - logsig(-b * j),
        "sppo_hard": lambda: (c - 1 / (2 * b)) ** 2 + (j + 1 / (2 * b)) ** 2,
        "apo_zero": lambda: 1 - sig(b * c) + sig(b * j),
        "apo_down": lambda: sig(b * c) + 1 - sig(b * d),
        "discopop": lambda: (
            (1 - sig(b * d / 0.05)) * -logsig(b * d) + sig(b * d / 0.05) * math.exp(-b * d)
        ),
    }[name]()


def options(name, e, n_c, n_j):
    chosen = {"chosen_lengths": n_c, "rejected_lengths": n_j}
    return {**chosen, "label_smoothing": e if name in SMOOTHED else 0.0}


def sorted_loss(name, policy_margins, ref_margins, chosen, rejected, b, e):
    """(sum of) aot or aot_unpaired by sorting in Python."""
    if name == "aot":
        gaps = [p - r for p, r in zip(sorted(policy_margins), sorted(ref_margins), strict=True)]
    else:
        gaps = [c - j for c, j in zip(sorted(chosen), sorted(rejected), strict=True)]
    return sum(-(1 - e) * logsig(b * gap) - e * logsig(-b * gap) for gap in gaps)


# ---------------------------------------------------------------------------------- values


@pytest.mark.parametrize("name", PAIRWISE)
def test_dpo_values_of_column_e30(name):
    lengths = options(name, 0.1, vector(4.0), vector(5.0))
    value = preference_loss(vector(2.0), vector(-1.0), loss=name, beta=0.1, **lengths)
    assert value.item() == pytest.approx(E30[name], abs=6e-7)
    assert formula(name, 2.0, -1.0, 0.1, 0.1, 4, 5) == pytest.approx(E30[name], abs=6e-7)


def test_dpo_ipo_on_sums_is_four_in_column_e30():
    value = preference_loss(vector(2.0), vector(-1.0), loss="ipo", beta=0.1, ipo_sum=True)
    assert value.item() == pytest.approx(4.0, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    c=st.floats(-30, 30),
    j=st.floats(-30, 30),
    b=st.floats(0.02, 2.0),
    e=st.floats(0.01, 0.45),
    n_c=st.integers(1, 40),
    n_j=st.integers(1, 40),
)
def test_dpo_every_loss_and_gradient_against_plain_formulas(c, j, b, e, n_c, n_j):
    for name in PAIRWISE:
        chosen, rejected = vector(c).requires_grad_(), vector(j).requires_grad_()
        lengths = options(name, e, torch.tensor([n_c]), torch.tensor([n_j]))
        value = preference_loss(chosen, rejected, loss=name, beta=b, **lengths)
        value.sum().backward()
        plain = [b, e if name in SMOOTHED else 0.0, n_c, n_j]
        assert value.item() == pytest.approx(formula(name, c, j, *plain), rel=1e-11, abs=1e-12)
        if name == "hinge" and abs(1 - b * (c - j)) < 1e-3:
            continue  # the kink has no derivative to compare with
        for tensor, place in ((chosen, 0), (rejected, 1)):
            moved = [[c, j], [c, j]]
            moved[0][place] += STEP
            moved[1][place] -= STEP
            slope = (formula(name, *moved[0], *plain) - formula(name, *moved[1], *plain)) / (
                2 * STEP
            )
            scale = max(1.0, abs(formula(name, c, j, *plain)))
            assert tensor.grad.item() == pytest.approx(slope, rel=1e-5, abs=1e-7 * scale)


@pytest.mark.parametrize("name", LOSSES)
def test_dpo_policy_equal_to_reference(name):
    zero = torch.zeros(4, dtype=torch.float64)
    value = preference_loss(
        zero,
        zero,
        loss=name,
        beta=0.1,
        **options(name, 0.25, zero + 3, zero + 7),
        ref_margins=vector(3.0, -1.0, 4.0, -1.5),
    )
    expected = {
        "hinge": 1.0,
        "ipo": 25.0,
        "sppo_hard": 50.0,
        "robust": math.log(2),
        "exo_pair": 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25),
        "nca_pair": 2 * math.log(2),
        "bco_pair": 2 * math.log(2),
        "apo_zero": 1.0,
        "apo_down": 1.0,
        "discopop": 0.5 * math.log(2) + 0.5,
    }.get(name, math.log(2))
    assert value.tolist() == pytest.approx([expected] * 4, abs=1e-12)


def test_dpo_without_smoothing_cdpo_and_robust_are_sigmoid():
    c, j = vector(2.0, -3.0), vector(-1.0, 4.0)
    plain = preference_loss(c, j)
    assert torch.equal(preference_loss(c, j, loss="cdpo"), plain)
    assert torch.equal(preference_loss(c, j, loss="robust"), plain)


@pytest.mark.parametrize("name", PAIRWISE)
def test_dpo_far_away_log_ratios_give_finite_losses_and_gradients(name):
    c = vector(1e4, -1e4, 1e4, -1e4).float().requires_grad_()
    j = vector(-1e4, 1e4, 1e4, -1e4).float().requires_grad_()
    lengths = options(name, 0.1, vector(1.0).float(), vector(1.0).float())
    preference_loss(c, j, loss=name, beta=1.0, **lengths).sum().backward()
    assert torch.isfinite(c.grad).all()
    assert torch.isfinite(j.grad).all()


# --------------------------------------------------------------------------------- sorting


def random_step(num_pairs=9, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw():
        return 5 * torch.randn(num_pairs, generator=generator, dtype=torch.float64)

    return draw(), draw(), draw()


@pytest.mark.parametrize("name", ["aot", "aot_unpaired"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_dpo_sorted_losses_against_python_sorting(name, smoothing):
    chosen, rejected, ref_margins = random_step()
    c, j, b = chosen.clone().requires_grad_(), rejected.clone().requires_grad_(), 0.3
    values = preference_loss(
        c, j, loss=name, beta=b, label_smoothing=smoothing, ref_margins=ref_margins
    )
    values.sum().backward()

    def plain(chosen, rejected):
        policy = (chosen - rejected + ref_margins).tolist()
        lists = (policy, ref_margins.tolist(), chosen.tolist(), rejected.tolist())
        return sorted_loss(name, *lists, b, smoothing)

    assert values.sum().item() == pytest.approx(plain(chosen, rejected), abs=1e-12)
    for place in range(len(chosen)):
        step = torch.zeros_like(chosen)
        step[place] = STEP
        slope = (plain(chosen + step, rejected) - plain(chosen - step, rejected)) / (2 * STEP)
        assert c.grad[place].item() == pytest.approx(slope, abs=1e-8)
        slope = (plain(chosen, rejected + step) - plain(chosen, rejected - step)) / (2 * STEP)
        assert j.grad[place].item() == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("name", ["aot", "aot_unpaired"])
def test_dpo_sorted_losses_do_not_depend_on_how_a_step_is_cut(name):
    chosen, rejected, ref_margins = random_step()
    whole_c, whole_j = chosen.clone().requires_grad_(), rejected.clone().requires_grad_()
    whole = preference_loss(whole_c, whole_j, loss=name, ref_margins=ref_margins)
    whole.sum().backward()
    partners = sorted_partners(chosen, rejected, ref_margins)
    c, j = chosen.clone().requires_grad_(), rejected.clone().requires_grad_()
    total = 0.0
    for part in (torch.tensor([4]), torch.tensor([0, 8, 2]), torch.tensor([1, 3, 5, 6, 7])):
        values = preference_loss(
            c[part],
            j[part],
            loss=name,
            ref_margins=ref_margins[part],
            partners=partners.of(part),
        )
        values.sum().backward()
        total += values.sum().item()
    assert total == pytest.approx(whole.sum().item(), abs=1e-12)
    torch.testing.assert_close(c.grad, whole_c.grad, rtol=0, atol=1e-14)
    torch.testing.assert_close(j.grad, whole_j.grad, rtol=0, atol=1e-14)


def test_dpo_sorted_losses_need_a_second_pair_and_the_reference():
    with pytest.raises(ValueError, match="got 1; expected 2 or more"):
        preference_loss(vector(1.0), vector(0.0), loss="aot_unpaired")
    with pytest.raises(ValueError, match="aot needs ref_margins"):
        preference_loss(vector(1.0, 2.0), vector(0.0, 1.0), loss="aot")


# --------------------------------------------------------------- sums, the SFT term, preference


def test_dpo_ld_alpha_discounts_what_is_beyond_the_shorter_response():
    logprobs = torch.tensor([[-1.0, -2.0, -4.0, -8.0], [-1.0, -3.0, math.nan, math.inf]])
    logprobs = logprobs.double().requires_grad_()
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    shared = torch.tensor([2, 2])
    sums = discounted_sums(logprobs, mask, shared, ld_alpha=0.25)
    assert sums.tolist() == [-6.0, -4.0]
    sums.sum().backward()
    assert logprobs.grad.tolist() == [[1, 1, 0.25, 0.25], [1, 1, 0, 0]]
    assert discounted_sums(logprobs, mask, shared).tolist() == [-15.0, -4.0]
    assert discounted_sums(logprobs, mask, shared, ld_alpha=0).tolist() == [-3.0, -4.0]


def test_dpo_the_sft_term_is_the_token_mean_over_the_chosen_responses():
    sums, lengths = vector(-6.0, -4.0), (3, 2)
    assert chosen_nll(sums, sum(lengths)).sum().item() == pytest.approx(10 / 5)


def test_dpo_preference_counts_ties_as_half():
    chosen = vector(1.0, 2.0, 0.0, 5.0).requires_grad_()
    found = preferred(chosen, vector(2.0, 1.0, 0.0, 5.0 - 1e-9))
    assert found.tolist() == [0.0, 1.0, 0.5, 1.0]
    assert not found.requires_grad
    assert preferred(chosen, vector(2.0, 1.0, 0.0, 5.0 - 1e-9), tolerance=1e-6)[3] == 0.5


# ------------------------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "sigmod"}, "unknown preference loss 'sigmod'"),
        ({"beta": 0.0}, "beta=0.0; expected a number above 0"),
        ({"label_smoothing": -0.1}, "label_smoothing=-0.1"),
        ({"loss": "robust", "label_smoothing": 0.5}, "robust needs label_smoothing below 0.5"),
        ({"loss": "exo_pair"}, "exo_pair needs label_smoothing above 0"),
        ({"loss": "ipo"}, "need chosen_lengths and rejected_lengths"),
        ({"loss": "sigmoid_norm"}, "need chosen_lengths and rejected_lengths"),
    ],
)
def test_dpo_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        preference_loss(vector(1.0), vector(0.0), **arguments)
