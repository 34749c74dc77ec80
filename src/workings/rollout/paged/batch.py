"""One call to the engine, from requests to samples: plan, launch, read, plan again.

Two launches are under way at a time. While the device works on one, the processor reads the one
before, finds what has ended, and plans the next; the device never waits for it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Listed

import numpy as np
from numpy.typing import NDArray

from workings.data.tokenizer import Tokenizer
from workings.errors import EngineError, EngineMemoryError
from workings.rollout.draws import stream_keys
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.engine_errors import broken_logits
from workings.rollout.paged.kernels.sampling import BROKEN
from workings.rollout.paged.runner import Launch, Runner
from workings.rollout.paged.scheduler import Scheduler
from workings.rollout.paged.sequence import Sequence
from workings.rollout.paged.step import NOT_SAMPLED
from workings.rollout.stop_strings import StopStrings, decode_all
from workings.types import FinishReason, Sample

LAUNCHES_UNDER_WAY = 2
FIRST_CAPACITY = 256


class Batch:
    """The sequences of a call and what has been sampled of each.

    Args:
        max_steps: decode steps of a launch.
        aborted: asked between launches; True ends the call with an EngineError.
    """

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        tokenizer: Tokenizer,
        requests: Listed[Request],
        sampling: SamplingParams,
        *,
        eos_token_ids: tuple[int, ...],
        num_slots: int,
        max_steps: int,
        weight_version: int,
        aborted: Callable[[], bool],
    ) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._eos = np.array(eos_token_ids, dtype=np.int32)
        self._stops = StopStrings(tokenizer, sampling.stop, eos_token_ids=eos_token_ids)
        self._max_steps = max_steps
        self._weight_version = weight_version
        self._aborted = aborted
        self._done: list[list[Sample | None]] = [[None] * one.num_samples for one in requests]
        self._in_slot: list[Sequence | None] = [None] * num_slots
        # By slot: tokens sampled, and a number that tells one owner of the slot from the next.
        self._sampled = np.zeros(num_slots, dtype=np.int32)
        self._owner = np.full(num_slots, -1, dtype=np.int64)
        self._num_owners = 0
        self._ids = np.zeros((num_slots, FIRST_CAPACITY), dtype=np.int32)
        self._logprobs = np.zeros((num_slots, FIRST_CAPACITY), dtype=np.float32)
        self._mass = np.zeros((num_slots, FIRST_CAPACITY), dtype=np.float32)
        self._scheduler.add(_sequences(requests, sampling))

    def run(self) -> list[list[Sample]]:
        """All samples, in the order of the requests.

        Raises EngineError for logits that are not finite, and where `aborted` says so.
        """
        under_way: deque[tuple[Launch, NDArray[np.int64]]] = deque()
        while True:
            if self._aborted():
                raise EngineError("sampling was aborted", hint="submit the requests again")
            plan = self._scheduler.plan(self._max_steps)
            if plan is not None:
                for sequence in plan.started:
                    self._take_slot(sequence)
                under_way.append((self._runner.launch(plan), self._owner[plan.rows]))
                if len(under_way) < LAUNCHES_UNDER_WAY:
                    continue
            if under_way:
                self._read(*under_way.popleft())
            elif self._scheduler.num_running or self._scheduler.num_waiting:
                self._make_room()
            else:
                return [[sample for sample in group if sample is not None] for group in self._done]

    def _take_slot(self, sequence: Sequence) -> None:
        slot, count = sequence.slot, len(sequence.ids)
        self._in_slot[slot] = sequence
        self._owner[slot] = self._num_owners
        self._num_owners += 1
        self._reserve(count)
        self._ids[slot, :count] = sequence.ids
        self._logprobs[slot, :count] = sequence.logprobs
        self._mass[slot, :count] = sequence.kept_mass
        self._sampled[slot] = count

    def _read(self, launch: Launch, owners: NDArray[np.int64]) -> None:
        """Takes in what a launch sampled, and ends what it ended."""
        ids, logprobs, mass = launch.result()
        slots = launch.plan.rows
        # Rows whose sequence ended by a stop string meanwhile ran on for nothing.
        alive = self._owner[slots] == owners
        before = self._sampled[slots].copy()
        self._reserve(int(before.max(initial=0)) + len(ids))
        for step in range(len(ids)):
            taken = alive & (ids[step] != NOT_SAMPLED)
            places = slots[taken], self._sampled[slots[taken]]
            self._ids[places] = ids[step, taken]
            self._logprobs[places] = logprobs[step, taken]
            self._mass[places] = mass[step, taken]
            self._sampled[slots[taken]] += 1
        if bool((ids[:, alive] == BROKEN).any()):
            raise broken_logits()
        self._end(slots[alive], before[alive], ids)

    def _end(self, slots: NDArray[np.int32], before: NDArray[np.int32], ids: np.ndarray) -> None:
        """Finishes the sequences in `slots` that ended since they had `before` tokens."""
        ended: dict[int, FinishReason] = {}
        if self._sampling.stop:
            ended |= dict.fromkeys(self._stopped(slots, before, ids), "stop")
        counts = self._sampled[slots]
        last = self._ids[slots, counts - 1]
        at_eos = (counts > before) & np.isin(last, self._eos)
        limits = np.array([self._sequence(slot).limit for slot in slots])
        for slot in slots[at_eos].tolist():
            ended.setdefault(slot, "eos")
        for slot in slots[counts >= limits].tolist():
            ended.setdefault(slot, "length")
        if ended:
            finished = [self._sequence(slot) for slot in ended]
            rows = [self._ids[slot, : self._sampled[slot]].tolist() for slot in ended]
            texts = decode_all(self._tokenizer, rows)
            for (slot, reason), row, text in zip(ended.items(), rows, texts, strict=True):
                self._finish(slot, reason, row, text)
            self._scheduler.finish(finished)

    def _stopped(
        self, slots: NDArray[np.int32], before: NDArray[np.int32], ids: np.ndarray
    ) -> list[int]:
        """Slots in which a token completed a stop string; what came behind it is cut off."""
        known = [token for token in np.unique(ids).tolist() if token >= 0]
        candidates = [token for token in known if self._stops.may_end_with(token)]
        stopped = []
        for slot, start in zip(slots.tolist(), before.tolist(), strict=True):
            end = int(self._sampled[slot])
            for place in np.flatnonzero(np.isin(self._ids[slot, start:end], candidates)).tolist():
                count = start + place + 1
                if count < self._sampling.min_tokens or self._ids[slot, count - 1] in self._eos:
                    continue
                if self._stops.completed_by_last(self._ids[slot, :count].tolist()):
                    self._sampled[slot] = count
                    stopped.append(slot)
                    break
        return stopped

    def _finish(self, slot: int, reason: FinishReason, ids: list[int], text: str) -> None:
        sequence = self._sequence(slot)
        count = len(ids)
        wanted = self._sampling.logprobs
        self._done[sequence.request][sequence.sample] = Sample(
            ids=ids,
            sampling_logprobs=self._logprobs[slot, :count].tolist()
            if wanted
            else [math.nan] * count,
            kept_mass=self._mass[slot, :count].tolist(),
            text=text,
            finish_reason=reason,
            weight_version=self._weight_version,
        )
        self._in_slot[slot] = None
        self._owner[slot] = -1

    def _make_room(self) -> None:
        """Sends the youngest sequence back to the queue, since the cache is full."""
        youngest = self._scheduler.youngest
        if youngest is None:
            raise EngineMemoryError(
                "the key-value cache holds no sequence to its end",
                hint="raise engine.gpu_memory_utilization or lower sampling.max_tokens",
            )
        slot = youngest.slot
        count = int(self._sampled[slot])
        youngest.ids = self._ids[slot, :count].tolist()
        youngest.logprobs = self._logprobs[slot, :count].tolist()
        youngest.kept_mass = self._mass[slot, :count].tolist()
        self._in_slot[slot] = None
        self._owner[slot] = -1
        self._scheduler.preempt()

    def _sequence(self, slot: int) -> Sequence:
        sequence = self._in_slot[slot]
        if sequence is None:
            raise EngineError(f"slot {slot} of the engine's batch is empty")
        return sequence

    def _reserve(self, count: int) -> None:
        """Makes room for `count` tokens of every slot."""
        capacity = self._ids.shape[1]
        if count > capacity:
            added = ((0, 0), (0, max(count, 2 * capacity) - capacity))
            self._ids = np.pad(self._ids, added)
            self._logprobs = np.pad(self._logprobs, added)
            self._mass = np.pad(self._mass, added)


def _sequences(requests: Listed[Request], sampling: SamplingParams) -> list[Sequence]:
    """A sequence for every sample, those of a request side by side."""
    sequences = []
    for number, request in enumerate(requests):
        samples = range(request.num_samples)
        keys = stream_keys([request.seed] * len(samples), samples)
        prompt = (*request.prompt_ids, *request.prefix_ids)
        limit = request.limit(sampling)
        sequences += [
            Sequence(request=number, sample=sample, key=key, prompt=prompt, limit=limit)
            for sample, key in zip(samples, keys, strict=True)
        ]
    return sequences
