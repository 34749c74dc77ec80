"""An engine that says what it is told to: canned text for tests and documentation.

It keeps the `Engine` protocol without a model, and can be stale, slow or dead on request, so that
what a loop does about a bad engine can be tested.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workings.data.tokenizer import Tokenizer
from workings.errors import EngineError
from workings.rollout.engine import Pending, Request, SamplingParams
from workings.rollout.stop_strings import StopStrings, decode
from workings.types import FinishReason, Sample

if TYPE_CHECKING:
    import torch

Script = Callable[[Request, int], str]
"""(request, sample index) -> the completion's text."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """A batch and the time at which it is ready, in `time.monotonic` seconds."""

    samples: list[list[Sample]]
    ready_at: float

    def ready(self) -> bool:
        """True once the engine's delay is over."""
        return time.monotonic() >= self.ready_at


class ScriptedEngine:
    """Answers with given texts.

    Args:
        tokenizer: turns texts into ids, without special tokens.
        texts: completions in the order they are asked for, repeated from the start when they run
            out; or a function of the request and the sample index.
        add_eos: end every completion that was not cut with the tokenizer's EOS.
        logprob: what every token's `sampling_logprobs` says.
        stale: `load_weights` is accepted and changes nothing.
        delay_seconds: how long a batch takes.
        dead_after: raise EngineError from so many batches on; None never.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        texts: Sequence[str] | Script,
        *,
        add_eos: bool = True,
        logprob: float = -1.0,
        stale: bool = False,
        delay_seconds: float = 0.0,
        dead_after: int | None = None,
    ) -> None:
        if not callable(texts) and not texts:
            raise EngineError("a scripted engine needs at least one text")
        self._tokenizer = tokenizer
        self._script: Script = texts if callable(texts) else _in_order(texts)
        self._add_eos = add_eos
        eos = tokenizer.eos_token_id
        self._eos_token_ids = () if eos is None else (eos,)
        self._logprob = logprob
        self._stale = stale
        self._delay_seconds = delay_seconds
        self._dead_after = dead_after
        self._batches = 0
        self._weight_version = 0
        self.num_loads = 0

    @property
    def weight_version(self) -> int:
        """Version given to the last `load_weights` that was not ignored."""
        return self._weight_version

    def submit(self, requests: Sequence[Request], sampling: SamplingParams) -> Pending:
        """The batch; raises EngineError when the engine is dead."""
        if self._dead_after is not None and self._batches >= self._dead_after:
            raise EngineError(
                f"the scripted engine died after {self._batches} batches",
                hint="it was told to (dead_after)",
            )
        self._batches += 1
        samples = [
            [
                self._sample(self._script(request, index), sampling, request.limit(sampling))
                for index in range(request.num_samples)
            ]
            for request in requests
        ]
        return Scripted(samples, time.monotonic() + self._delay_seconds)

    def collect(self, pending: Pending) -> list[list[Sample]]:
        """One list per request, after the engine's delay."""
        if not isinstance(pending, Scripted):
            raise EngineError(f"a {type(pending).__name__} was not submitted to this engine")
        time.sleep(max(0.0, pending.ready_at - time.monotonic()))
        return pending.samples

    def generate(self, requests: Sequence[Request], sampling: SamplingParams) -> list[list[Sample]]:
        """`collect(submit(...))`."""
        return self.collect(self.submit(requests, sampling))

    def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Records the version, and reads the tensors to their end as a real engine would."""
        for _ in tensors:
            pass
        self.num_loads += 1
        if not self._stale:
            self._weight_version = version

    def sleep(self) -> None:
        """Nothing to give back."""

    def wake(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Dead from here on."""
        self._dead_after = 0

    def _sample(self, text: str, sampling: SamplingParams, limit: int) -> Sample:
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        reason: FinishReason = "eos"
        if self._add_eos and self._tokenizer.eos_token_id is not None:
            ids = [*ids, self._tokenizer.eos_token_id]
        else:
            reason = "length"
        stops = StopStrings(self._tokenizer, sampling.stop, eos_token_ids=self._eos_token_ids)
        for length in range(max(1, sampling.min_tokens), len(ids) + 1):
            if stops.completed_by_last(ids[:length]):
                ids, reason = ids[:length], "stop"
                break
        if len(ids) > limit:
            ids, reason = ids[:limit], "length"
        return Sample(
            ids=ids,
            sampling_logprobs=[self._logprob] * len(ids),
            kept_mass=[1.0] * len(ids),
            text=decode(self._tokenizer, ids),
            finish_reason=reason,
            weight_version=self._weight_version,
        )


def _in_order(texts: Sequence[str]) -> Script:
    supply: Iterator[str] = itertools.cycle(texts)

    def script(request: Request, index: int) -> str:
        return next(supply)

    return script
