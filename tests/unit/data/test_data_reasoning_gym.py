"""reasoning-gym tasks as problems, and what is said where the package or the task is missing."""

from __future__ import annotations

import sys

import pytest

from workings.data.reasoning_gym import reasoning_gym_problems
from workings.errors import DataError


def test_a_task_in_three_disjoint_splits() -> None:
    gym = pytest.importorskip("reasoning_gym")
    assert gym is not None
    options = {"min_terms": 2, "max_terms": 3}
    parts = {
        split: reasoning_gym_problems(
            "reasoning_gym/chain_sum", 30, seed=0, split=split, options=options
        )
        for split in ("train", "validation", "test")
    }
    questions = [{problem.question for problem in part} for part in parts.values()]
    assert [len(part) for part in questions] == [30, 30, 30]
    assert len(set.union(*questions)) == 90
    train = parts["train"]
    assert reasoning_gym_problems("chain_sum", 30, seed=0, options=options) == train
    assert reasoning_gym_problems("chain_sum", 10, seed=0, options=options) == train[:10]
    first = train[0]
    assert first.source == "reasoning_gym/chain_sum"
    assert isinstance(first.extra["metadata"], dict)


def test_unknown_tasks_and_options() -> None:
    pytest.importorskip("reasoning_gym")
    with pytest.raises(
        DataError, match="unknown reasoning-gym task 'chainsum'; did you mean 'chain_"
    ):
        reasoning_gym_problems("chainsum", 1, seed=0)
    with pytest.raises(DataError, match=r"chain_sum does not take \{'nope': 3\}"):
        reasoning_gym_problems("chain_sum", 1, seed=0, options={"nope": 3})
    with pytest.raises(DataError, match="min_terms must be positive"):
        reasoning_gym_problems("chain_sum", 1, seed=0, options={"min_terms": -3})
    with pytest.raises(DataError, match="unknown split 'eval'"):
        reasoning_gym_problems("chain_sum", 1, seed=0, split="eval")  # type: ignore[arg-type]


def test_more_problems_than_there_are() -> None:
    pytest.importorskip("reasoning_gym")
    narrow = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    with pytest.raises(DataError, match=r"only \d+ distinct test problems were found of the 100"):
        reasoning_gym_problems("chain_sum", 100, seed=0, split="test", options=narrow)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(DataError, match="needs the reasoning-gym package") as raised:
        reasoning_gym_problems("reasoning_gym/chain_sum", 1, seed=0)
    assert raised.value.hint == 'install it with: pip install "workings[demo]"'
