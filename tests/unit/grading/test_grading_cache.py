"""The bounded memories."""

from __future__ import annotations

import os
import threading

import pytest

from workings.grading.cache import LruCache, remembered


def test_the_oldest_entry_gives_way() -> None:
    cache: LruCache[int] = LruCache(2)
    for key, value in (("a", 1), ("b", 2)):
        cache.put(key, value)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]
    cache.put("a", 4)
    assert cache.get("a") == 4
    assert len(cache) == 2


def test_a_size_of_nothing_remembers_nothing() -> None:
    cache: LruCache[int] = LruCache(0)
    cache.put("a", 1)
    assert cache.get("a") is None
    assert len(cache) == 0


def test_many_threads() -> None:
    cache: LruCache[int] = LruCache(50)

    def work(seed: int) -> None:
        for n in range(2000):
            key = (seed * n) % 97
            cache.put(key, key)
            assert cache.get(key) in (key, None)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_is_not_stuck_behind_a_thread_of_its_parent() -> None:
    cache: LruCache[int] = LruCache(5)
    cache.put("a", 1)
    with cache._lock:
        pid = os.fork()
        if pid == 0:
            os._exit(7 if cache.get("a") == 1 else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_long_texts_are_worked_out_again() -> None:
    calls = []

    @remembered
    def length(text: str) -> int:
        calls.append(text)
        return len(text)

    assert [length("ab"), length("ab"), length("x" * 600), length("x" * 600)] == [2, 2, 600, 600]
    assert len(calls) == 3
