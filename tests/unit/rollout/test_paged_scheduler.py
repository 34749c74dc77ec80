"""The scheduler against a model of the device: every read token was written, by the right one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from workings.rollout.paged.cache import PagePool
from workings.rollout.paged.scheduler import Plan, Scheduler
from workings.rollout.paged.sequence import Sequence

SIZE = 4


def sequence(prompt: tuple[int, ...], limit: int, number: int = 0) -> Sequence:
    return Sequence(request=number, sample=0, key=np.uint64(number), prompt=prompt, limit=limit)


def scheduler(num_pages: int, *, num_slots: int = 8, prefill_tokens: int = 1000) -> Scheduler:
    return Scheduler(
        PagePool(num_pages),
        num_slots=num_slots,
        max_pages=64,
        page_size=SIZE,
        prefill_tokens=prefill_tokens,
    )


class Device:
    """Does what plans say with pages that hold token histories instead of numbers.

    A place of the cache holds the tokens up to and including its own; a step checks that all places
    that it reads hold exactly its sequence. The token after a history is a function of it.
    """

    def __init__(self, num_pages: int, num_slots: int) -> None:
        self.places: dict[int, tuple[int, ...]] = {}
        self.table = np.full((num_slots, 64), -1)
        self.tokens: dict[int, tuple[int, ...]] = {}
        self.left: dict[int, int] = {}
        self.num_prefilled = 0

    def run(self, plan: Plan) -> list[dict[int, int]]:
        for slot, index, page in plan.entries.T.tolist():
            self.table[slot, index] = page
        for piece in plan.pieces:
            tokens = piece.sequence.tokens
            for position in range(piece.start):
                assert self.places[piece.places[position]] == tokens[: position + 1]
            for position in range(piece.start, piece.end):
                self.places[piece.places[position]] = tokens[: position + 1]
            self.num_prefilled += piece.end - piece.start
        for source, target in plan.copies.T.tolist():
            for offset in range(SIZE):
                if source * SIZE + offset in self.places:
                    self.places[target * SIZE + offset] = self.places[source * SIZE + offset]
        for started in plan.started:
            self.tokens[started.slot] = started.tokens
            self.left[started.slot] = started.limit - len(started.ids)
        steps = []
        for _ in range(plan.num_steps):
            sampled = {}
            for slot in plan.rows.tolist():
                if self.left[slot] == 0:
                    continue
                tokens = self.tokens[slot]
                for position in range(len(tokens)):
                    page = self.table[slot, position // SIZE]
                    place = page * SIZE + position % SIZE
                    if position == len(tokens) - 1:
                        self.places[place] = tokens
                    assert self.places[place] == tokens[: position + 1]
                new = hash(tokens) % 1000
                self.tokens[slot] = (*tokens, new)
                self.left[slot] -= 1
                sampled[slot] = new
            steps.append(sampled)
        return steps


def run_all(
    plans: Scheduler, device: Device, *, num_steps: int, stop_at: int | None = None
) -> tuple[list[Sequence], int]:
    """Runs everything with one launch read behind; sequences in the order they ended, preempted.

    A token divisible by `stop_at` ends a sequence as a stop string would: found out late.
    """
    done: list[Sequence] = []
    running: dict[int, Sequence] = {}
    under_way: list[tuple[list[tuple[int, Sequence]], list[dict[int, int]]]] = []
    num_preempted = 0
    for _ in range(10_000):
        plan = plans.plan(num_steps)
        if plan is not None:
            for started in plan.started:
                running[started.slot] = started
            owners = [(slot, running[slot]) for slot in plan.rows.tolist()]
            under_way.append((owners, device.run(plan)))
            if len(under_way) < 2:
                continue
        if under_way:
            owners, steps = under_way.pop(0)
            ended = []
            for slot, owner in owners:
                if owner in done or running.get(slot) is not owner:
                    continue
                for step in steps:
                    if slot in step:
                        owner.ids.append(step[slot])
                        if stop_at is not None and step[slot] % stop_at == 0:
                            break
                stopped = stop_at is not None and any(token % stop_at == 0 for token in owner.ids)
                if stopped or len(owner.ids) == owner.limit:
                    ended.append(owner)
                    del running[slot]
            done += ended
            plans.finish(ended)
        elif plans.num_running or plans.num_waiting:
            youngest = plans.youngest
            assert youngest is not None
            del running[youngest.slot]
            plans.preempt()
            num_preempted += 1
        else:
            return done, num_preempted
    raise AssertionError("the scheduler never came to an end")


def expected(one: Sequence, stop_at: int | None = None) -> list[int]:
    tokens, ids = one.prompt, []
    while len(ids) < one.limit:
        ids.append(hash(tokens) % 1000)
        tokens = (*tokens, ids[-1])
        if stop_at is not None and ids[-1] % stop_at == 0:
            break
    return ids


def test_samples_of_a_prompt_process_it_once() -> None:
    plans, device = scheduler(40), Device(40, 8)
    prompt = tuple(range(11))
    plans.add(sequence(prompt, 3, number) for number in range(5))
    done, _ = run_all(plans, device, num_steps=2)
    assert len(done) == 5
    assert device.num_prefilled == 10


def test_prompts_with_a_common_beginning_share_its_whole_pages() -> None:
    plans, device = scheduler(40), Device(40, 8)
    plans.add([sequence((*range(8), 20, 21), 2, 0), sequence((*range(8), 30, 31), 2, 1)])
    run_all(plans, device, num_steps=2)
    assert device.num_prefilled == 9 + 1


def test_a_prompt_of_one_token_needs_no_prefill() -> None:
    plans, device = scheduler(4), Device(4, 8)
    plans.add([sequence((7,), 5)])
    done, _ = run_all(plans, device, num_steps=3)
    assert done[0].ids == expected(done[0])
    assert device.num_prefilled == 0


def test_long_prompts_are_processed_in_pieces_while_others_decode() -> None:
    plans, device = scheduler(40, prefill_tokens=4), Device(40, 8)
    plans.add([sequence((1, 2), 6, 0), sequence(tuple(range(15)), 2, 1)])
    plan = plans.plan(2)
    assert plan is not None
    assert [(piece.start, piece.end) for piece in plan.pieces] == [(0, 1), (0, 3)]
    assert len(plan.rows) == 1
    device.run(plan)
    plan = plans.plan(2)
    assert plan is not None
    assert [(piece.start, piece.end) for piece in plan.pieces] == [(3, 7)]
    assert len(plan.rows) == 1


def test_a_full_cache_sends_the_youngest_back_and_loses_nothing() -> None:
    plans, device = scheduler(8), Device(8, 8)
    sequences = [sequence((number, 1, 2), 20, number) for number in range(4)]
    plans.add(sequences)
    done, num_preempted = run_all(plans, device, num_steps=4)
    assert num_preempted > 0
    assert sorted(one.request for one in done) == [0, 1, 2, 3]
    assert all(one.ids == expected(one) for one in done)


def test_rows_of_a_request_stand_side_by_side() -> None:
    plans = scheduler(64, num_slots=6)
    plans.add(sequence((number // 3, 1, 2), 4, number) for number in range(6))
    plan = plans.plan(1)
    assert plan is not None
    order = {started.slot: started.request for started in plan.started}
    assert [order[slot] for slot in plan.rows.tolist()] == list(range(6))


@settings(deadline=None, max_examples=60)
@given(
    prompts=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 14), st.integers(1, 4), st.integers(1, 17)),
        min_size=1,
        max_size=6,
    ),
    num_pages=st.integers(9, 40),
    num_slots=st.integers(1, 8),
    num_steps=st.integers(1, 5),
    prefill_tokens=st.integers(1, 20),
    stop_at=st.sampled_from([None, 5, 11]),
)
def test_every_sequence_reads_its_own_tokens_and_ends(
    prompts: list[tuple[int, int, int, int]],
    num_pages: int,
    num_slots: int,
    num_steps: int,
    prefill_tokens: int,
    stop_at: int | None,
) -> None:
    # Any single sequence fits: 14 + 17 tokens are 8 pages.
    plans = scheduler(num_pages, num_slots=num_slots, prefill_tokens=prefill_tokens)
    device = Device(num_pages, num_slots)
    sequences = []
    for number, (first, length, num_samples, limit) in enumerate(prompts):
        prompt = (first, *range(length - 1))
        sequences += [sequence(prompt, limit, number) for _ in range(num_samples)]
    plans.add(sequences)
    done, _ = run_all(plans, device, num_steps=num_steps, stop_at=stop_at)
    assert len(done) == len(sequences)
    assert all(one.ids == expected(one, stop_at) for one in done)
    assert plans.num_free_pages == num_pages
