"""The largest number that passes a test which costs a lot to make."""

from __future__ import annotations

from collections.abc import Callable


def largest_that_passes(passes: Callable[[int], bool], *, most: int) -> int:
    """The largest n of 1 to `most` with `passes(n)`, which every smaller n passes too; 0 for none.

    It doubles n until one fails and then halves the gap, so that few tests fail: a failure costs
    more than a success.

    >>> tried = []
    >>> largest_that_passes(lambda n: tried.append(n) or n <= 11, most=64)
    11
    >>> tried
    [1, 2, 4, 8, 16, 12, 10, 11]
    """
    if most < 1:
        raise ValueError(f"most={most}; expected 1 or more")
    good, size = 0, 1
    while passes(size):
        good = size
        if size == most:
            return good
        size = min(2 * size, most)
    bad = size
    while bad - good > 1:
        middle = (good + bad) // 2
        if passes(middle):
            good = middle
        else:
            bad = middle
    return good
