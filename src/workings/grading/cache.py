"""Bounded memories, safe to use from any thread."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Generic, TypeVar

from workings.grading.forks import renew_after_fork

Value = TypeVar("Value")

_NUM_REMEMBERED = 16_384
_LONGEST_REMEMBERED = 512


class LruCache(Generic[Value]):
    """The `size` entries used last; a size of 0 remembers nothing."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()
        renew_after_fork(self)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Value | None:
        """The entry of `key`, now the youngest; None where there is none."""
        with self._lock:
            value = self._entries.get(key)
            if value is not None:
                self._entries.move_to_end(key)
            return value

    def put(self, key: Hashable, value: Value) -> None:
        """Remember `value`, at the cost of the oldest entry."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def renew(self) -> None:
        """Keep the entries in a forked child, under a lock that no thread of the parent holds."""
        self._lock = threading.Lock()


def remembered(function: Callable[[str], Value]) -> Callable[[str], Value]:
    """`function` with its last results kept, of short texts only: long ones would fill the memory.

    >>> remembered(str.upper)("x")
    'X'
    """
    cached = lru_cache(maxsize=_NUM_REMEMBERED)(function)

    @wraps(function)
    def look_up(text: str) -> Value:
        return cached(text) if len(text) <= _LONGEST_REMEMBERED else function(text)

    return look_up
