"""Who runs next: admission, prefill in pieces, pages for the steps to come, preemption.

    waiting ── a slot and pages are free ──> prefilling ── prompt in the cache ──> decoding ──> gone
       └──────────────── preempted: the cache is full, its pages go to older ones ◄──┘

The processor plans several steps at once and ahead of the device, so the plan counts on every
decoding sequence to go on. A sequence that has ended without the plan knowing (EOS) is skipped on
the device, and its pages come back when its result has been read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workings.rollout.paged.cache import PagePool, SharedPages
from workings.rollout.paged.sequence import Sequence

IntArray = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Tokens [start, end) of a sequence, to be processed by prefill.

    `places` int32 [end] are where its keys and values lie in the cache, page * page_size + offset,
    from the first token on.
    """

    sequence: Sequence
    start: int
    end: int
    places: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the device does next, in this order.

    Attributes:
        entries: int32 [3, n], new entries of the block table: slot, index, page.
        pieces: prompts, or pieces of long ones.
        copies: int64 [2, n], pages to copy: source, target.
        started: sequences that decode from this plan on.
        rows: int32, the slots that decode, those of a request side by side.
        num_steps: decode steps.
    """

    entries: IntArray
    pieces: list[Piece]
    copies: NDArray[np.int64]
    started: list[Sequence]
    rows: IntArray
    num_steps: int


class Scheduler:
    """The queue, the slots and the pages of one batch of sequences.

    Args:
        pool: the pages of the cache.
        num_slots: most sequences at once.
        max_pages: columns of the block table.
        prefill_tokens: most prompt tokens in one plan.
    """

    def __init__(
        self,
        pool: PagePool,
        *,
        num_slots: int,
        max_pages: int,
        page_size: int,
        prefill_tokens: int,
    ) -> None:
        self._pool = pool
        self._shared = SharedPages()
        self._page_size = page_size
        self._prefill_tokens = prefill_tokens
        self._waiting: deque[Sequence] = deque()
        self._starting: deque[Sequence] = deque()
        self._decoding: list[Sequence] = []
        self._decoding_slots = np.zeros(0, dtype=np.int32)
        self._free_slots = list(range(num_slots - 1, -1, -1))
        self._table = np.zeros((num_slots, max_pages), dtype=np.int32)
        self._num_pages = np.zeros(num_slots, dtype=np.int32)
        # Tokens in the cache after all planned steps, and the most that there will ever be.
        self._lengths = np.zeros(num_slots, dtype=np.int32)
        self._most = np.zeros(num_slots, dtype=np.int32)
        self._entries: list[IntArray] = []

    def add(self, sequences: Iterable[Sequence]) -> None:
        """Puts sequences at the end of the queue."""
        self._waiting.extend(sequences)

    @property
    def num_running(self) -> int:
        """Sequences that have a slot."""
        return len(self._starting) + len(self._decoding)

    @property
    def num_waiting(self) -> int:
        """Sequences without a slot."""
        return len(self._waiting)

    @property
    def num_free_pages(self) -> int:
        """Pages that no sequence holds."""
        return self._pool.num_free

    def plan(self, num_steps: int) -> Plan | None:
        """The next piece of work, of at most `num_steps` decode steps.

        None where nothing can run: everything is done, or the cache is full and a sequence must be
        preempted first, or all that runs ends with steps that are planned already.
        """
        self._admit()
        pieces = self._next_pieces()
        started = self._start()
        copies = self._copies_for(started)
        self._decode(self._decoding + started)
        left = self._most[self._decoding_slots] - self._lengths[self._decoding_slots]
        rows = self._decoding_slots[left > 0]
        steps = min(num_steps, int(left.max())) if len(rows) else 0
        if len(rows) and not self._grow(rows, steps):
            steps, rows = 0, rows[:0]
        if not (pieces or started or len(rows)):
            return None
        entries, self._entries = self._entries, []
        return Plan(
            entries=np.concatenate(entries, axis=1) if entries else np.zeros((3, 0), np.int32),
            pieces=pieces,
            copies=copies,
            started=started,
            rows=rows,
            num_steps=steps,
        )

    def finish(self, sequences: Iterable[Sequence]) -> None:
        """Takes slots and pages back from sequences that are done."""
        gone = set()
        for sequence in sequences:
            gone.add(id(sequence))
            self._release(sequence)
        if gone:
            self._decode([kept for kept in self._decoding if id(kept) not in gone])

    @property
    def youngest(self) -> Sequence | None:
        """The decoding sequence that was admitted last; None where at most one decodes."""
        return self._decoding[-1] if len(self._decoding) > 1 else None

    def preempt(self) -> None:
        """Sends the youngest sequence back to the head of the queue; its pages are free then.

        The caller has read all results and put them into `Sequence.ids`.
        """
        sequence = self._decoding[-1]
        self._decode(self._decoding[:-1])
        self._release(sequence)
        sequence.num_cached = 0
        self._waiting.appendleft(sequence)

    def _decode(self, sequences: list[Sequence]) -> None:
        self._decoding = sequences
        self._decoding_slots = np.array([one.slot for one in sequences], dtype=np.int32)

    def _admit(self) -> None:
        """Gives slots and pages to waiting sequences, in order, as long as both last.

        No more than prefill can take now: the others are admitted while the device works on it.
        """
        pending = sum(one.num_before_decoding - one.num_cached for one in self._starting)
        while self._waiting and self._free_slots and pending < self._prefill_tokens:
            sequence = self._waiting[0]
            tokens = sequence.tokens
            pages, num_shared, source = self._find_shared(tokens)
            needed = self._pages_for(sequence.num_before_decoding) - len(pages)
            # A page for every running sequence is left, or admission would end in preemption.
            if needed + self.num_running + 1 > self._pool.num_free and self.num_running:
                return
            self._waiting.popleft()
            self._place(sequence, pages, num_shared, source, needed)
            self._remember(tokens, sequence.slot, first=len(pages))
            pending += sequence.num_before_decoding - num_shared

    def _find_shared(self, tokens: tuple[int, ...]) -> tuple[list[int], int, int | None]:
        """(whole pages to share, tokens found, a part-full page to copy) for all but the last."""
        size, end = self._page_size, len(tokens) - 1
        pages: list[int] = []
        parent = -1
        for start in range(0, end - size + 1, size):
            page = self._shared.find(parent, tokens[start : start + size])
            if page is None:
                return pages, start, None
            pages.append(page)
            parent = page
        start = len(pages) * size
        source = self._shared.find(parent, tokens[start:end]) if start < end else None
        return pages, (start if source is None else end), source

    def _place(
        self,
        sequence: Sequence,
        shared: list[int],
        num_shared: int,
        source: int | None,
        needed: int,
    ) -> None:
        slot = sequence.slot = self._free_slots.pop()
        own = self._pool.take(needed)
        found = np.array(shared, dtype=np.int32)
        self._pool.share(found)
        self._num_pages[slot] = 0
        self._give(slot, np.concatenate([found, own]))
        if source is not None:
            # Held until it is copied: its owner may be gone before this sequence starts.
            self._pool.share(np.array([source], dtype=np.int32))
            sequence.copied = (source, int(own[0]))
        sequence.num_cached = num_shared
        self._lengths[slot] = sequence.num_before_decoding
        self._most[slot] = len(sequence.prompt) + sequence.limit - 1
        self._starting.append(sequence)

    def _remember(self, tokens: tuple[int, ...], slot: int, *, first: int) -> None:
        """Lets later sequences find the pages of these tokens, from page `first` on."""
        size, end = self._page_size, len(tokens) - 1
        pages = self._table[slot]
        for number in range(first, self._pages_for(end)):
            parent = int(pages[number - 1]) if number else -1
            self._shared.remember(
                int(pages[number]), parent, tokens[number * size : min((number + 1) * size, end)]
            )

    def _next_pieces(self) -> list[Piece]:
        """Prompt tokens that are not in the cache yet, oldest first, within the budget."""
        budget = self._prefill_tokens
        pieces = []
        for sequence in self._starting:
            if budget == 0:
                break
            start = sequence.num_cached
            end = min(sequence.num_before_decoding, start + budget)
            if start == end:
                continue
            places = self._places(sequence.slot, end)
            pieces.append(Piece(sequence=sequence, start=start, end=end, places=places))
            sequence.num_cached = end
            budget -= end - start
        return pieces

    def _start(self) -> list[Sequence]:
        """Sequences whose prompt is in the cache with this plan.

        In order of admission: what a later one shares was computed for an earlier one.
        """
        started = []
        while (
            self._starting and self._starting[0].num_cached == self._starting[0].num_before_decoding
        ):
            started.append(self._starting.popleft())
        return started

    def _copies_for(self, started: list[Sequence]) -> NDArray[np.int64]:
        """The part-full pages that these sequences take over from others."""
        copies = [sequence.copied for sequence in started if sequence.copied is not None]
        for sequence in started:
            if sequence.copied is not None:
                # The copy comes before anything that a later owner of the page does.
                self._shared.forget(
                    self._pool.give_back(np.array(sequence.copied[:1], dtype=np.int32))
                )
                sequence.copied = None
        return np.array(copies, dtype=np.int64).reshape(-1, 2).T

    def _grow(self, rows: IntArray, num_steps: int) -> bool:
        """Gives every row the pages of its next steps; False, and nothing given, if they lack."""
        lengths = np.minimum(self._lengths[rows] + num_steps, self._most[rows])
        needed = -(-lengths // self._page_size) - self._num_pages[rows]
        total = int(needed.sum())
        if total > self._pool.num_free:
            return False
        self._lengths[rows] = lengths
        if total:
            pages = self._pool.take(total)
            slots = np.repeat(rows, needed)
            first = np.repeat(np.cumsum(needed) - needed, needed)
            indices = np.arange(total) - first + np.repeat(self._num_pages[rows], needed)
            self._table[slots, indices] = pages
            self._num_pages[rows] += needed
            self._entries.append(np.stack([slots, indices, pages]).astype(np.int32))
        return True

    def _give(self, slot: int, pages: IntArray) -> None:
        """Appends pages to a slot's list."""
        start = int(self._num_pages[slot])
        indices = np.arange(start, start + len(pages), dtype=np.int32)
        self._table[slot, indices] = pages
        self._num_pages[slot] += len(pages)
        self._entries.append(np.stack([np.full_like(indices, slot), indices, pages]))

    def _release(self, sequence: Sequence) -> None:
        slot = sequence.slot
        freed = self._pool.give_back(self._table[slot, : self._num_pages[slot]])
        self._shared.forget(freed)
        self._num_pages[slot] = 0
        self._free_slots.append(slot)
        sequence.slot = -1

    def _places(self, slot: int, end: int) -> IntArray:
        positions = np.arange(end, dtype=np.int32)
        pages = self._table[slot, positions // self._page_size]
        places: IntArray = pages * np.int32(self._page_size) + positions % self._page_size
        return places

    def _pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._page_size)
