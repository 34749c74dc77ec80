"""Hop 1: each prompt once an epoch, nothing lost, exact from any cursor and on any ranks."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.data.sampler import BatchSampler, PromptSampler, rank_share
from workings.errors import ConfigError, DataError
from workings.types import Problem, Prompt


def prompts(count: int) -> list[Prompt]:
    return [
        Prompt(problem=Problem(id=str(n), question=f"{n}?", answer=str(n)), ids=(n,), text="")
        for n in range(count)
    ]


def draw(sampler: PromptSampler, steps: int, cursor: int = 0) -> tuple[list[list[str]], int]:
    batches = []
    for _ in range(steps):
        batch, cursor = sampler.next_batch(cursor)
        batches.append([prompt.problem.id for prompt in batch])
    return batches, cursor


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 99))
def test_a12_every_prompt_once_an_epoch(count: int, size: int, seed: int) -> None:
    sampler = PromptSampler(prompts(count), prompts_per_step=size, seed=seed)
    batches, cursor = draw(sampler, 2 * count)
    drawn = [problem_id for batch in batches for problem_id in batch]
    assert cursor == len(drawn) == 2 * count * size
    assert all(len(batch) == size for batch in batches)
    for start in range(0, len(drawn), count):
        assert set(drawn[start : start + count]) == {str(n) for n in range(count)}


def test_resuming_at_any_cursor_is_exact() -> None:
    straight, end = draw(PromptSampler(prompts(7), prompts_per_step=3, seed=5), 10)
    first, cursor = draw(PromptSampler(prompts(7), prompts_per_step=3, seed=5), 4)
    cursor = json.loads(json.dumps(cursor))
    second, again = draw(PromptSampler(prompts(7), prompts_per_step=3, seed=5), 6, cursor)
    assert first + second == straight
    assert again == end


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_ranks_share_the_batch_of_one(num_ranks: int) -> None:
    alone, _ = draw(PromptSampler(prompts(9), prompts_per_step=6, seed=1), 5)
    shares = [
        draw(
            PromptSampler(prompts(9), prompts_per_step=6, seed=1, rank=rank, num_ranks=num_ranks), 5
        )
        for rank in range(num_ranks)
    ]
    joined = [[i for batches, _ in shares for i in batches[step]] for step in range(5)]
    assert joined == alone
    assert {cursor for _, cursor in shares} == {30}


def test_a12a_each_prompt_is_used_as_often_as_any_other() -> None:
    counts: Counter[str] = Counter()
    for rank in (0, 1):
        sampler = PromptSampler(prompts(6), prompts_per_step=4, seed=0, rank=rank, num_ranks=2)
        counts.update(i for batch in draw(sampler, 3)[0] for i in batch)
    assert set(counts.values()) == {2}


def test_a12c_the_gold_stays_with_its_question() -> None:
    sampler = PromptSampler(prompts(20), prompts_per_step=7, seed=3)
    batch, _ = sampler.next_batch(11)
    assert all(p.problem.question == f"{p.problem.answer}?" for p in batch)


def test_another_size_and_retired_problems() -> None:
    sampler = PromptSampler(prompts(5), prompts_per_step=2, seed=0)
    whole, _ = sampler.next_batch(0, num_prompts=5)
    order = [prompt.problem.id for prompt in whole]
    batch, cursor = sampler.next_batch(0, retired={order[0], order[2]})
    assert [prompt.problem.id for prompt in batch] == [order[1], order[3]]
    assert cursor == 4
    with pytest.raises(DataError, match="all 5 prompts are retired"):
        sampler.next_batch(0, retired=set(order))


def test_epochs_are_told_from_the_cursor() -> None:
    sampler = PromptSampler(prompts(4), prompts_per_step=2, seed=0)
    assert (len(sampler), sampler.epoch_of(6)) == (4, 1.5)


def test_d10_the_last_partial_batch_is_trained() -> None:
    sampler = BatchSampler(list(range(10)), batch_size=4, seed=0)
    batches, cursor = [], 0
    for _ in range(6):
        batch, cursor = sampler.next_batch(cursor)
        batches.append(batch)
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2]
    for one_epoch in (batches[:3], batches[3:]):
        assert sorted(row for batch in one_epoch for row in batch) == list(range(10))
    assert batches[:3] != batches[3:]
    assert (cursor, sampler.epoch_of(cursor), len(sampler)) == (20, 2.0, 10)
    assert sampler.num_batches(1) == 3


@pytest.mark.parametrize(
    ("epochs", "batches"), [(1, 3), (2, 6), (0.5, 2), (1.5, 5), (0.05, 1), (2.4, 7), (0, 0)]
)
def test_batches_in_parts_of_an_epoch(epochs: float, batches: int) -> None:
    assert BatchSampler(list(range(10)), batch_size=4, seed=0).num_batches(epochs) == batches


def test_ranks_share_a_short_batch() -> None:
    samplers = [
        BatchSampler(list(range(5)), batch_size=4, seed=0, rank=rank, num_ranks=2)
        for rank in (0, 1)
    ]
    first = [sampler.next_batch(0) for sampler in samplers]
    last = [sampler.next_batch(4) for sampler in samplers]
    assert [len(batch) for batch, _ in first] == [2, 2]
    assert [len(batch) for batch, _ in last] == [0, 1]
    everything = [row for batch, _ in [*first, *last] for row in batch]
    assert sorted(everything) == list(range(5))


@given(st.integers(0, 40), st.integers(1, 9))
def test_shares_cover_the_batch_evenly(size: int, num_ranks: int) -> None:
    batch = list(range(size))
    shares = [rank_share(batch, rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    assert [row for share in shares for row in share] == batch
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_impossible_sizes() -> None:
    with pytest.raises(ConfigError, match="prompts_per_step=1 is less than the 2 ranks"):
        PromptSampler(prompts(3), prompts_per_step=1, seed=0, num_ranks=2)
    with pytest.raises(ConfigError, match="rank 2 of 2"):
        BatchSampler([1], batch_size=2, seed=0, rank=2, num_ranks=2)
    with pytest.raises(ConfigError, match="batch_size=0 is less than the 1 ranks"):
        BatchSampler([1], batch_size=0, seed=0)
    with pytest.raises(DataError, match="there are no prompts"):
        PromptSampler([], prompts_per_step=1, seed=0)
    with pytest.raises(DataError, match="there are no rows"):
        BatchSampler([], batch_size=1, seed=0)
