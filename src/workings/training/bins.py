"""What shares a microbatch: as few bins as the budget allows, of nearly equal cost.

Equal cost keeps the largest microbatch, which decides how much memory a step needs, as small as it
can be; filling one bin after the other leaves full ones and a rest.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Item(NamedTuple):
    """What must stay together: its tokens, the rows among them, and what it costs to compute."""

    tokens: int
    rows: int
    cost: float


def balanced_bins(
    items: Sequence[Item], *, max_tokens: int, max_rows: int | None = None
) -> list[list[int]]:
    """Indices of `items` in bins of at most `max_tokens` tokens and `max_rows` rows.

    An item over a limit gets a bin of its own. The others are spread over as few bins as hold them:
    the costliest first, each into the cheapest bin with room (Graham's rule, 1969); where that does
    not fit the same by tokens, and where that does not fit, each into the fullest bin with room.
    Bins come in falling cost.

    >>> items = [Item(tokens=n, rows=1, cost=n) for n in (9, 5, 4, 3, 3, 2)]
    >>> balanced_bins(items, max_tokens=10)
    [[0], [2, 3, 5], [1, 4]]
    """
    most_rows = math.inf if max_rows is None else max_rows
    order = sorted(range(len(items)), key=lambda index: (-items[index].cost, index))
    alone = [[i] for i in order if items[i].tokens >= max_tokens or items[i].rows >= most_rows]
    shared = [i for i in order if items[i].tokens < max_tokens and items[i].rows < most_rows]
    tokens = sum(items[index].tokens for index in shared)
    rows = sum(items[index].rows for index in shared)
    by_tokens = [item._replace(cost=item.tokens) for item in items]
    count = max(math.ceil(tokens / max_tokens), math.ceil(rows / most_rows))
    bins = None
    while bins is None:
        for measure, place in (
            (items, _cheapest_first),
            (by_tokens, _cheapest_first),
            (items, _fullest_first),
        ):
            bins = place(measure, shared, count, max_tokens, most_rows)
            if bins is not None:
                break
        count += 1
    return sorted(alone + bins, key=lambda chosen: -sum(items[index].cost for index in chosen))


def smallest_budget(low: int, high: int, *, needed: Callable[[int], int]) -> int:
    """The least budget in [low, high] that needs no more microbatches than `high` does.

    >>> smallest_budget(1, 10, needed=lambda budget: -(-12 // budget))
    6
    """
    count = needed(high)
    while low < high:
        middle = (low + high) // 2
        if needed(middle) <= count:
            high = middle
        else:
            low = middle + 1
    return high


def _cheapest_first(
    items: Sequence[Item], order: Sequence[int], count: int, max_tokens: int, max_rows: float
) -> list[list[int]] | None:
    """Each item in the cheapest of `count` bins that has room; None where one finds no room."""
    bins: list[list[int]] = [[] for _ in range(count)]
    tokens, rows = [0] * count, [0] * count
    heap = [(0.0, number) for number in range(count)]
    for index in sorted(order, key=lambda index: -items[index].cost):
        item, full = items[index], []
        while heap:
            cost, number = heapq.heappop(heap)
            if tokens[number] + item.tokens <= max_tokens and rows[number] + item.rows <= max_rows:
                break
            full.append((cost, number))
        else:
            return None
        bins[number].append(index)
        tokens[number] += item.tokens
        rows[number] += item.rows
        for entry in (*full, (cost + item.cost, number)):
            heapq.heappush(heap, entry)
    return bins


def _fullest_first(
    items: Sequence[Item], order: Sequence[int], count: int, max_tokens: int, max_rows: float
) -> list[list[int]] | None:
    """Each item in the fullest of `count` bins that has room; None where one finds no room."""
    bins: list[list[int]] = [[] for _ in range(count)]
    rows = [0] * count
    room = [(max_tokens, number) for number in range(count)]
    for index in sorted(order, key=lambda index: -items[index].tokens):
        item = items[index]
        place = bisect.bisect_left(room, (item.tokens, -1))
        while place < count and rows[room[place][1]] + item.rows > max_rows:
            place += 1
        if place == count:
            return None
        left, number = room.pop(place)
        bins[number].append(index)
        rows[number] += item.rows
        bisect.insort(room, (left - item.tokens, number))
    return bins
