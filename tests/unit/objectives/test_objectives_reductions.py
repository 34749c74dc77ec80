"""Reductions: worked examples and plain loops, whole and cut into microbatches."""

from __future__ import annotations

import math

import pytest
import torch

from workings.objectives.masked import masked_normalize
from workings.objectives.policy import weighted_loss
from workings.objectives.ratios import level_log_ratio
from workings.objectives.reductions import REDUCTIONS, StepTotals, token_weights
from workings.objectives.surrogates import surrogate_loss

MAX_LENGTH = 8
LENGTHS = (3, 1, 4, 0, 2, 6)
GROUPS = (0, 0, 1, 1, 2, 0)
INVARIANT = sorted(set(REDUCTIONS) - {"local_token_mean"})


def length_mask(lengths):
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


def group_tokens(lengths, groups):
    return torch.tensor(
        [sum(n for n, g in zip(lengths, groups, strict=True) if g == h) for h in groups]
    )


def totals_of(lengths, groups=None, num_microbatches=1):
    groups = range(len(lengths)) if groups is None else groups
    return StepTotals(
        num_rows=sum(n > 0 for n in lengths),
        num_tokens=sum(lengths),
        num_microbatches=num_microbatches,
        num_prompts=len({g for n, g in zip(lengths, groups, strict=True) if n > 0}),
    )


def loss_of(logprobs, mask, advantages, totals, reduction, prompt_tokens=None, level="token"):
    """The share of a microbatch on-policy, as the trainers put it together."""
    old = logprobs.detach()
    loss = surrogate_loss(
        logprobs,
        old,
        level_log_ratio(logprobs, old, mask, level=level),
        advantages,
        surrogate="ppo_clip",
        mask=mask,
        epsilon=0.2,
    )
    weights = token_weights(
        mask,
        totals,
        reduction=reduction,
        max_length=MAX_LENGTH,
        prompt_tokens=prompt_tokens,
        dtype=torch.float64,
    )
    return weighted_loss(loss, weights)


def plain_weight(reduction, n, group_n, lengths, groups):
    rows = sum(m > 0 for m in lengths)
    prompts = len({g for m, g in zip(lengths, groups, strict=True) if m > 0})
    return {
        "seq_mean_token_mean": lambda: 1 / (rows * n),
        "token_mean": lambda: 1 / sum(lengths),
        "local_token_mean": lambda: 1 / sum(lengths),
        "seq_mean_token_sum_norm": lambda: 1 / (rows * MAX_LENGTH),
        "seq_mean_token_sum": lambda: 1 / rows,
        "prompt_mean": lambda: 1 / (prompts * group_n),
    }[reduction]()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weights_against_plain_numbers(reduction):
    mask, counts = length_mask(LENGTHS), group_tokens(LENGTHS, GROUPS)
    weights = token_weights(
        mask,
        totals_of(LENGTHS, GROUPS),
        reduction=reduction,
        max_length=MAX_LENGTH,
        prompt_tokens=counts,
        dtype=torch.float64,
    )
    for row, n in enumerate(LENGTHS):
        wanted = [0.0] * 6
        if n:
            weight = plain_weight(reduction, n, counts[row].item(), LENGTHS, GROUPS)
            wanted = [weight] * n + [0.0] * (6 - n)
        assert weights[row].tolist() == pytest.approx(wanted, abs=1e-15)


@pytest.mark.parametrize("reduction", ["seq_mean_token_mean", "token_mean", "prompt_mean"])
def test_means_of_a_constant_are_that_constant(reduction):
    weights = token_weights(
        length_mask(LENGTHS),
        totals_of(LENGTHS, GROUPS),
        reduction=reduction,
        prompt_tokens=group_tokens(LENGTHS, GROUPS),
        dtype=torch.float64,
    )
    assert weights.sum().item() == pytest.approx(1.0, abs=1e-14)


CUTS = [[[0, 1, 2, 3, 4, 5]], [[0, 1, 2], [3, 4, 5]], [[4], [2, 0], [5, 3, 1]]]


@pytest.mark.parametrize("reduction", INVARIANT)
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("level", ["token", "sequence", "sequence_token", "sequence_product"])
def test_loss_and_gradients_do_not_depend_on_the_cut(reduction, cut, level):
    mask, counts = length_mask(LENGTHS), group_tokens(LENGTHS, GROUPS)
    advantages = torch.tensor([[1.0], [-0.5], [2.0], [1.0], [-1.0], [0.3]], dtype=torch.float64)
    start = torch.rand(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 2
    results = []
    for parts in (CUTS[0], cut):
        logprobs = start.clone().requires_grad_()
        total = 0.0
        for rows in parts:
            loss = loss_of(
                logprobs[rows],
                mask[rows],
                advantages[rows],
                totals_of(LENGTHS, GROUPS, len(parts)),
                reduction,
                counts[rows],
                level,
            )
            loss.backward()
            total += loss.item()
        results.append((total, logprobs.grad))
    assert results[1][0] == pytest.approx(results[0][0], abs=1e-13)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=0, atol=1e-14)


# E8: lengths 2 and 6, A = +1, -1, ratio 1, L = 8
E8 = {
    "grpo": ("seq_mean_token_mean", "token", 0.0, -1 / 4, 1 / 12),
    "gspo": ("seq_mean_token_mean", "sequence", 0.0, -1 / 4, 1 / 12),
    "dapo": ("token_mean", "token", 0.5, -1 / 8, 1 / 8),
    "dr_grpo": ("seq_mean_token_sum_norm", "token", 0.25, -1 / 16, 1 / 16),
    "luspo": ("seq_mean_token_sum", "sequence", 2.0, -1 / 2, 1 / 2),
}
PLUS_MINUS = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)


@pytest.mark.parametrize("preset", E8)
@pytest.mark.parametrize("cut", [[[0, 1]], [[0], [1]]])
def test_E8_presets_in_one_and_two_microbatches(preset, cut):
    reduction, level, wanted, first, second = E8[preset]
    logprobs, mask = torch.zeros(2, 6, dtype=torch.float64, requires_grad=True), length_mask((2, 6))
    total = 0.0
    for rows in cut:
        totals = totals_of((2, 6), num_microbatches=len(cut))
        loss = loss_of(logprobs[rows], mask[rows], PLUS_MINUS[rows], totals, reduction, level=level)
        loss.backward()
        total += loss.item()
    assert total == pytest.approx(wanted, abs=1e-12)
    assert logprobs.grad[0].tolist() == pytest.approx([first] * 2 + [0.0] * 4, abs=1e-12)
    assert logprobs.grad[1].tolist() == pytest.approx([second] * 6, abs=1e-12)


def test_E8_bnpo_depends_on_the_microbatches_by_definition():
    logprobs, mask = torch.zeros(2, 6, dtype=torch.float64), length_mask((2, 6))
    for cut, wanted in (([[0, 1]], 0.5), ([[0], [1]], 0.0)):
        totals = totals_of((2, 6), num_microbatches=len(cut))
        total = sum(
            loss_of(logprobs[rows], mask[rows], PLUS_MINUS[rows], totals, "local_token_mean").item()
            for rows in cut
        )
        assert total == pytest.approx(wanted, abs=1e-12)


def test_local_token_mean_is_the_mean_over_microbatches_of_their_token_means():
    mask = length_mask((2, 6, 3))
    logprobs = torch.zeros(3, 6, dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([[1.0], [-1.0], [4.0]], dtype=torch.float64)
    totals, total = totals_of((2, 6, 3), num_microbatches=2), 0.0
    for rows in ([0, 1], [2]):
        loss = loss_of(logprobs[rows], mask[rows], advantages[rows], totals, "local_token_mean")
        loss.backward()
        total += loss.item()
    assert total == pytest.approx(((6 - 2) / 8 - 4) / 2, abs=1e-12)
    for row, slope in enumerate((-1 / 16, 1 / 16, -4 / 6)):
        assert logprobs.grad[row][mask[row]].tolist() == pytest.approx(
            [slope] * int(mask[row].sum()), abs=1e-12
        )


@pytest.mark.parametrize(
    ("reduction", "wanted"),
    [("prompt_mean", -0.25), ("token_mean", 0.0), ("seq_mean_token_mean", -1 / 3)],
)
@pytest.mark.parametrize("cut", [[[0, 1, 2]], [[0, 2], [1]], [[0], [1], [2]]])
def test_E9_a_second_prompt(reduction, wanted, cut):
    lengths, groups = (2, 6, 4), (0, 0, 1)
    mask, counts = length_mask(lengths), group_tokens(lengths, groups)
    logprobs = torch.zeros(3, 6, dtype=torch.float64)
    advantages = torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64)
    totals = totals_of(lengths, groups, len(cut))
    total = sum(
        loss_of(
            logprobs[rows], mask[rows], advantages[rows], totals, reduction, counts[rows]
        ).item()
        for rows in cut
    )
    assert total == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    ("reduction", "num_rows", "wanted"),
    [("token_mean", 1, -1.0), ("seq_mean_token_mean", 1, -1.0), ("seq_mean_token_mean", 2, -0.5)],
)
def test_E10_A7b_a_truncated_row_left_out_or_counted(reduction, num_rows, wanted):
    mask = length_mask((2, 6))
    mask[1] = False
    logprobs = torch.zeros(2, 6, dtype=torch.float64)
    totals = StepTotals(num_rows=num_rows, num_tokens=2)
    assert loss_of(logprobs, mask, PLUS_MINUS, totals, reduction).item() == pytest.approx(wanted)


def test_E11_length_example_of_the_course():
    mask = length_mask((4, 7))
    values = torch.full((2, 7), 2.0, dtype=torch.float64, requires_grad=True)
    totals = StepTotals(num_rows=2, num_tokens=11)
    mean = token_weights(mask, totals, reduction="seq_mean_token_mean", dtype=torch.float64)
    rows = (mean * 2 * values).sum(1)
    assert rows.tolist() == pytest.approx([2.0, 2.0])
    rows.sum().backward()
    assert values.grad[0].tolist() == pytest.approx([0.25] * 4 + [0.0] * 3)
    assert values.grad[1].tolist() == pytest.approx([0.142857] * 7, abs=1e-6)
    norm = token_weights(
        mask, totals, reduction="seq_mean_token_sum_norm", max_length=7, dtype=torch.float64
    )
    wanted = masked_normalize(values, mask, 7.0, dim=1)
    torch.testing.assert_close((norm * 2 * values).sum(1), wanted)
    assert wanted.tolist() == pytest.approx([1.142857, 2.0], abs=1e-6)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_A7a_everything_masked_is_exactly_0_with_gradients_of_0(reduction):
    logprobs = torch.full((2, 4), math.nan, requires_grad=True)
    mask = torch.zeros(2, 4, dtype=torch.bool)
    weights = token_weights(
        mask,
        StepTotals(num_rows=0, num_tokens=0, num_microbatches=0),
        reduction=reduction,
        max_length=MAX_LENGTH,
        prompt_tokens=torch.zeros(2, dtype=torch.int64),
    )
    loss = weighted_loss(-logprobs, weights, torch.full((2, 4), math.inf))
    loss.backward()
    assert loss.item() == 0.0
    assert logprobs.grad.tolist() == [[0.0] * 4] * 2


def test_a_correction_weighs_tokens_and_stays_out_off_the_mask():
    weights = torch.tensor([[0.5, 0.25, 0.0]])
    correction = torch.tensor([[2.0, 0.0, math.nan]])
    loss = weighted_loss(torch.tensor([[3.0, 5.0, math.inf]]), weights, correction)
    assert loss.item() == 3.0


def test_a_mask_of_numbers_is_one_of_booleans():
    totals = StepTotals(num_rows=1, num_tokens=2)
    weights = token_weights(torch.tensor([[1, 0, 1]]), totals, reduction="token_mean")
    assert weights.tolist() == [[0.5, 0.0, 0.5]]


def test_counts_have_defaults():
    totals = StepTotals(num_rows=1, num_tokens=2)
    assert (totals.num_microbatches, totals.num_prompts, totals.num_off_policy_tokens) == (1, 0, 0)


def test_missing_arguments_and_unknown_names_are_refused():
    mask, totals = torch.ones(1, 1, dtype=torch.bool), StepTotals(num_rows=1, num_tokens=1)
    with pytest.raises(ValueError, match="seq_mean_token_sum_norm needs max_length"):
        token_weights(mask, totals, reduction="seq_mean_token_sum_norm")
    with pytest.raises(ValueError, match="prompt_mean needs prompt_tokens"):
        token_weights(mask, totals, reduction="prompt_mean")
    with pytest.raises(ValueError, match="unknown reduction 'mean'; expected"):
        token_weights(mask, totals, reduction="mean")
