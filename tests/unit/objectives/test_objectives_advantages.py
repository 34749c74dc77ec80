"""Advantages: the worked examples, and every estimator against plain loops in float64."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import statistics

import pytest
import torch

from workings.objectives.advantages import (
    ESTIMATORS,
    SINGLE_SAMPLE_ESTIMATORS,
    group_advantages,
    has_spread,
)
from workings.objectives.component_advantages import combined_components, gdpo_advantages
from workings.objectives.group_statistics import group_statistics
from workings.objectives.role_averages import RoleAverages
from workings.objectives.token_advantages import (
    optimal_token_baseline_advantages,
    reinforce_pp_advantages,
    token_returns,
)
from workings.objectives.whitening import step_std, whiten

GROUP_ESTIMATORS = [name for name in ESTIMATORS if name not in SINGLE_SAMPLE_ESTIMATORS]


def table(rows):
    return torch.tensor(rows, dtype=torch.float64)


def advantages(rows, estimator, **options):
    """As lists, with lengths of 5 where they are needed and not given."""
    rewards = table(rows)
    if estimator in ("opo", "reinforce_pp_baseline"):
        options.setdefault("lengths", torch.full(rewards.shape, 5))
    if estimator in ("remax", "rae"):
        options.setdefault("baselines", torch.zeros(len(rows)))
    return group_advantages(rewards, estimator=estimator, **options).tolist()


# --- worked examples -------------------------------------------------------------------------


# E12, E13, E15
@pytest.mark.parametrize(
    ("estimator", "eps", "rewards", "expected"),
    [
        ("group", 1e-6, [1, 0, 0, 1], [0.866024, -0.866024, -0.866024, 0.866024]),
        ("group", 1e-6, [1, 0, 0, 0], [1.499997, -0.499999, -0.499999, -0.499999]),
        ("group", 1e-4, [1, 0, 0, 0], [1.499700, -0.499900, -0.499900, -0.499900]),
        ("group_mean", 1e-6, [1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]),
        ("rloo", 1e-6, [1, 0, 0, 0], [1, -1 / 3, -1 / 3, -1 / 3]),
        ("maxrl", 1e-6, [1, 0, 0, 0], [3, -1, -1, -1]),
        ("pass_k", 1e-6, [1, 0.4, 0.2], [1.441150, 0, 0]),
        ("raw", 1e-6, [1, 0, 0, 0], [1, 0, 0, 0]),
    ],
)
def test_e12_e13_e15(estimator, eps, rewards, expected):
    assert advantages([rewards], estimator, eps=eps)[0] == pytest.approx(expected, abs=1e-6)


def test_e12_a_biased_std_fails():
    biased = 0.5 / (statistics.pstdev([1, 0, 0, 1]) + 1e-6)
    assert biased == pytest.approx(0.999998, abs=1e-6)
    assert abs(advantages([[1, 0, 0, 1]], "group")[0][0] - biased) > 0.1


def test_e14_opo():
    got = advantages([[1, 0]], "opo", lengths=torch.tensor([[2, 6]]))
    assert got[0] == pytest.approx([0.75, -0.25], abs=1e-12)


@pytest.mark.parametrize("length", [1, 5, 1000])
def test_e16_statistics_of_the_step(length):
    rewards = [[1, 0], [1, 1]]
    got = advantages(rewards, "group_mean_batch_std")
    assert got[0] == pytest.approx([1, -1], abs=1e-5)
    assert got[1] == [0, 0]
    lengths = torch.full((2, 2), length)
    got = advantages(rewards, "reinforce_pp_baseline", lengths=lengths)
    assert got[0] == pytest.approx([1.224745, -1.224745], abs=1e-6)
    assert got[1] == [0, 0]
    plain = whiten(table(rewards), lengths).flatten().tolist()
    assert plain == pytest.approx([0.5, -1.5, 0.5, 0.5], abs=1e-6)


def test_e17_gpg():
    got = advantages([[1, 0, 0, 0], [1, 1, 0, 0]], "gpg")
    assert got[0] == pytest.approx([2, -2 / 3, -2 / 3, -2 / 3], abs=1e-9)
    assert got[1] == pytest.approx([4 / 3, 4 / 3, -4 / 3, -4 / 3], abs=1e-9)
    halved = advantages([[1, 0, 0, 0], [1, 1, 0, 0]], "gpg", gpg_norm=2.0)
    assert halved[0][0] == pytest.approx(1.0)


def test_e18_gdpo_normalises_before_it_adds():
    components = table([[[1, 0, 0, 0]], [[0, 0, 1, 1]]])
    combined = combined_components(components, torch.ones(2))
    expected = [0.633973, -1.366023, 0.366025, 0.366025]
    assert combined[0].tolist() == pytest.approx(expected, abs=2e-6)
    summed = advantages([[1, 0, 1, 1]], "group")[0]
    assert summed == pytest.approx([0.5, -1.5, 0.5, 0.5], abs=5e-6)
    white = gdpo_advantages(components, torch.ones(2))[0].tolist()
    spread = statistics.stdev(expected)
    assert white == pytest.approx([value / spread for value in expected], abs=1e-5)


# LUFFY's closed forms: teacher right, k of 7 own rows right (luffy.md, 1.3)
@pytest.mark.parametrize("num_right", range(8))
def test_teacher_in_the_union_pool(num_right):
    rewards = [[1.0] * num_right + [0.0] * (7 - num_right) + [1.0]]
    got = advantages(rewards, "group_mean")[0]
    assert got[-1] == pytest.approx((7 - num_right) / 8, abs=1e-12)
    assert got[:num_right] == pytest.approx([(7 - num_right) / 8] * num_right, abs=1e-12)
    wrong = [-(num_right + 1) / 8] * (7 - num_right)
    assert got[num_right:7] == pytest.approx(wrong, abs=1e-12)
    if num_right == 0:
        got = advantages(rewards, "group")[0]
        assert got[-1] == pytest.approx(2.474867, abs=1e-6)
        assert got[0] == pytest.approx(-0.353552, abs=1e-6)


@pytest.mark.parametrize("num_right", range(8))
def test_teacher_outside_the_on_policy_pool(num_right):
    own = [1.0] * num_right + [0.0] * (7 - num_right)
    counted = torch.tensor([[True] * 7 + [False]])
    mean, std = statistics.fmean(own), statistics.stdev(own)
    got = advantages([[*own, 1.0]], "group_mean", counted=counted)[0]
    assert got == pytest.approx([reward - mean for reward in [*own, 1.0]], abs=1e-12)
    got = advantages([[*own, 1.0]], "group", counted=counted)[0]
    # A standard deviation of 0 is replaced by 1 in this pool.
    scale = (std or 1.0) + 1e-6
    assert got == pytest.approx([(reward - mean) / scale for reward in [*own, 1.0]], abs=1e-12)
    if num_right in (0, 7):
        assert got[:7] == [0.0] * 7


def test_one_sample_in_the_pool_gives_zero_to_all():
    counted = torch.tensor([[True, False, False]])
    for estimator in ("group", "group_mean", "rloo"):
        assert advantages([[0, 1, 1]], estimator, counted=counted) == [[0, 0, 0]]


# --- against plain loops ---------------------------------------------------------------------


def plain_group(estimator, rows, *, eps, lengths, baselines):
    """The definitions, one number at a time; None is an unusable reward."""
    usable = [[value for value in row if value is not None] for row in rows]
    everything = [value for row in usable for value in row]
    result = []
    for number, row in enumerate(rows):
        values, line = usable[number], []
        for column, reward in enumerate(row):
            if reward is None:
                line.append(0.0)
                continue
            if estimator == "raw":
                line.append(reward)
                continue
            if estimator in ("remax", "rae"):
                line.append(reward - baselines[number])
                continue
            if len(values) < 2:
                line.append(0.0)
                continue
            mean, std = statistics.fmean(values), statistics.stdev(values)
            others = list(values)
            others.remove(reward)
            ranked = sorted(values, reverse=True)
            if estimator == "group":
                value = (reward - mean) / (std + eps)
            elif estimator == "group_mean":
                value = reward - mean
            elif estimator == "group_mean_batch_std":
                value = (reward - mean) / (statistics.stdev(everything) + eps)
            elif estimator == "rloo":
                value = reward - statistics.fmean(others)
            elif estimator == "opo":
                pairs = [(n, r) for n, r in zip(lengths[number], row, strict=True) if r is not None]
                value = reward - sum(n * r for n, r in pairs) / sum(n for n, _ in pairs)
            elif estimator == "maxrl":
                value = (reward - mean) / mean if mean else 0.0
            elif estimator == "pass_k":
                best = reward == ranked[0]
                value = (ranked[0] - ranked[1]) / (std + eps) if best else 0.0
            elif estimator == "gpg":
                scale = len(everything) / sum(value != 0 for value in everything)
                value = scale * (reward - mean)
            else:
                value = plain_reinforce_pp_baseline(rows, lengths, number, column)
            line.append(value)
        result.append(line)
    return result


def plain_reinforce_pp_baseline(rows, lengths, number, column):
    """Whitening of the centred rewards, each as often as its row has tokens."""
    entries = {}
    for i, row in enumerate(rows):
        values = [value for value in row if value is not None]
        if len(values) > 1:
            for j, value in enumerate(row):
                if value is not None:
                    entries[i, j] = (lengths[i][j], value - statistics.fmean(values))
    total = sum(weight for weight, _ in entries.values())
    squares = sum(weight**2 for weight, _ in entries.values())
    mean = sum(weight * value for weight, value in entries.values()) / total
    scatter = sum(weight * (value - mean) ** 2 for weight, value in entries.values())
    variance = scatter / (total - squares / total)
    return (entries[number, column][1] - mean) / math.sqrt(variance + 1e-8)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("seed", range(4))
def test_estimators_against_plain_loops(estimator, seed):
    generator = random.Random(seed)
    rows = [[generator.uniform(0, 2) for _ in range(5)] for _ in range(6)]
    rows[1][2] = None
    rows[3] = [None, 0.7, None, None, None]
    rows[4] = [None] * 5
    lengths = [[generator.randint(1, 9) for _ in range(5)] for _ in range(6)]
    baselines = [generator.uniform(0, 1) for _ in range(6)]
    wanted = plain_group(estimator, rows, eps=1e-3, lengths=lengths, baselines=baselines)
    got = group_advantages(
        table([[math.nan if v is None else v for v in row] for row in rows]),
        torch.tensor([[v is not None for v in row] for row in rows]),
        estimator=estimator,
        eps=1e-3,
        lengths=torch.tensor(lengths),
        baselines=table(baselines),
    )
    for line, expected in zip(got.tolist(), wanted, strict=True):
        assert line == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("estimator", ["group_mean_batch_std", "gpg", "reinforce_pp_baseline"])
def test_statistics_of_the_step_run_over_ranks(estimator):
    rewards = torch.rand(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    rewards[0, 0] = 0
    lengths = torch.arange(1, 25).reshape(6, 4)
    whole = group_advantages(rewards, estimator=estimator, lengths=lengths)
    parts = over_two_ranks(
        lambda rows, reduce: group_advantages(
            rewards[rows], estimator=estimator, lengths=lengths[rows], reduce=reduce
        ),
        [slice(0, 1), slice(1, 6)],
    )
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-12)


def over_two_ranks(function, shares):
    """What each rank gets, with `reduce` summing what both sent at the same call.

    The calls of the ranks depend on earlier sums, so the ranks are played again until no call is
    missing: pass n fixes the sum of call n.
    """
    sums: list[torch.Tensor] = []
    while True:
        sent: list[list[torch.Tensor]] = []
        results = []
        for share in shares:
            mine: list[torch.Tensor] = []

            def reduce(values, mine=mine):
                assert values.ndim == 1
                assert values.dtype == torch.float64
                mine.append(values)
                return sums[len(mine) - 1] if len(mine) <= len(sums) else values

            results.append(function(share, reduce))
            sent.append(mine)
        assert len({len(mine) for mine in sent}) == 1
        if len(sums) == len(sent[0]):
            return results
        sums.append(torch.stack([mine[len(sums)] for mine in sent]).sum(0))


def test_the_order_of_groups_and_samples_does_not_matter():
    generator = torch.Generator().manual_seed(5)
    rewards = torch.rand(4, 5, dtype=torch.float64, generator=generator)
    lengths = torch.randint(1, 9, (4, 5), generator=generator)
    rows, columns = torch.tensor([2, 0, 3, 1]), torch.tensor([4, 1, 0, 3, 2])
    for estimator in GROUP_ESTIMATORS:
        whole = group_advantages(rewards, estimator=estimator, lengths=lengths)
        moved = group_advantages(
            rewards[rows][:, columns], estimator=estimator, lengths=lengths[rows][:, columns]
        )
        torch.testing.assert_close(moved, whole[rows][:, columns], rtol=0, atol=1e-12)


# --- edge cases ------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", GROUP_ESTIMATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_zero_std_is_exactly_zero(estimator, dtype):
    rewards = torch.tensor([[0.1] * 7, [0.7] * 7], dtype=dtype)
    lengths = torch.arange(1, 15).reshape(2, 7)
    got = group_advantages(rewards, estimator=estimator, eps=0.0, lengths=lengths)
    assert got.count_nonzero() == 0
    # Also beside a group that has a spread and moves the mean of the step.
    rewards = torch.tensor([[0.1] * 7, [0.7] + [0.0] * 6], dtype=dtype)
    got = group_advantages(rewards, estimator=estimator, lengths=lengths)
    assert got[0].count_nonzero() == 0
    assert got[1].count_nonzero() > 0
    assert torch.isfinite(got).all()


@pytest.mark.parametrize("estimator", GROUP_ESTIMATORS)
def test_group_of_one_is_refused_and_a_group_left_with_one_gets_zero(estimator):
    with pytest.raises(ValueError, match=f"'{estimator}' compares the samples of one prompt"):
        advantages([[1.0], [0.0]], estimator)
    valid = torch.tensor([[True, False, False], [True, True, True]])
    got = advantages([[1.0, 5.0, math.nan], [1.0, 0.0, 0.0]], estimator, valid=valid)
    assert got[0] == [0.0, 0.0, 0.0]
    assert got[1][0] > 0


@pytest.mark.parametrize("estimator", sorted(SINGLE_SAMPLE_ESTIMATORS))
def test_estimators_without_a_group_take_single_samples(estimator):
    got = advantages([[1.0], [0.5]], estimator, baselines=torch.tensor([0.25, 0.25]))
    shift = 0.0 if estimator == "raw" else 0.25
    assert got == [[1.0 - shift], [0.5 - shift]]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_none_rewards_leave_before_the_statistics(estimator):
    """A dropped sample changes nothing for the others, whatever stands in its place."""
    full = [[1.0, 0.0, 0.5], [0.25, 0.75, 0.0]]
    alone = advantages(full, estimator)
    for trash in (math.nan, math.inf, 1e30):
        valid = torch.tensor([[True, True, True, False], [True, False, True, True]])
        rows = [[1.0, 0.0, 0.5, trash], [0.25, trash, 0.75, 0.0]]
        got = advantages(rows, estimator, valid=valid)
        assert got[0][:3] == pytest.approx(alone[0], abs=1e-12)
        assert [got[1][0], *got[1][2:]] == pytest.approx(alone[1], abs=1e-12)
        assert got[0][3] == got[1][1] == 0.0


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_step_without_any_reward_gives_zeros(estimator):
    got = advantages([[math.nan] * 2] * 3, estimator, valid=torch.zeros(3, 2, dtype=torch.bool))
    assert got == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_rewards_name_their_place(value):
    with pytest.raises(ValueError, match=f"reward of group 1, sample 2 is {value}"):
        group_advantages(torch.tensor([[0.0, 1, 2], [0, 1, value]]))
    components = torch.tensor([[[0.0, 1.0]], [[0.0, value]]])
    with pytest.raises(ValueError, match=f"component 1: reward of group 0, sample 1 is {value}"):
        gdpo_advantages(components, torch.ones(2))
    with pytest.raises(ValueError, match=f"reward of row 1 is {value}"):
        token_returns(torch.tensor([0.0, value]), torch.ones(2, 3, dtype=torch.bool))
    penalties = torch.tensor([[0.0, 0.0], [0.0, value]])
    with pytest.raises(ValueError, match=f"penalty of row 1, token 1 is {value}"):
        token_returns(torch.zeros(2), torch.ones(2, 2, dtype=torch.bool), penalties)
    with pytest.raises(ValueError, match=f"baseline of group 0 is {value}"):
        advantages([[1.0]], "remax", baselines=torch.tensor([value]))
    with pytest.raises(ValueError, match=f"reward of group 0, sample 0 is {value}"):
        RoleAverages().updated(torch.tensor([[value]]), ["a"])


def test_bad_input_says_what_came():
    rewards = torch.ones(2, 3)
    with pytest.raises(ValueError, match="unknown estimator 'grup'; expected raw, group"):
        group_advantages(rewards, estimator="grup")
    with pytest.raises(ValueError, match=r"shape \(3,\); expected \[groups, samples\]"):
        group_advantages(torch.ones(3))
    with pytest.raises(ValueError, match=r"counted has shape \(2,\)"):
        group_advantages(rewards, counted=torch.ones(2))
    with pytest.raises(ValueError, match=r"valid has shape \(2, 1\)"):
        group_advantages(rewards, torch.ones(2, 1))
    for estimator in ("opo", "reinforce_pp_baseline"):
        with pytest.raises(ValueError, match=f"lengths: none; the advantage '{estimator}'"):
            group_advantages(rewards, estimator=estimator)
    with pytest.raises(ValueError, match=r"baselines: shape \(3,\); .* one per group, \[2\]"):
        group_advantages(rewards, estimator="remax", baselines=torch.ones(3))
    with pytest.raises(ValueError, match="counted was given, but the advantage 'pass_k'"):
        group_advantages(rewards, estimator="pass_k", counted=torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"group 1 have mean -0.5; maxrl divides"):
        group_advantages(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), estimator="maxrl")
    with pytest.raises(ValueError, match=r"weights \(3,\)"):
        gdpo_advantages(torch.ones(2, 1, 2), torch.ones(3))
    with pytest.raises(ValueError, match=r"lengths have shape \(2,\)"):
        gdpo_advantages(torch.ones(2, 1, 2), torch.ones(2), lengths=torch.ones(2))
    with pytest.raises(ValueError, match=r"values have shape \(2,\), weights \(3,\)"):
        whiten(torch.ones(2), torch.ones(3))


def test_maxrl_with_a_mean_of_zero_gives_zero():
    assert advantages([[0.1, -0.1, 0.2, -0.2]], "maxrl") == [[0, 0, 0, 0]]


def test_pass_k_with_a_tie_at_the_top_gives_zero():
    assert advantages([[1, 1, 0]], "pass_k") == [[0, 0, 0]]


def test_gpg_scale_counts_only_usable_samples():
    valid = torch.tensor([[True, True, True, True, False]])
    got = advantages([[1, 0, 0, 0, 9]], "gpg", valid=valid)
    assert got[0] == pytest.approx([3, -1, -1, -1, 0], abs=1e-12)


def test_dtype_of_the_result():
    for dtype, wanted in [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
    ]:
        for estimator in ("raw", "group", "rloo"):
            got = group_advantages(torch.tensor([[1, 0]], dtype=dtype), estimator=estimator)
            assert got.dtype == wanted


# --- whitening -------------------------------------------------------------------------------


def plain_whiten(values, eps=1e-8):
    mean = statistics.fmean(values)
    return [(value - mean) / math.sqrt(statistics.variance(values) + eps) for value in values]


def test_whitening_of_tokens_is_ddof_1_and_ignores_what_is_masked():
    values = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mask = torch.arange(5)[None] < torch.tensor([5, 0, 2])[:, None]
    wanted = plain_whiten(values[mask].tolist())
    values[~mask] = math.nan
    got = whiten(values, mask)
    assert got[mask].tolist() == pytest.approx(wanted, abs=1e-12)
    assert got[~mask].count_nonzero() == 0


def test_whitening_runs_over_ranks_also_an_empty_one():
    values = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[0] = False
    parts = over_two_ranks(
        lambda rows, reduce: whiten(values[rows], mask[rows], reduce=reduce),
        [slice(0, 1), slice(1, 4)],
    )
    torch.testing.assert_close(torch.cat(parts), whiten(values, mask), rtol=0, atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6, -1 / 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whitening_of_equal_values_or_one_token_is_exactly_zero(value, dtype):
    values = torch.full((3, 7), value, dtype=dtype)
    assert whiten(values, torch.ones(3, 7, dtype=torch.bool)).count_nonzero() == 0
    assert step_std(values, torch.ones(3, 7, dtype=torch.bool)).item() == 0
    one = torch.zeros(3, 7, dtype=torch.bool)
    assert whiten(values, one).count_nonzero() == 0
    one[1, 2] = True
    assert whiten(values, one).count_nonzero() == 0


def test_step_std_is_unbiased():
    values, included = table([1.0, 5.0, 3.0, 99.0]), torch.tensor([True, True, True, False])
    assert step_std(values, included).item() == pytest.approx(statistics.stdev([1, 5, 3]))


# --- several reward functions ----------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_gdpo_against_plain_loops(weighted):
    generator = random.Random(7)
    components = [[[generator.random() for _ in range(4)] for _ in range(3)] for _ in range(2)]
    components[1][2] = [0.3] * 4
    weights = [1.0, 0.25]
    lengths = [[generator.randint(1, 9) for _ in range(4)] for _ in range(3)]
    combined, counts = [], []
    for group in range(3):
        for sample in range(4):
            total = 0.0
            for component, weight in zip(components, weights, strict=True):
                row = component[group]
                std = statistics.stdev(row)
                if std > 1e-12:
                    total += weight * (row[sample] - statistics.fmean(row)) / (std + 1e-6)
            combined.append(total)
            counts.append(lengths[group][sample] if weighted else 1)
    size, squares = sum(counts), sum(n * n for n in counts)
    mean = sum(n * v for n, v in zip(counts, combined, strict=True)) / size
    scatter = sum(n * (v - mean) ** 2 for n, v in zip(counts, combined, strict=True))
    scale = math.sqrt(scatter / (size - squares / size) + 1e-8)
    got = gdpo_advantages(
        torch.tensor(components, dtype=torch.float64),
        table(weights),
        lengths=torch.tensor(lengths) if weighted else None,
    )
    wanted = [(value - mean) / scale for value in combined]
    assert got.flatten().tolist() == pytest.approx(wanted, abs=1e-9)


def test_gdpo_edges():
    components = table([[[1, 0, 0], [1, 1, 1], [1, 0, 0]], [[0, 0, 1], [2, 2, 2], [0, 5, 9]]])
    valid = torch.tensor([[True] * 3, [True] * 3, [True, False, False]])
    got = gdpo_advantages(components, torch.tensor([1.0, 3.0]), valid)
    assert got[0].count_nonzero() == 3
    assert got[1:].count_nonzero() == 0
    with pytest.raises(ValueError, match="component 0: groups of 1 sample"):
        gdpo_advantages(torch.ones(2, 3, 1), torch.ones(2))


# --- tokens ----------------------------------------------------------------------------------


def plain_returns(reward, mask, penalties, discount):
    trained = [t for t, keep in enumerate(mask) if keep]
    result = [0.0] * len(mask)
    for i, t in enumerate(trained):
        for later, s in enumerate(trained[i:]):
            gain = -penalties[s] + (reward if s == trained[-1] else 0.0)
            result[t] += discount**later * gain
    return result


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.25])
@pytest.mark.parametrize("width", [1, 2, 7, 8, 13])
def test_returns_against_plain_loops(discount, width):
    generator = torch.Generator().manual_seed(width)
    mask = torch.rand(5, width, generator=generator) < 0.7
    mask[4] = False
    rewards = torch.randn(5, dtype=torch.float64, generator=generator)
    penalties = torch.randn(5, width, dtype=torch.float64, generator=generator)
    wanted = [
        plain_returns(r, m, p, discount)
        for r, m, p in zip(rewards.tolist(), mask.tolist(), penalties.tolist(), strict=True)
    ]
    rewards[4] = math.nan
    penalties[~mask] = math.inf
    got = token_returns(rewards, mask, penalties, discount)
    for line, expected in zip(got.tolist(), wanted, strict=True):
        assert line == pytest.approx(expected, abs=1e-12)


def test_reinforce_pp_whitens_returns_over_the_step():
    rewards = table([1.0, 0.0, 1.0])
    mask = torch.arange(4)[None] < torch.tensor([2, 4, 0])[:, None]
    penalties = 0.1 * torch.arange(12, dtype=torch.float64).reshape(3, 4)
    returns = [
        plain_returns(r, m, p, 0.9)
        for r, m, p in zip(rewards.tolist(), mask.tolist(), penalties.tolist(), strict=True)
    ]
    wanted = plain_whiten(returns[0][:2] + returns[1])
    got = reinforce_pp_advantages(rewards, mask, penalties, discount=0.9)
    assert got[mask].tolist() == pytest.approx(wanted, abs=1e-9)
    assert got[~mask].count_nonzero() == 0
    # Equal rewards and no KL: equal returns, so nothing to learn.
    assert reinforce_pp_advantages(torch.full((3,), 0.1), mask).count_nonzero() == 0


def test_returns_refuse_bad_shapes_and_discounts():
    with pytest.raises(ValueError, match=r"expected \[rows\] and \[rows, tokens\]"):
        token_returns(torch.ones(2), torch.ones(3, 4))
    for discount in (0.0, 1.5):
        with pytest.raises(ValueError, match=f"discount={discount}"):
            token_returns(torch.ones(1), torch.ones(1, 2), discount=discount)


def test_optimal_token_baseline_against_plain_loops():
    generator = torch.Generator().manual_seed(9)
    groups, samples, width = 2, 3, 5
    probabilities = torch.rand(groups, samples, width, 6, dtype=torch.float64, generator=generator)
    probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    squares = probabilities.square().sum(-1)
    chosen = probabilities[..., 0]
    returns = torch.randn(groups, samples, width, dtype=torch.float64, generator=generator)
    mask = torch.arange(width) < torch.tensor([[5, 3, 1], [2, 2, 0]])[..., None]
    got = optimal_token_baseline_advantages(returns, mask, chosen.log(), squares)
    for g in range(groups):
        for t in range(width):
            rows = [s for s in range(samples) if mask[g, s, t]]
            energy = {
                s: sum(
                    1 - 2 * chosen[g, s, u].item() + squares[g, s, u].item() for u in range(t + 1)
                )
                for s in rows
            }
            for s in range(samples):
                if s not in rows:
                    assert got[g, s, t] == 0
                    continue
                top = sum(returns[g, other, t].item() * energy[other] for other in rows)
                wanted = returns[g, s, t].item() - top / sum(energy.values())
                assert got[g, s, t].item() == pytest.approx(wanted, abs=1e-12)
                if len(rows) == 1:
                    assert got[g, s, t] == 0
    with pytest.raises(ValueError, match="two samples or more"):
        optimal_token_baseline_advantages(
            returns[:, :1], mask[:, :1], chosen[:, :1], squares[:, :1]
        )


def test_optimal_token_baseline_edges():
    ones = torch.ones(1, 3, 2, dtype=torch.bool)
    flat = torch.full((1, 3, 2), 0.1)
    squares = torch.rand(1, 3, 2, generator=torch.Generator().manual_seed(0))
    got = optimal_token_baseline_advantages(flat, ones, torch.full((1, 3, 2), -1.0), squares)
    assert got.count_nonzero() == 0
    # Every token certain: no energy, and the plain mean is the baseline.
    returns = torch.tensor([[[1.0, 1.0], [0.0, 0.0], [0.5, 0.5]]])
    got = optimal_token_baseline_advantages(
        returns, ones, torch.zeros(1, 3, 2), torch.ones(1, 3, 2)
    )
    torch.testing.assert_close(got, returns - 0.5)


# --- roles and counts ------------------------------------------------------------------------


def test_role_averages_against_a_plain_loop_and_through_a_checkpoint():
    generator = random.Random(1)
    state, plain = RoleAverages(decay=0.9), {}
    for _ in range(5):
        roles = [generator.choice(["solver", "judge"]) for _ in range(4)]
        rewards = [[generator.random() for _ in range(3)] for _ in range(4)]
        got = group_advantages(
            table(rewards), estimator="rae", baselines=state.baselines(roles)
        ).tolist()
        for role, row, line in zip(roles, rewards, got, strict=True):
            assert line == pytest.approx([r - plain.get(role, 0.0) for r in row], abs=1e-12)
        for role in set(roles):
            seen = [
                r for name, row in zip(roles, rewards, strict=True) if name == role for r in row
            ]
            plain[role] = 0.9 * plain.get(role, 0.0) + 0.1 * statistics.fmean(seen)
        state = state.updated(table(rewards), roles)
        assert dict(state.values) == pytest.approx(plain, abs=1e-12)
        state = RoleAverages(**json.loads(json.dumps(dataclasses.asdict(state))))
    unchanged = state.updated(torch.tensor([[math.nan]]), ["solver"], torch.tensor([[False]]))
    assert unchanged == state


def test_role_averages_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"shape \(2, 3\) for 1 roles"):
        RoleAverages().updated(torch.ones(2, 3), ["a"])
    with pytest.raises(ValueError, match=r"decay=1\.0"):
        RoleAverages(decay=1.0)


def test_group_statistics():
    rewards = torch.tensor(
        [[1.0, 1, 1], [0, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 1], [9, 9, 9], [0.5, 0.5, 0.5]]
    )
    valid = torch.ones(7, 3, dtype=torch.bool)
    valid[3, 1:] = False
    valid[4, 0] = False
    valid[5] = False
    counts = group_statistics(rewards, valid)
    assert (counts.usable, counts.single, counts.empty) == (6, 1, 1)
    assert counts.solve_all == 3  # groups 0, 3 (one sample left) and 4
    assert counts.solve_none == 2  # groups 1 and 6
    assert counts.zero_std == 5
    assert counts.frac_reward_zero_std == pytest.approx(5 / 6)
    assert counts.metrics()["solve_all"] == pytest.approx(0.5)
    assert has_spread(rewards, valid).tolist() == [False, False, True] + [False] * 4
    assert group_statistics(rewards, valid, solved_at=0.5).solve_none == 1
    doubled = group_statistics(rewards, valid, reduce=lambda sums: 2 * sums)
    assert doubled.usable == 12
    nothing = group_statistics(rewards, torch.zeros_like(valid))
    assert nothing.frac_reward_zero_std == 0


# --- a pool that leaves samples out ----------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [name for name in GROUP_ESTIMATORS if name != "pass_k"],
)
def test_samples_outside_the_pool_do_not_move_those_inside(estimator):
    generator = torch.Generator().manual_seed(11)
    rewards = torch.rand(3, 5, dtype=torch.float64, generator=generator)
    lengths = torch.randint(1, 9, (3, 5), generator=generator)
    counted = torch.tensor([[True] * 4 + [False]] * 3)
    got = group_advantages(rewards, estimator=estimator, counted=counted, lengths=lengths)
    alone = group_advantages(rewards[:, :4], estimator=estimator, lengths=lengths[:, :4])
    torch.testing.assert_close(got[:, :4], alone, rtol=0, atol=1e-12)
    own = rewards[:, :4]
    if estimator in ("group_mean", "rloo"):
        # To the outsider all of the pool are the others.
        torch.testing.assert_close(got[:, 4], rewards[:, 4] - own.mean(1), rtol=0, atol=1e-12)
    if estimator == "opo":
        weights = lengths[:, :4].double()
        baseline = (weights * own).sum(1) / weights.sum(1)
        torch.testing.assert_close(got[:, 4], rewards[:, 4] - baseline, rtol=0, atol=1e-12)
    if estimator == "reinforce_pp_baseline":
        # The same line as for the pool: one shift and one scale for the whole step.
        centred = rewards - own.mean(1, keepdim=True)
        slope = (got[0, 0] - got[0, 1]) / (centred[0, 0] - centred[0, 1])
        line = got[0, 0] + slope * (centred - centred[0, 0])
        torch.testing.assert_close(got, line, rtol=0, atol=1e-9)
