"""The worked examples of the objectives reference, as numbers."""

from __future__ import annotations

import math

import pytest
import torch

from workings.objectives.advantages import group_advantages
from workings.objectives.corrections import (
    behaviour_logprobs,
    mismatch_ratio,
    truncated_importance,
)
from workings.objectives.masked import masked_mean, masked_normalize, masked_sum
from workings.objectives.policy import weighted_loss
from workings.objectives.ratios import log_ratio
from workings.objectives.reductions import StepTotals, token_weights
from workings.objectives.supervised import sft_loss
from workings.objectives.surrogates import (
    clipped_tokens,
    ppo_clip,
    ratio_surrogate,
    surrogate_loss,
)

LENGTHS = (2, 6)
CLIP = {"epsilon": 0.2, "epsilon_high": 0.28}


def loss_at(logprobs, old, advantages, surrogate):
    """The loss per token of a surrogate on the token level."""
    constants = CLIP if surrogate == "ppo_clip" else {}
    log_ratios = log_ratio(logprobs, old)
    return surrogate_loss(logprobs, old, log_ratios, advantages, surrogate=surrogate, **constants)


def length_mask(lengths=LENGTHS):
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


# E0, rule 6
def test_infinity_outside_the_mask_does_not_leak():
    values, mask = torch.tensor([math.inf, 1.0]), torch.tensor([False, True])
    assert masked_sum(values, mask).item() == 1.0
    assert masked_mean(values, mask).item() == 1.0
    loss = weighted_loss(torch.tensor([math.nan, 2.0]), torch.tensor([0.0, 0.5]))
    assert loss.item() == 1.0


# E0b, rule 7, A8b
@pytest.mark.parametrize("difference", [100.0, -100.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("surrogate", ["logp", "ratio", "ppo_clip"])
def test_a8b_huge_log_ratios_stay_finite(difference, advantage, dtype, surrogate):
    logprobs = torch.tensor([[difference]], dtype=dtype, requires_grad=True)
    old, weight = torch.zeros(1, 1, dtype=dtype), torch.tensor([[advantage]], dtype=dtype)
    loss = loss_at(logprobs, old, weight, surrogate).sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logprobs.grad).all()


# E3: (ratio, advantage, epsilon_high, loss, d loss / d ratio)
@pytest.mark.parametrize(
    ("ratio", "advantage", "high", "value", "slope"),
    [
        (0.5, 1, 0.2, -0.5, -1),
        (0.5, -1, 0.2, 0.8, 0),
        (1.25, 1, 0.2, -1.2, 0),
        (1.25, 1, 0.28, -1.25, -1),
        (1.25, -1, 0.2, 1.25, 1),
        (1.5, 1, 0.2, -1.2, 0),
        (1.5, 1, 0.28, -1.28, 0),
        (4.0, 1, 0.28, -1.28, 0),
        (4.0, -1, 0.2, 4.0, 1),
    ],
)
def test_e3_clipped_surrogate(ratio, advantage, high, value, slope):
    logprobs = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    old, weight = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[float(advantage)]])
    log_ratios = log_ratio(logprobs, old)
    loss = ppo_clip(log_ratios, weight, epsilon=0.2, epsilon_high=high)
    loss.sum().backward()
    assert loss.item() == pytest.approx(value, abs=1e-12)
    assert logprobs.grad.item() / ratio == pytest.approx(slope, abs=1e-12)
    clipped = clipped_tokens(log_ratios, weight, epsilon=0.2, epsilon_high=high)
    assert bool(clipped.low) == (ratio < 0.8 and advantage < 0)
    assert bool(clipped.high) == (ratio > 1 + high and advantage > 0)


def test_old_logprobs_carry_no_gradient():
    logprobs = torch.zeros(1, 2, requires_grad=True)
    old = torch.zeros(1, 2, requires_grad=True)
    ppo_clip(log_ratio(logprobs, old), torch.ones(1, 1), epsilon=0.2).sum().backward()
    assert old.grad is None


def test_on_policy_identity_of_gradients():
    # Tests required, 3: at ratio 1 the surrogates have equal gradients.
    values = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    advantages = torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64)
    gradients = []
    for surrogate in ("logp", "ratio", "ppo_clip"):
        logprobs = values.clone().requires_grad_()
        loss_at(logprobs, values, advantages, surrogate).sum().backward()
        gradients.append(logprobs.grad)
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], rtol=0, atol=1e-14)


@pytest.mark.parametrize("surrogate", ["logp", "ratio", "ppo_clip"])
def test_surrogates_by_finite_differences(surrogate):
    generator = torch.Generator().manual_seed(2)
    old = torch.randn(2, 5, dtype=torch.float64, generator=generator)
    start = old + 0.05 * torch.randn(2, 5, dtype=torch.float64, generator=generator)
    advantages = torch.tensor([[1.0], [-1.5]], dtype=torch.float64)

    def function(logprobs):
        return loss_at(logprobs, old, advantages, surrogate)

    assert torch.autograd.gradcheck(function, start.requires_grad_())


# E8: lengths 2 and 6, A = +1, -1, ratio 1, L = 8
E8 = {
    "seq_mean_token_mean": (0.0, -1 / 4, 1 / 12),
    "token_mean": (0.5, -1 / 8, 1 / 8),
    "seq_mean_token_sum_norm": (0.25, -1 / 16, 1 / 16),
    "seq_mean_token_sum": (2.0, -1 / 2, 1 / 2),
}


@pytest.mark.parametrize("reduction", E8)
@pytest.mark.parametrize("split", [[[0, 1]], [[0], [1]]])
def test_e8_a1b_reductions_in_one_and_two_microbatches(reduction, split):
    loss_wanted, slope_first, slope_second = E8[reduction]
    logprobs = torch.zeros(2, 6, dtype=torch.float64, requires_grad=True)
    mask, advantages = length_mask(), torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    totals = StepTotals(num_rows=2, num_tokens=8)
    total = 0.0
    for rows in split:
        weights = token_weights(
            mask[rows], totals, reduction=reduction, max_length=8, dtype=torch.float64
        )
        log_ratios = log_ratio(logprobs[rows], logprobs[rows].detach())
        token_loss = ratio_surrogate(log_ratios, advantages[rows])
        loss = weighted_loss(token_loss, weights)
        loss.backward()
        total += loss.item()
    assert total == pytest.approx(loss_wanted, abs=1e-12)
    assert logprobs.grad[0, :2].tolist() == pytest.approx([slope_first] * 2, abs=1e-12)
    assert logprobs.grad[1].tolist() == pytest.approx([slope_second] * 6, abs=1e-12)
    assert logprobs.grad[0, 2:].count_nonzero() == 0


# E10, A7b: row 2 of E8 left out
@pytest.mark.parametrize("reduction", ["token_mean", "seq_mean_token_mean"])
def test_e10_a_masked_row_leaves_both_sides(reduction):
    mask = length_mask()
    mask[1] = False
    weights = token_weights(mask, StepTotals(num_rows=1, num_tokens=2), reduction=reduction)
    token_loss = -torch.tensor([[1.0], [-1.0]]).expand(2, 6)
    assert weighted_loss(token_loss, weights).item() == -1.0


def test_a7a_everything_masked_is_exactly_zero_with_zero_gradients():
    logprobs = torch.full((2, 6), math.nan, requires_grad=True)
    weights = token_weights(
        torch.zeros(2, 6, dtype=torch.bool),
        StepTotals(num_rows=0, num_tokens=0),
        reduction="seq_mean_token_mean",
    )
    loss = weighted_loss(-logprobs, weights)
    loss.backward()
    assert loss.item() == 0.0
    assert logprobs.grad.count_nonzero() == 0


# E27, A1a
@pytest.mark.parametrize("split", [[[0, 1]], [[0], [1]]])
def test_e27_a1a_sft_loss_is_1_75(split):
    logprobs = -torch.tensor([[4.0, 0, 0], [1, 1, 1]], dtype=torch.float64)
    mask = length_mask((1, 3))
    totals = StepTotals(num_rows=2, num_tokens=4)
    loss = sum(sft_loss(logprobs[rows], mask[rows], totals).item() for rows in split)
    assert loss == pytest.approx(1.75, abs=1e-12)


# E28
def test_e28_sequence_sum():
    logprobs = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    mask, totals = length_mask((2, 3)), StepTotals(num_rows=4, num_tokens=10)
    sft_loss(logprobs, mask, totals, loss="seq_sum").backward()
    assert logprobs.grad[mask].tolist() == pytest.approx([-0.25] * 5)
    assert logprobs.grad[~mask].count_nonzero() == 0


# E12, E13
@pytest.mark.parametrize(
    ("estimator", "eps", "rewards", "expected"),
    [
        ("group", 1e-6, [1, 0, 0, 1], [0.866024, -0.866024, -0.866024, 0.866024]),
        ("group", 1e-6, [1, 0, 0, 0], [1.499997, -0.499999, -0.499999, -0.499999]),
        ("group", 1e-4, [1, 0, 0, 0], [1.499700, -0.499900, -0.499900, -0.499900]),
        ("group_mean", 1e-6, [1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]),
        ("raw", 1e-6, [1, 0, 0, 0], [1, 0, 0, 0]),
    ],
)
def test_e12_e13_advantages(estimator, eps, rewards, expected):
    got = group_advantages(
        torch.tensor([rewards], dtype=torch.float64), estimator=estimator, eps=eps
    )
    assert got[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_biased_standard_deviation_would_be_noticed():
    got = group_advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0]]))
    assert abs(abs(got[0, 0].item()) - 0.999998) > 0.1


@pytest.mark.parametrize("estimator", ["group", "group_mean"])
def test_equal_rewards_give_exactly_zero(estimator):
    rewards = torch.full((2, 7), 0.1)
    assert group_advantages(rewards, estimator=estimator).count_nonzero() == 0


def test_an_unusable_reward_leaves_the_statistics():
    rewards = torch.tensor([[1.0, 0.0, 99.0], [1.0, 0.0, 0.0]])
    valid = torch.tensor([[True, True, False], [True, False, False]])
    got = group_advantages(rewards, valid, estimator="group_mean")
    assert got.tolist() == [[0.5, -0.5, 0.0], [0.0, 0.0, 0.0]]


def test_advantages_do_not_mix_groups():
    # A12a: the reward is the prompt's index, so every advantage is 0.
    rewards = torch.arange(6.0)[:, None].expand(6, 3)
    assert group_advantages(rewards).count_nonzero() == 0


def test_non_finite_rewards_name_their_row():
    with pytest.raises(ValueError, match="group 0, sample 1 is nan"):
        group_advantages(torch.tensor([[0.0, math.nan]]))


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match="undefined for one"):
        group_advantages(torch.ones(4, 1))
    assert group_advantages(torch.ones(4, 1), estimator="raw").sum() == 4


# E19
def test_e19_truncated_importance_and_kept_mass():
    sampled = torch.log(torch.tensor([[0.5, 0.25, math.nan]]))
    kept = torch.tensor([[0.8, 0.5, 1.0]])
    behaviour = behaviour_logprobs(sampled, kept)
    assert behaviour[0, :2].exp().tolist() == pytest.approx([0.625, 0.5])
    ratio = mismatch_ratio(torch.log(torch.tensor([[0.5, 0.25, 0.1]])), behaviour)
    assert ratio[0].tolist() == pytest.approx([0.8, 0.5, 1.0])
    assert truncated_importance(torch.tensor([0.5, 1, 4]), cap=2.0).tolist() == [0.5, 1, 2]


# E11 and the course contract of masked_mean and masked_normalize
def test_e11_masked_mean_and_normalize():
    values = torch.full((2, 7), 2.0, dtype=torch.float64, requires_grad=True)
    mask = length_mask((4, 7))
    assert masked_mean(values, mask, dim=1).tolist() == [2.0, 2.0]
    rows = masked_normalize(values, mask, 7.0, dim=1)
    assert rows.tolist() == pytest.approx([8 / 7, 2.0])
    rows.sum().backward()
    assert values.grad[mask].tolist() == pytest.approx([1 / 7] * 11)
    assert values.grad[~mask].count_nonzero() == 0
    assert masked_normalize(values, mask, 2.0).item() == pytest.approx(11.0)


def test_an_empty_slice_is_nan_by_contract_and_zero_on_request():
    values, mask = torch.ones(2, 3), torch.tensor([[True, True, True], [False] * 3])
    assert math.isnan(masked_mean(values, mask, dim=1)[1].item())
    assert masked_mean(values, mask, dim=1, empty="zero").tolist() == [1.0, 0.0]


def test_token_weights_refuse_what_they_do_not_know():
    mask, totals = torch.ones(1, 1, dtype=torch.bool), StepTotals(num_rows=1, num_tokens=1)
    with pytest.raises(ValueError, match="needs max_length"):
        token_weights(mask, totals, reduction="seq_mean_token_sum_norm")
    with pytest.raises(ValueError, match="unknown reduction"):
        token_weights(mask, totals, reduction="mean")


def test_weights_of_every_split_sum_to_the_same():
    mask = length_mask((3, 1, 4, 2))
    totals = StepTotals(num_rows=4, num_tokens=10)
    for reduction in E8:
        whole = token_weights(mask, totals, reduction=reduction, max_length=8, dtype=torch.float64)
        for size in (1, 2, 4):
            parts = [
                token_weights(
                    mask[i : i + size],
                    totals,
                    reduction=reduction,
                    max_length=8,
                    dtype=torch.float64,
                )
                for i in range(0, 4, size)
            ]
            torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=0)
