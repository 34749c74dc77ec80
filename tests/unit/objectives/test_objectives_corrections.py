"""Corrections of the sampler's and the trainer's disagreement, against plain loops."""

from __future__ import annotations

import math

import pytest
import torch

from workings.objectives.corrections import (
    CORRECTION_BOUNDS,
    CORRECTIONS,
    LENGTH_BIASED_CORRECTIONS,
    behaviour_logprobs,
    correction_weights,
    mismatch_ratio,
    truncated_importance,
)
from workings.objectives.logprobs import token_logprobs

ROW_CORRECTIONS = [name for name in CORRECTIONS if name not in ("none", "tis_token", "icepop")]


def weights_of(rho, correction, **bounds):
    """Weights of one row with these ratios, as a list."""
    behaviour = torch.zeros(1, len(rho), dtype=torch.float64)
    old = torch.log(torch.tensor([rho], dtype=torch.float64))
    mask = torch.ones(1, len(rho), dtype=torch.bool)
    return correction_weights(old, behaviour, mask, correction=correction, **bounds)


def test_e19_token_weights():
    assert truncated_importance(torch.tensor([0.5, 1, 4]), cap=2.0).tolist() == [0.5, 1, 2]
    rho = [0.5, 1.0, 4.0]
    for correction, bounds, wanted in [
        ("tis_token", {}, [0.5, 1, 2]),
        ("icepop", {}, [0.5, 1, 4]),
        ("icepop", {"low": 0.5, "high": 2.0}, [0.5, 1, 0]),
    ]:
        got = weights_of(rho, correction, **bounds)
        assert got.weights[0].tolist() == pytest.approx(wanted, abs=1e-12)
        assert got.raw.largest.item() == pytest.approx(4.0)
        assert got.raw.num_outside.item() == (0 if wanted == [0.5, 1, 4] else 1)


def test_e19_a_ratio_on_the_bound_is_kept_in_float32():
    # log 0.25 - log 0.5 in float32 need not be log 0.5 to the last digit.
    for scale in (0.9, 0.7, 0.3, 0.011):
        old = torch.log(torch.tensor([[0.5 * scale, 5.0 * scale]]))
        behaviour = torch.log(torch.tensor([[scale, scale]]))
        got = correction_weights(old, behaviour, torch.ones(1, 2), correction="icepop")
        assert got.weights[0].tolist() == pytest.approx([0.5, 5.0], rel=1e-5)


def constant_gap(lengths=(100, 1000), gap=0.012, dtype=torch.float32):
    """Two answers whose every token differs by 0.012 nats (E20)."""
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    old = torch.full(mask.shape, -1.0, dtype=dtype)
    return old, old - gap, mask


def test_e20_product_grows_with_length_and_the_geometric_mean_does_not():
    old, behaviour, mask = constant_gap(dtype=torch.float64)
    product = correction_weights(old, behaviour, mask, correction="seq_product_mask", cap=1e9)
    assert product.weights[0, 0].item() == pytest.approx(3.320117, abs=1e-6)
    assert product.weights[1, 0].item() == pytest.approx(162755, rel=1e-5)
    geometric = correction_weights(old, behaviour, mask, correction="geometric_truncate")
    assert geometric.weights[0, 0].item() == pytest.approx(1.012072, abs=1e-6)
    assert geometric.weights[1, 0].item() == pytest.approx(1.012072, abs=1e-6)


def share_outside(got):
    return got.raw.num_outside.item() / got.raw.num.item()


def test_a6a_geometric_bounds_of_2_percent_keep_both():
    got = correction_weights(*constant_gap(), correction="geometric_mask", low=0.98, high=1.02)
    assert got.dropped_rows.tolist() == [False, False]
    assert got.weights.eq(1).all()
    assert share_outside(got) == 0.0
    assert got.raw.smallest.item() == pytest.approx(1.012072, abs=1e-6)
    assert got.raw.largest.item() == pytest.approx(1.012072, abs=1e-6)


def test_a6b_geometric_bounds_of_1_percent_drop_both():
    got = correction_weights(*constant_gap(), correction="geometric_mask", low=0.99, high=1.01)
    assert got.dropped_rows.tolist() == [True, True]
    assert got.weights[constant_gap()[2]].count_nonzero() == 0
    assert share_outside(got) == 1.0
    # 0.99 .. 1.01 is also what the mask takes without being told.
    default = correction_weights(*constant_gap(), correction="geometric_mask")
    assert default.dropped_rows.tolist() == [True, True]


def test_a6c_product_with_cap_3_drops_both():
    got = correction_weights(*constant_gap(), correction="seq_product_mask", cap=3.0)
    assert got.dropped_rows.tolist() == [True, True]
    assert share_outside(got) == 1.0
    assert "seq_product_mask" in LENGTH_BIASED_CORRECTIONS
    truncated = correction_weights(*constant_gap(), correction="seq_product_truncate")
    assert truncated.weights[constant_gap()[2]].eq(3).all()
    assert share_outside(truncated) == 1.0


def test_a6d_raw_values_are_those_before_clipping():
    got = correction_weights(*constant_gap(), correction="seq_product_truncate")
    assert got.raw.smallest.item() == pytest.approx(3.320117, rel=1e-4)
    assert got.raw.largest.item() == pytest.approx(162755, rel=1e-3)
    assert got.raw.total.item() == pytest.approx(162755 + 3.32, rel=1e-3)
    got = weights_of([0.5, 1, 4], "tis_token")
    raw = [x.item() for x in (got.raw.smallest, got.raw.total, got.raw.largest, got.raw.num)]
    assert raw == pytest.approx([0.5, 5.5, 4.0, 3])


# E21: logits [1, 0], the first token
@pytest.mark.parametrize(
    ("temperature", "wanted"), [(0.6, -0.173008), (1.0, -0.313262), (1.3, -0.380742)]
)
def test_e21_both_sides_at_the_sampling_temperature(temperature, wanted):
    hidden, head = torch.tensor([[1.0, 0.0]]), torch.eye(2)
    scores = token_logprobs(
        hidden, torch.tensor([0]), head_weight=head, temperature=temperature
    ).logprobs
    assert scores.item() == pytest.approx(wanted, abs=1e-6)
    assert mismatch_ratio(scores, scores).item() == 1.0


def test_e21_mixing_temperatures_shows_as_a_ratio():
    cold, warm = torch.tensor([[-0.173008]]), torch.tensor([[-0.313262]])
    assert mismatch_ratio(cold, warm).item() == pytest.approx(1.1506, abs=1e-4)
    assert mismatch_ratio(warm, cold).item() == pytest.approx(0.8691, abs=1e-4)


def test_kept_mass_is_part_of_the_behaviour():
    sampled = torch.log(torch.tensor([[0.5, 0.25, math.nan]]))
    behaviour = behaviour_logprobs(sampled, torch.tensor([[0.8, 0.5, 1.0]]))
    assert behaviour[0, :2].exp().tolist() == pytest.approx([0.625, 0.5])
    ratio = mismatch_ratio(torch.log(torch.tensor([[0.5, 0.25, 0.1]])), behaviour)
    assert ratio[0].tolist() == pytest.approx([0.8, 0.5, 1.0])


# --- against plain loops ---------------------------------------------------------------------


def plain_row(correction, rho, advantage, gaps, *, cap, low, high, threshold):
    """Weights of a row's trained tokens; a ratio of None is a token without a score."""
    scored = [value for value in rho if value is not None]
    if correction == "none":
        return [1.0] * len(rho)
    if correction == "tis_token":
        return [1.0 if value is None else min(value, cap) for value in rho]
    if correction == "icepop":
        return [1.0 if value is None else value if low <= value <= high else 0.0 for value in rho]
    if not scored:
        return [1.0] * len(rho)
    product = math.prod(scored)
    geometric = product ** (1 / len(scored))
    k3 = sum(value - 1 - math.log(value) for value in scored) / len(scored)
    gap = sum(gaps) / len(gaps)
    kept, dropped = {
        "seq_product_truncate": (min(product, cap), False),
        "seq_product_mask": (product, product > cap),
        "geometric_truncate": (min(geometric, cap), False),
        "geometric_mask": (1.0, not low <= geometric <= high),
        "k3_reject": (1.0, k3 > threshold),
        "off_policy_seq_mask": (1.0, advantage < 0 and gap > threshold),
    }[correction]
    return [0.0 if dropped else 1.0 if value is None else kept for value in rho]


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("seed", range(5))
def test_corrections_against_plain_loops(correction, seed):
    generator = torch.Generator().manual_seed(seed)
    rows, width = 8, 6
    old = -torch.rand(rows, width, dtype=torch.float64, generator=generator)
    noise = torch.randn(rows, width, dtype=torch.float64, generator=generator)
    behaviour = old + noise * 10.0 ** -torch.arange(rows, dtype=torch.float64)[:, None].div(2)
    logprobs = old + 0.3 * torch.randn(rows, width, dtype=torch.float64, generator=generator)
    advantages = torch.randn(rows, 1, dtype=torch.float64, generator=generator)
    mask = torch.rand(rows, width, generator=generator) < 0.8
    behaviour[torch.rand(rows, width, generator=generator) < 0.15] = math.nan
    behaviour[6] = math.nan
    mask[7] = False
    bounds = {"cap": 1.2, "low": 0.9, "high": 1.1, "threshold": 0.01}
    read = {name: bounds[name] for name in CORRECTION_BOUNDS[correction]}
    got = correction_weights(
        old,
        torch.where(mask, behaviour, math.nan),
        mask,
        correction=correction,
        advantages=advantages.expand(rows, width) if seed % 2 else advantages,
        logprobs=torch.where(mask, logprobs, math.inf),
        **read,
    )
    assert not got.weights.requires_grad
    num_unscored, dropped = 0, []
    for row in range(rows):
        tokens = [t for t in range(width) if mask[row, t]]
        unscored = [math.isnan(behaviour[row, t].item()) for t in tokens]
        num_unscored += sum(unscored)
        rho = [
            None if missing else math.exp(old[row, t].item() - behaviour[row, t].item())
            for t, missing in zip(tokens, unscored, strict=True)
        ]
        gaps = [
            behaviour[row, t].item() - logprobs[row, t].item()
            for t, missing in zip(tokens, unscored, strict=True)
            if not missing
        ]
        wanted = plain_row(correction, rho, advantages[row].item(), gaps, **bounds)
        line = [got.weights[row, t].item() for t in tokens]
        assert line == pytest.approx(wanted, abs=1e-9)
        dropped.append(bool(tokens) and not any(wanted))
        others = got.weights[row, ~mask[row]]
        assert others.eq(1).all()
    assert got.num_unscored.item() == num_unscored
    assert got.dropped_rows.tolist() == dropped
    if correction in ROW_CORRECTIONS:
        assert got.raw.num_outside.item() >= sum(dropped)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_unscored_tokens_weigh_one_and_are_counted(correction):
    old = torch.tensor([[-1.0, -2.0], [-1.0, -1.0]], requires_grad=True)
    got = correction_weights(
        old,
        torch.tensor([[math.nan, math.nan], [-1.0, math.nan]]),
        torch.ones(2, 2, dtype=torch.bool),
        correction=correction,
        advantages=-torch.ones(2, 1),
        logprobs=old,
        threshold=0.5 if "threshold" in CORRECTION_BOUNDS[correction] else None,
    )
    assert got.weights.tolist() == [[1, 1], [1, 1]]
    assert got.num_unscored.item() == 3
    assert got.raw.num.item() == 1
    assert not got.weights.requires_grad


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("trash", [math.nan, math.inf, -math.inf])
def test_all_masked(correction, trash):
    values = torch.full((2, 3), trash)
    got = correction_weights(
        values,
        -values,
        torch.zeros(2, 3, dtype=torch.bool),
        correction=correction,
        advantages=values[:, :1],
        logprobs=values,
        threshold=0.5 if "threshold" in CORRECTION_BOUNDS[correction] else None,
    )
    assert got.weights.eq(1).all()
    assert got.dropped_rows.tolist() == [False, False]
    counts = [got.num_unscored, got.raw.num, got.raw.num_outside, got.raw.total]
    assert [count.item() for count in counts] == [0, 0, 0, 0]
    assert (got.raw.smallest.item(), got.raw.largest.item()) == (math.inf, -math.inf)


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("gap", [100.0, -100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_huge_gaps_stay_finite(correction, gap, dtype):
    got = correction_weights(
        torch.full((1, 50), -110.0 + gap, dtype=dtype),
        torch.full((1, 50), -110.0, dtype=dtype),
        torch.ones(1, 50, dtype=torch.bool),
        correction=correction,
        advantages=-torch.ones(1, 1, dtype=dtype),
        logprobs=torch.full((1, 50), -110.0 + gap, dtype=dtype),
        threshold=0.5 if "threshold" in CORRECTION_BOUNDS[correction] else None,
    )
    assert torch.isfinite(got.weights).all()
    assert torch.isfinite(got.raw.total)
    assert got.weights.dtype == torch.float32


def test_an_off_policy_row_is_dropped_only_when_its_advantage_is_negative():
    old = behaviour = torch.full((3, 2), -1.0)
    current = torch.tensor([[-3.0, -1.0], [-3.0, -1.0], [-1.5, -1.0]])
    got = correction_weights(
        old,
        behaviour,
        torch.ones(3, 2, dtype=torch.bool),
        correction="off_policy_seq_mask",
        threshold=0.5,
        advantages=torch.tensor([[-1.0], [1.0], [-1.0]]),
        logprobs=current,
    )
    assert got.dropped_rows.tolist() == [True, False, False]
    assert got.weights.tolist() == [[0, 0], [1, 1], [1, 1]]
    assert got.raw.largest.item() == pytest.approx(1.0)


def test_default_bounds_are_those_of_the_reference():
    assert set(CORRECTION_BOUNDS) == set(CORRECTIONS)
    assert CORRECTION_BOUNDS["tis_token"] == {"cap": 2.0}
    assert CORRECTION_BOUNDS["icepop"] == {"low": 0.5, "high": 5.0}
    assert CORRECTION_BOUNDS["seq_product_mask"] == {"cap": 3.0}
    assert CORRECTION_BOUNDS["geometric_mask"] == {"low": 0.99, "high": 1.01}
    assert CORRECTION_BOUNDS["k3_reject"] == {"threshold": 0.01}


def test_bad_settings_say_what_came():
    with pytest.raises(ValueError, match="unknown correction 'tis'; expected none, tis_token"):
        weights_of([1.0], "tis")
    with pytest.raises(ValueError, match=r"cap=2\.0 was given, .* 'icepop' does not read it"):
        weights_of([1.0], "icepop", cap=2.0)
    with pytest.raises(ValueError, match=r"low=1 was given, .* it reads no bound"):
        weights_of([1.0], "none", low=1)
    with pytest.raises(ValueError, match="'off_policy_seq_mask' needs threshold"):
        weights_of([1.0], "off_policy_seq_mask")
    with pytest.raises(ValueError, match="needs advantages and logprobs"):
        weights_of([1.0], "off_policy_seq_mask", threshold=1.0)
