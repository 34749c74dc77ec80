"""Splits and subsets: seeded, disjoint by question, nested."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.data.split import hash_split, take, train_validation_split
from workings.errors import DataError
from workings.types import Problem


def problems(*questions: str) -> list[Problem]:
    return [Problem(id=str(i), question=q, answer=q) for i, q in enumerate(questions)]


@given(st.lists(st.sampled_from("abcdefghij"), min_size=6, max_size=40), st.integers(0, 9))
def test_no_question_is_on_both_sides(questions: list[str], seed: int) -> None:
    if len(set(questions)) < 3:
        return
    items = problems(*questions)
    try:
        train, validation = train_validation_split(items, validation_fraction=0.2, seed=seed)
    except DataError:
        return
    assert sorted(train + validation, key=lambda p: int(p.id)) == items
    assert not {p.question for p in train} & {p.question for p in validation}
    assert len(validation) >= max(1, round(0.2 * len(items)))


def test_distinct_questions_give_the_exact_share() -> None:
    items = problems(*(f"q{i}" for i in range(100)))
    train, validation = train_validation_split(items, validation_fraction=0.1, seed=3407)
    assert (len(train), len(validation)) == (90, 10)
    again = train_validation_split(items, validation_fraction=0.1, seed=3407)
    assert again == (train, validation)
    other = train_validation_split(items, validation_fraction=0.1, seed=1)
    assert other[1] != validation
    assert [int(p.id) for p in train] == sorted(int(p.id) for p in train)


def test_splits_that_cannot_be() -> None:
    with pytest.raises(DataError, match="3 rows with 1 distinct questions cannot be split"):
        train_validation_split(problems("a", "a", "a"), validation_fraction=0.5, seed=0)
    with pytest.raises(DataError, match=r"validation_fraction=1.0; expected a value in \(0, 1\)"):
        train_validation_split(problems("a", "b"), validation_fraction=1.0, seed=0)


def test_d11_subsets_are_seeded_and_nested() -> None:
    rows = list(range(1000))
    small, large = take(rows, 128, seed=7), take(rows, 256, seed=7)
    assert len(small) == 128
    assert set(small) < set(large)
    assert small != list(range(128))
    assert small == sorted(small)
    assert take(rows, 128, seed=7) == small
    assert take(rows, 128, seed=8) != small


def test_first_rows_and_no_limit() -> None:
    assert take("abcde", 2, seed=0, order="first") == ["a", "b"]
    assert take("abc", None, seed=0) == take("abc", 9, seed=0) == ["a", "b", "c"]
    with pytest.raises(DataError, match="limit=0; expected 1 or more"):
        take("abc", 0, seed=0)


def test_hash_splits_have_their_shares() -> None:
    counts = Counter(hash_split(f"{i}+1") for i in range(10_000))
    assert abs(counts["train"] - 8000) < 200
    assert abs(counts["validation"] - 1000) < 150
    assert abs(counts["test"] - 1000) < 150
