"""One batch of requests from prompts to samples: the decode loop.

    queue of requests ── admit: prefill each prompt once, draw first tokens ──> rows in the cache
    rows ── step: one forward pass, one draw per row ──> rows that finished leave, others stay

Rows that leave make room, and new ones are admitted in waves, so the batch stays full until the
queue is empty and shrinks after that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import DynamicCache

from workings.data.tokenizer import Tokenizer
from workings.rollout.causal_model import CausalModel
from workings.rollout.draws import stream_keys, uniforms
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.kv_cache import RowCache
from workings.rollout.sampler import sample_tokens
from workings.rollout.stop_strings import StopStrings, decode
from workings.types import FinishReason, Sample

CPU_PREFILL_TOKENS = 2048
GPU_PREFILL_TOKENS = 16384
MIN_TOKENS_SAVED = 64
"""A shared prefix is processed apart, in one more forward pass, if that saves so many tokens."""


@dataclass(slots=True, kw_only=True, eq=False)
class Row:
    """One completion while it grows."""

    request: int
    sample: int
    key: np.uint64
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    kept_mass: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Processed prompts with rows still to be admitted: a cache row and logits each."""

    requests: list[int]
    cache: DynamicCache
    logits: torch.Tensor


class Generation:
    """The state of one call to the engine."""

    def __init__(
        self,
        model: CausalModel,
        tokenizer: Tokenizer,
        requests: Sequence[Request],
        sampling: SamplingParams,
        *,
        eos_token_ids: Sequence[int],
        max_batch_size: int,
        weight_version: int,
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._requests = requests
        self._sampling = sampling
        self._eos = frozenset(eos_token_ids)
        self._eos_tensor = torch.tensor(sorted(self._eos), dtype=torch.int64, device=model.device)
        self._stops = StopStrings(tokenizer, sampling.stop, eos_token_ids=self._eos)
        self._weight_version = weight_version
        self._max_rows = min(max_batch_size, sum(request.num_samples for request in requests))
        self._cache = RowCache(max_rows=self._max_rows, device=model.device)
        self._limits = [request.limit(sampling) for request in requests]
        self._prompts = [(*request.prompt_ids, *request.prefix_ids) for request in requests]
        self._shared_length = _shared_prefix_length(self._prompts)
        self._shared: DynamicCache | None = None
        # Long prompts first and equal lengths together: little padding, and memory peaks early.
        order = sorted(range(len(requests)), key=lambda index: -len(self._prompts[index]))
        self._queue = deque(order)
        self._held: Prompts | None = None
        self._next_sample = [0] * len(requests)
        self._rows: list[Row] = []
        self._done: list[list[Sample | None]] = [[None] * r.num_samples for r in requests]

    def run(self) -> list[list[Sample]]:
        """All samples, in the order of the requests."""
        if self._shared_length:
            self._shared, _ = self._model.prefill([self._prompts[0][: self._shared_length]])
        while self._queue or self._held or self._rows:
            self._admit()
            if self._rows:
                self._step()
        return [[sample for sample in group if sample is not None] for group in self._done]

    def _admit(self) -> None:
        """Fills free places of the batch, once enough of them are free to be worth a prefill."""
        while self._queue or self._held:
            free = self._max_rows - len(self._rows)
            if free == 0 or (self._rows and free < self._max_rows // 8):
                return
            prompts = self._held if self._held is not None else self._prefill(free)
            self._held = self._start_rows(prompts, free)

    def _prefill(self, free: int) -> Prompts:
        """The next requests of the queue, as many as `free` rows and one forward pass can take."""
        budget = CPU_PREFILL_TOKENS if self._model.device.type == "cpu" else GPU_PREFILL_TOKENS
        chosen: list[int] = []
        rows = 0
        width = len(self._prompts[self._queue[0]]) - self._shared_length
        while self._queue and rows < free and (len(chosen) + 1) * width <= max(budget, width):
            chosen.append(self._queue.popleft())
            rows += self._requests[chosen[-1]].num_samples
        tails = [self._prompts[index][self._shared_length :] for index in chosen]
        cache, logits = self._model.prefill(tails, self._shared)
        return Prompts(requests=chosen, cache=cache, logits=logits)

    def _start_rows(self, prompts: Prompts, free: int) -> Prompts | None:
        """Starts up to `free` rows of these prompts; gives back what could not be started."""
        rows: list[Row] = []
        places: list[int] = []
        held: Prompts | None = None
        for place, index in enumerate(prompts.requests):
            first = self._next_sample[index]
            last = min(self._requests[index].num_samples, first + free - len(rows))
            samples = range(first, last)
            keys = stream_keys([self._requests[index].seed] * len(samples), samples)
            rows += [
                Row(request=index, sample=sample, key=key)
                for sample, key in zip(samples, keys, strict=True)
            ]
            places += [place] * len(samples)
            self._next_sample[index] = last
            if last < self._requests[index].num_samples:
                held = _only_row(prompts, place)
        logits = prompts.logits[torch.tensor(places, device=prompts.logits.device)]
        finished = set(self._draw(rows, logits))
        staying = [number for number in range(len(rows)) if number not in finished]
        if staying:
            self._cache.admit(
                prompts.cache,
                [places[number] for number in staying],
                [len(self._prompts[rows[number].request]) for number in staying],
            )
            self._rows += [rows[number] for number in staying]
        return held

    def _step(self) -> None:
        """One token for every row; rows that finished leave the batch and the cache."""
        logits = self._model.decode([row.ids[-1] for row in self._rows], self._cache)
        finished = set(self._draw(self._rows, logits))
        if finished:
            survivors = [n for n in range(len(self._rows)) if n not in finished]
            order = self._cache.keep(survivors)
            self._rows = [self._rows[number] for number in order]

    def _draw(self, rows: list[Row], logits: torch.Tensor) -> list[int]:
        """Draws a token for each row and records it; the numbers of the rows that are finished."""
        steps = np.array([len(row.ids) for row in rows], dtype=np.int64)
        keys = np.array([row.key for row in rows], dtype=np.uint64)
        device = logits.device
        young = steps < self._sampling.min_tokens
        ban = bool(young.any()) and bool(self._eos)
        drawn = sample_tokens(
            logits,
            torch.from_numpy(uniforms(keys, steps)).to(device),
            sampling=self._sampling,
            banned_ids=self._eos_tensor if ban else None,
            banned_rows=torch.from_numpy(young).to(device) if ban else None,
        )
        # Ids are exact in float64, so one transfer from the device brings all three.
        numbers = torch.stack(
            [drawn.ids.double(), drawn.logprobs.double(), drawn.kept_mass.double()]
        )
        finished = []
        for number, (row, (token, logprob, kept)) in enumerate(
            zip(rows, numbers.T.tolist(), strict=True)
        ):
            row.ids.append(int(token))
            row.logprobs.append(logprob)
            row.kept_mass.append(kept)
            reason = self._finish_reason(row)
            if reason is not None:
                self._finish(row, reason)
                finished.append(number)
        return finished

    def _finish_reason(self, row: Row) -> FinishReason | None:
        if row.ids[-1] in self._eos:
            return "eos"
        long_enough = len(row.ids) >= self._sampling.min_tokens
        if long_enough and self._stops.completed_by_last(row.ids):
            return "stop"
        return "length" if len(row.ids) >= self._limits[row.request] else None

    def _finish(self, row: Row, reason: FinishReason) -> None:
        self._done[row.request][row.sample] = Sample(
            ids=row.ids,
            sampling_logprobs=row.logprobs,
            kept_mass=row.kept_mass,
            text=decode(self._tokenizer, row.ids),
            finish_reason=reason,
            weight_version=self._weight_version,
        )


def _shared_prefix_length(prompts: Sequence[tuple[int, ...]]) -> int:
    """How many leading tokens all prompts share, the last of each left out; 0 if too few to pay."""
    if len(prompts) < 2:
        return 0
    low, high = min(prompts), max(prompts)
    length = min(len(prompt) for prompt in prompts) - 1
    for position, (left, right) in enumerate(zip(low, high, strict=False)):
        if position >= length or left != right:
            length = min(length, position)
            break
    return length if length * (len(prompts) - 1) >= MIN_TOKENS_SAVED else 0


def _only_row(prompts: Prompts, place: int) -> Prompts:
    """One prompt of several, copied so that the others can be freed."""
    cache = DynamicCache()
    for index, layer in enumerate(prompts.cache.layers):
        cache.update(layer.keys[place : place + 1], layer.values[place : place + 1], index)
    return Prompts(
        requests=[prompts.requests[place]],
        cache=cache,
        logits=prompts.logits[place : place + 1].clone(),
    )
