"""The row cache: rows come, grow, leave and move, and always hold their own keys and values."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import DynamicCache

from workings.rollout.kv_cache import RowCache

HEADS, DIM, LAYERS = 2, 4, 3


def prompt_cache(rows: list[list[int]]) -> DynamicCache:
    """A padded prompt cache whose entries encode (layer, token)."""
    cache = DynamicCache()
    width = max(len(row) for row in rows)
    tokens = torch.tensor([row + [-1] * (width - len(row)) for row in rows]).float()
    for layer in range(LAYERS):
        keys = (tokens + 1000 * layer)[:, None, :, None].expand(-1, HEADS, -1, DIM)
        cache.update(keys, -keys, layer)
    return cache


def append(cache: RowCache, tokens: list[int]) -> None:
    cache.prepare_step()
    for layer in range(LAYERS):
        new = (torch.tensor(tokens).float() + 1000 * layer)[:, None, None, None]
        keys, values = cache.model_cache.update(
            new.expand(-1, HEADS, 1, DIM), -new.expand(-1, HEADS, 1, DIM), layer
        )
        assert keys.shape == values.shape == (len(tokens), HEADS, cache.capacity, DIM)
        assert keys.is_contiguous()
    cache.finish_step()


def contents(cache: RowCache) -> list[list[int]]:
    rows = []
    for row in range(cache.num_rows):
        length = int(cache.lengths[row])
        per_layer = []
        for number, layer in enumerate(cache.model_cache.layers):
            keys = layer.keys[row, :, :length] - 1000 * number
            assert torch.equal(keys, -(layer.values[row, :, :length] + 1000 * number))
            assert (keys == keys[:1, :, :1]).all()
            per_layer.append(keys[0, :, 0].int().tolist())
        assert per_layer[0] == per_layer[1] == per_layer[2]
        rows.append(per_layer[0])
    return rows


def test_a_random_history_keeps_every_row_intact() -> None:
    chance = random.Random(0)
    cache = RowCache(max_rows=12, device=torch.device("cpu"))
    expected: list[list[int]] = []
    for _ in range(150):
        if len(expected) < 12 and chance.random() < 0.4:
            count = chance.randint(1, min(4, 12 - len(expected)))
            prompts = [
                [chance.randint(0, 99) for _ in range(chance.randint(1, 40))] for _ in range(count)
            ]
            places = [chance.randrange(count) for _ in range(count)]
            cache.admit(prompt_cache(prompts), places, [len(prompts[place]) for place in places])
            expected += [list(prompts[place]) for place in places]
        elif expected and chance.random() < 0.4:
            staying = sorted(chance.sample(range(len(expected)), chance.randint(0, len(expected))))
            order = cache.keep(staying)
            assert sorted(order) == staying
            expected = [expected[row] for row in order]
        elif expected:
            tokens = [chance.randint(0, 99) for _ in expected]
            append(cache, tokens)
            for row, token in zip(expected, tokens, strict=True):
                row.append(token)
        assert cache.num_rows == len(expected)
        assert contents(cache) == expected if cache.model_cache else not expected
        assert cache.longest == max(map(len, expected), default=0)


def test_capacity_follows_the_longest_row() -> None:
    cache = RowCache(max_rows=4, device=torch.device("cpu"))
    cache.admit(prompt_cache([[1] * 300, [2] * 5]), [0, 1], [300, 5])
    assert 301 <= cache.capacity <= 352
    cache.keep([1])
    assert cache.capacity <= 32, "a long row that left must not slow the others down"
    assert contents(cache) == [[2] * 5]


def test_the_mask_shows_a_row_its_own_tokens_and_the_new_one() -> None:
    cache = RowCache(max_rows=2, device=torch.device("cpu"))
    cache.admit(prompt_cache([[1] * 6, [2] * 3]), [0, 1], [6, 3])
    visible = (cache.mask(torch.float32) == 0)[:, 0, 0]
    assert visible.sum(-1).tolist() == [7, 4]
    assert visible[1].nonzero()[:, 0].tolist() == [0, 1, 2, 3]
    window = (cache.mask(torch.float32, window=2) == 0)[:, 0, 0]
    assert window[0].nonzero()[:, 0].tolist() == [5, 6]
    assert window[1].nonzero()[:, 0].tolist() == [2, 3]


def test_more_rows_than_places_is_an_error() -> None:
    cache = RowCache(max_rows=1, device=torch.device("cpu"))
    with pytest.raises(ValueError, match="2 rows do not fit"):
        cache.admit(prompt_cache([[1], [2]]), [0, 1], [1, 1])
