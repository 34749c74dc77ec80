"""Pages of the key-value cache: handed out once, shared, found by what they hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workings.errors import EngineError
from workings.rollout.paged.architecture import Architecture
from workings.rollout.paged.cache import PagedCache, PagePool, SharedPages

SHAPE = Architecture(
    family="llama",
    num_layers=2,
    hidden_size=8,
    intermediate_size=16,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    vocabulary=11,
    max_positions=64,
    eps=1e-6,
    biased=False,
    head_norms=False,
    tied=True,
)


def pages(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int32)


def test_pages_are_free_again_when_their_last_reader_is_gone() -> None:
    pool = PagePool(4)
    taken = pool.take(3)
    pool.share(taken[:2])
    assert pool.num_free == 1
    assert pool.give_back(taken).tolist() == [taken[2]]
    assert pool.num_free == 2
    assert sorted(pool.give_back(taken[:2]).tolist()) == sorted(taken[:2].tolist())
    assert pool.num_free == 4


def test_more_pages_than_there_are_is_an_error_and_takes_none() -> None:
    pool = PagePool(2)
    with pytest.raises(EngineError, match="3 pages were asked of a cache with 2 free"):
        pool.take(3)
    assert pool.num_free == 2


def test_a_page_cannot_be_given_back_twice() -> None:
    pool = PagePool(2)
    taken = pool.take(1)
    pool.give_back(taken)
    with pytest.raises(EngineError, match="more often than it was taken"):
        pool.give_back(taken)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60))
def test_no_page_has_two_owners_and_none_is_lost(steps: list[tuple[int, int]]) -> None:
    pool = PagePool(12)
    readers: dict[int, int] = {}
    for action, count in steps:
        if action == 0 and count <= pool.num_free:
            for page in pool.take(count).tolist():
                assert readers.get(page, 0) == 0
                readers[page] = 1
        elif action == 1:
            chosen = [page for page, number in readers.items() if number][:count]
            pool.share(pages(*chosen))
            for page in chosen:
                readers[page] += 1
        else:
            chosen = [page for page, number in readers.items() if number][:count]
            freed = pool.give_back(pages(*chosen)).tolist()
            for page in chosen:
                readers[page] -= 1
            assert sorted(freed) == sorted(page for page in chosen if readers[page] == 0)
        assert pool.num_free == 12 - sum(number > 0 for number in readers.values())


def test_a_page_is_found_by_its_tokens_and_by_what_stands_before() -> None:
    shared = SharedPages()
    shared.remember(5, -1, (1, 2))
    shared.remember(6, 5, (1, 2))
    assert shared.find(-1, (1, 2)) == 5
    assert shared.find(5, (1, 2)) == 6
    assert shared.find(6, (1, 2)) is None
    assert shared.find(-1, (1,)) is None


def test_a_forgotten_page_is_not_found_and_can_hold_something_else() -> None:
    shared = SharedPages()
    shared.remember(5, -1, (1, 2))
    shared.forget(pages(4, 5))
    assert shared.find(-1, (1, 2)) is None
    shared.remember(5, -1, (3, 4))
    assert shared.find(-1, (3, 4)) == 5


def test_the_first_page_that_holds_something_stays_the_one_that_is_found() -> None:
    shared = SharedPages()
    shared.remember(5, -1, (1, 2))
    shared.remember(7, -1, (1, 2))
    assert shared.find(-1, (1, 2)) == 5
    shared.forget(pages(7))
    assert shared.find(-1, (1, 2)) == 5


def test_copied_pages_hold_the_same_in_every_layer() -> None:
    cache = PagedCache(
        SHAPE, num_pages=5, dtype=torch.float32, device=torch.device("cpu"), page_size=4
    )
    torch.manual_seed(0)
    for layer in range(2):
        for part in cache.layer(layer):
            part.normal_()
    before = [part.clone() for layer in range(2) for part in cache.layer(layer)]
    cache.copy_pages(torch.tensor([0, 3]), torch.tensor([2, 1]))
    after = [part for layer in range(2) for part in cache.layer(layer)]
    for old, new in zip(before, after, strict=True):
        assert torch.equal(new[[2, 1]], old[[0, 3]])
        assert torch.equal(new[[0, 3, 4]], old[[0, 3, 4]])
    assert cache.num_bytes == SHAPE.cache_bytes_per_token(torch.float32) * 5 * 4
