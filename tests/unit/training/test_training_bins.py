"""As few microbatches as the budget allows, of nearly equal cost."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.training.bins import Item, balanced_bins, smallest_budget


def log_normal_items(count, longest, seed):
    """Rows as rollouts are: most of some hundred tokens, a few of many thousand."""
    source = random.Random(seed)
    lengths = [min(longest, max(8, int(source.lognormvariate(6.2, 0.9)))) for _ in range(count)]
    return [Item(n, 1, n * (1 + n / 8192)) for n in lengths]


@pytest.mark.parametrize("max_tokens", [8192, 16384, 32768])
@pytest.mark.parametrize("count", [64, 256, 1024])
@pytest.mark.parametrize("seed", range(3))
def test_log_normal_lengths_give_few_bins_of_like_cost(max_tokens, count, seed):
    items = log_normal_items(count, max_tokens // 2, seed)
    bins = balanced_bins(items, max_tokens=max_tokens)
    assert sorted(index for chosen in bins for index in chosen) == list(range(count))
    assert all(sum(items[index].tokens for index in chosen) <= max_tokens for chosen in bins)
    least = math.ceil(sum(item.tokens for item in items) / max_tokens)
    assert len(bins) <= least + (least > 20)
    costs = [sum(items[index].cost for index in chosen) for chosen in bins]
    cheapest_possible = max(sum(costs) / len(costs), max(item.cost for item in items))
    assert max(costs) <= 1.25 * cheapest_possible
    assert costs == sorted(costs, reverse=True)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5)), max_size=40),
    st.integers(1, 50),
    st.integers(1, 8) | st.none(),
)
def test_limits_hold_for_all_but_single_items(sizes, max_tokens, max_rows):
    items = [Item(tokens, rows, float(tokens)) for tokens, rows in sizes]
    bins = balanced_bins(items, max_tokens=max_tokens, max_rows=max_rows)
    assert sorted(index for chosen in bins for index in chosen) == list(range(len(items)))
    for chosen in bins:
        if len(chosen) > 1:
            assert sum(items[index].tokens for index in chosen) <= max_tokens
            assert max_rows is None or sum(items[index].rows for index in chosen) <= max_rows


def test_equal_items_are_dealt_out_evenly():
    bins = balanced_bins([Item(1000, 1, 1000.0)] * 9, max_tokens=4096)
    assert [len(chosen) for chosen in bins] == [3, 3, 3]


def test_where_cost_leaves_no_room_tokens_decide():
    # Ten items fill two bins to the last token; by cost alone the long one would stand too free.
    items = [Item(50, 1, 500.0), *[Item(10, 1, 10.0)] * 15]
    bins = balanced_bins(items, max_tokens=100)
    assert [sum(items[index].tokens for index in chosen) for chosen in bins] == [100, 100]


def test_the_smallest_budget_needs_no_more():
    calls = []

    def needed(budget):
        calls.append(budget)
        return math.ceil(1000 / budget)

    assert smallest_budget(1, 400, needed=needed) == 334
    assert len(calls) < 12
