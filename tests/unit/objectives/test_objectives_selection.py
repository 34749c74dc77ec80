"""Tokens chosen over a whole step: plain loops, and the same choice however the step is cut."""

from __future__ import annotations

import math
import threading

import pytest
import torch

from workings.objectives.selection import (
    clip_cov_tokens,
    high_entropy_tokens,
    kl_cov_tokens,
    token_covariances,
)

LENGTHS = (5, 1, 9, 0, 7, 3)
KEYS = (10, 11, 12, 13, 14, 15)
SHARE = 0.2


def step(lengths=LENGTHS, seed=0):
    """(advantages [B, 1], values [B, T], mask [B, T]) of a step in one piece."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    mask[2, 4] = False
    values = -3 * torch.rand(mask.shape, generator=generator)
    advantages = torch.randn(len(lengths), 1, generator=generator) * 2
    return advantages, values, mask


def covariances_of(advantages, values, masks, **more):
    return token_covariances(advantages, values, masks, **more)


def choose(kind, advantages, values, masks, keys, *, seed=3, **more):
    covariances = token_covariances(advantages, values, masks, **more)
    if kind == "clip_cov":
        bounds = {"low": 0.1, "high": 3.0}
        return clip_cov_tokens(covariances, masks, keys, seed=seed, share=SHARE, **bounds, **more)
    if kind == "kl_cov":
        return kl_cov_tokens(covariances, masks, keys, seed=seed, share=SHARE, **more)
    return high_entropy_tokens([-value for value in values], masks, share=SHARE, **more)


def on_two_ranks(function):
    """[function(rank, gather) for both ranks], each in its thread."""
    barrier = threading.Barrier(2, timeout=30)
    parts, results = [None, None], [None, None]

    def work(rank):
        def gather(values):
            assert values.dim() == 1
            parts[rank] = values
            barrier.wait()
            whole = torch.cat(parts)
            barrier.wait()
            return whole

        results[rank] = function(rank, gather)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert all(result is not None for result in results)
    return results


def plain_covariances(advantages, values, mask):
    tokens = mask.nonzero().tolist()
    worth = [advantages[i, 0].item() for i, _ in tokens]
    value = [values[i, t].item() for i, t in tokens]
    mean_worth, mean_value = math.fsum(worth) / len(tokens), math.fsum(value) / len(tokens)
    return {
        (i, t): (a - mean_worth) * (v - mean_value)
        for (i, t), a, v in zip(tokens, worth, value, strict=True)
    }


def test_covariances_against_plain_loops():
    advantages, values, mask = step()
    (got,) = covariances_of([advantages], [values], [mask])
    wanted = plain_covariances(advantages, values, mask)
    assert got[~mask].count_nonzero() == 0
    for (i, t), value in wanted.items():
        assert got[i, t].item() == pytest.approx(value, abs=1e-12)


def test_covariances_take_advantages_per_token():
    advantages, values, mask = step()
    (by_row,) = covariances_of([advantages], [values], [mask])
    (by_token,) = covariances_of([advantages.expand(mask.shape)], [values], [mask])
    assert torch.equal(by_row, by_token)


@pytest.mark.parametrize("garbage", [math.nan, math.inf])
def test_what_stands_off_the_mask_has_no_effect(garbage):
    advantages, values, mask = step()
    for kind in ("clip_cov", "kl_cov", "entropy"):
        clean = choose(kind, [advantages], [values], [mask], [KEYS])
        dirty = torch.where(mask, values, garbage)
        worth = torch.where(mask, advantages, garbage)
        assert torch.equal(choose(kind, [worth], [dirty], [mask], [KEYS])[0], clean[0])


def test_kl_cov_takes_the_largest():
    advantages, values, mask = step()
    (chosen,) = choose("kl_cov", [advantages], [values], [mask], [KEYS])
    ordered = sorted(plain_covariances(advantages, values, mask).items(), key=lambda x: -x[1])
    count = int(SHARE * int(mask.sum()))
    assert {tuple(place) for place in chosen.nonzero().tolist()} == {k for k, _ in ordered[:count]}


def test_clip_cov_takes_a_share_of_all_tokens_from_the_candidates():
    advantages, values, mask = step()
    plain = plain_covariances(advantages, values, mask)
    candidates = {place for place, value in plain.items() if 0.1 < value < 3.0}
    count = int(SHARE * int(mask.sum()))
    assert len(candidates) > count
    seen = set()
    for seed in range(40):
        (chosen,) = choose("clip_cov", [advantages], [values], [mask], [KEYS], seed=seed)
        places = {tuple(place) for place in chosen.nonzero().tolist()}
        assert len(places) == count
        assert places <= candidates
        seen |= places
    assert seen == candidates


def test_every_candidate_is_as_likely():
    covariances = [torch.full((4, 50), 2.0, dtype=torch.float64)]
    mask = [torch.ones(4, 50, dtype=torch.bool)]
    counts = torch.zeros(4, 50)
    for seed in range(400):
        counts += clip_cov_tokens(covariances, mask, [range(4)], seed=seed, share=0.1)[0]
    # 40 expected of each, a standard deviation of 6.
    assert counts.sum() == 400 * 20
    assert counts.min() > 15
    assert counts.max() < 66
    assert ((counts - 40).square().mean() / 36).item() == pytest.approx(1, abs=0.4)


def test_fewer_candidates_than_the_share_are_all_taken():
    covariances = torch.zeros(1, 10, dtype=torch.float64)
    covariances[0, [2, 5]] = 1.5
    mask = torch.ones(1, 10, dtype=torch.bool)
    (chosen,) = clip_cov_tokens([covariances], [mask], [[0]], seed=0, share=0.9)
    assert chosen.nonzero()[:, 1].tolist() == [2, 5]
    (none,) = clip_cov_tokens([covariances * 10], [mask], [[0]], seed=0, share=0.9)
    assert none.count_nonzero() == 0


def test_bounds_of_clip_cov_are_exclusive():
    covariances = torch.tensor([[1.0, 1.0001, 4.9999, 5.0]], dtype=torch.float64)
    mask = torch.ones(1, 4, dtype=torch.bool)
    (chosen,) = clip_cov_tokens([covariances], [mask], [[0]], seed=0, share=1.0)
    assert chosen.tolist() == [[False, True, True, False]]


def test_one_token_at_least_and_none_for_a_share_of_0():
    covariances, mask = torch.full((1, 9), 2.0).double(), torch.ones(1, 9, dtype=torch.bool)
    for function in (clip_cov_tokens, kl_cov_tokens):
        assert function([covariances], [mask], [[0]], seed=0, share=2e-4)[0].sum() == 1
        assert function([covariances], [mask], [[0]], seed=0, share=0.0)[0].sum() == 0


def test_a_share_is_not_lost_to_rounding():
    covariances, mask = torch.full((1, 10), 2.0).double(), torch.ones(1, 10, dtype=torch.bool)
    # In floating point 0.29 * 100 is 28.999999999999996.
    assert kl_cov_tokens([covariances], [mask], [[0]], share=0.3)[0].sum() == 3
    wide = covariances.expand(10, 10)
    masks = mask.expand(10, 10)
    assert kl_cov_tokens([wide], [masks], [range(10)], share=0.29)[0].sum() == 29


def test_ties_are_drawn_and_never_exceed_the_share():
    covariances, mask = torch.zeros(3, 20).double(), torch.ones(3, 20, dtype=torch.bool)
    covariances[1, 4] = 1.0
    choices = [
        kl_cov_tokens([covariances], [mask], [(0, 1, 2)], seed=seed, share=0.1)[0]
        for seed in range(3)
    ]
    for chosen in choices:
        assert chosen.sum() == 6
        assert chosen[1, 4]
    assert not torch.equal(choices[0], choices[1])


CUTS = [
    [[0, 1, 2, 3, 4, 5]],
    [[0, 1, 2], [3, 4, 5]],
    [[4], [2, 0], [5, 3, 1]],
    [[5, 4, 3, 2, 1, 0]],
]


@pytest.mark.parametrize("kind", ["clip_cov", "kl_cov", "entropy"])
@pytest.mark.parametrize("cut", CUTS)
def test_the_choice_does_not_depend_on_how_the_step_is_cut(kind, cut):
    advantages, values, mask = step()
    (whole,) = choose(kind, [advantages], [values], [mask], [KEYS])
    parts = choose(
        kind,
        [advantages[rows] for rows in cut],
        [values[rows] for rows in cut],
        [mask[rows] for rows in cut],
        [[KEYS[row] for row in rows] for rows in cut],
    )
    for rows, part in zip(cut, parts, strict=True):
        assert torch.equal(part, whole[rows])


@pytest.mark.parametrize("kind", ["clip_cov", "kl_cov", "entropy"])
def test_the_choice_does_not_depend_on_padding(kind):
    advantages, values, mask = step()
    (whole,) = choose(kind, [advantages], [values], [mask], [KEYS])
    pad = torch.nn.functional.pad
    (padded,) = choose(kind, [advantages], [pad(values, (3, 2))], [pad(mask, (3, 2))], [KEYS])
    assert torch.equal(padded[:, 3:-2], whole)
    assert padded.sum() == whole.sum()


@pytest.mark.parametrize("kind", ["clip_cov", "kl_cov", "entropy"])
@pytest.mark.parametrize("cut", [([[0, 1, 2]], [[3], [4, 5]]), ([[2, 4, 0], [5, 1, 3]], [])])
def test_two_ranks_choose_what_one_would(kind, cut):
    advantages, values, mask = step()
    (whole,) = choose(kind, [advantages], [values], [mask], [KEYS])

    def work(rank, gather):
        return choose(
            kind,
            [advantages[rows] for rows in cut[rank]],
            [values[rows] for rows in cut[rank]],
            [mask[rows] for rows in cut[rank]],
            [[KEYS[row] for row in rows] for rows in cut[rank]],
            gather=gather,
        )

    for rank, parts in enumerate(on_two_ranks(work)):
        for rows, part in zip(cut[rank], parts, strict=True):
            assert torch.equal(part, whole[rows])


@pytest.mark.parametrize("kind", ["clip_cov", "kl_cov", "entropy"])
def test_everything_masked_and_nothing_at_all(kind):
    advantages, values, mask = step()
    (chosen,) = choose(kind, [advantages], [values], [torch.zeros_like(mask)], [KEYS])
    assert chosen.count_nonzero() == 0
    assert choose(kind, [], [], [], []) == []


def test_the_choice_is_detached():
    advantages, values, mask = step()
    values.requires_grad_()
    (covariances,) = covariances_of([advantages], [values], [mask])
    assert not covariances.requires_grad
    assert high_entropy_tokens([values], [mask])[0].dtype == torch.bool


def test_another_seed_or_key_draws_anew():
    covariances, mask = torch.full((2, 200), 2.0).double(), torch.ones(2, 200, dtype=torch.bool)
    first, second, third = (
        clip_cov_tokens([covariances], [mask], [keys], seed=seed, share=0.2)[0]
        for keys, seed in (((0, 1), 0), ((0, 1), 1), ((2, 1), 0))
    )
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], third[0])
    assert not torch.equal(first[0], first[1])
    again = clip_cov_tokens([covariances], [mask], [(0, 1)], seed=0, share=0.2)[0]
    assert torch.equal(first, again)
    huge = clip_cov_tokens([covariances], [mask], [(2**40, -1)], seed=2**63 + 5, share=0.2)[0]
    assert huge.sum() == 80


def test_E25_entropy_quantile():
    entropies = torch.arange(1, 11, dtype=torch.float64)[None] / 10
    mask = torch.ones(1, 10, dtype=torch.bool)
    (kept,) = high_entropy_tokens([entropies], [mask], share=0.2)
    assert kept[0].tolist() == [False] * 8 + [True] * 2
    # The quantile 0.82 lies between two tokens; the eighth, 0.8, is reached at a share of 2 / 9.
    (kept,) = high_entropy_tokens([entropies], [mask], share=0.22)
    assert kept[0].tolist() == [False] * 8 + [True] * 2
    (kept,) = high_entropy_tokens([entropies], [mask], share=0.23)
    assert kept[0].tolist() == [False] * 7 + [True] * 3


@pytest.mark.parametrize("share", [0.05, 0.2, 0.37, 0.5, 1.0])
def test_entropy_quantile_against_torch(share):
    _, values, mask = step(seed=4)
    entropies = -values.double()
    (kept,) = high_entropy_tokens([entropies], [mask], share=share)
    threshold = torch.quantile(entropies[mask], 1 - share)
    assert torch.equal(kept, mask & (entropies >= threshold - 1e-12))
    if share == 1:
        assert torch.equal(kept, mask)


def test_shares_outside_their_range_are_refused():
    _, values, mask = step()
    for share in (0.0, -0.1, 1.5):
        with pytest.raises(ValueError, match="expected a share of the tokens, above 0"):
            high_entropy_tokens([values], [mask], share=share)
    with pytest.raises(ValueError, match=r"share=1.5; expected a share of the tokens, from 0 to 1"):
        kl_cov_tokens([values.double()], [mask], [KEYS], share=1.5)


def test_keys_must_name_every_row():
    _, values, mask = step()
    with pytest.raises(ValueError, match="2 keys for a microbatch of 6 rows"):
        kl_cov_tokens([values.double()], [mask], [(0, 1)])
