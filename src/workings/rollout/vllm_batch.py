"""A submitted batch while vLLM's outputs come in: ids to samples, under our rules for ends.

What vLLM reports is checked rather than trusted: every token has a finite log-probability of its
own, and a completion ends where our own rules say that it ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from workings.data.tokenizer import Tokenizer
from workings.errors import EngineError
from workings.rollout.engine import LEAST_KEPT_MASS, Request, SamplingParams
from workings.rollout.engine_errors import broken_logits
from workings.rollout.stop_strings import StopStrings, decode
from workings.types import FinishReason, Sample

COLUMNS = 2
"""Per token: the log-probability over the full vocabulary, and the log of the kept mass."""


class FlatColumns(Protocol):
    """vLLM's `FlatLogprobs`: `COLUMNS` entries for every token, one after the other."""

    token_ids: Sequence[int]
    logprobs: Sequence[float]


class Completion(Protocol):
    """What is read of vLLM's `CompletionOutput`; `logprobs` is a `FlatColumns` or None."""

    token_ids: Sequence[int]
    logprobs: object
    finish_reason: str | None


@dataclass(slots=True, kw_only=True)
class Growing:
    """One completion while it grows."""

    limit: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    kept_mass: list[float] = field(default_factory=list)
    reason: FinishReason | None = None


class VLLMBatch:
    """The completions of one `submit`, by the names under which vLLM knows them.

    Args:
        name: without a dash; begins the names, so that no two batches share one.
        weight_version: of the weights that vLLM had when the batch was submitted.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        sampling: SamplingParams,
        tokenizer: Tokenizer,
        *,
        eos_token_ids: Sequence[int],
        weight_version: int,
        name: str,
    ) -> None:
        self.name = name
        self._sampling = sampling
        self._tokenizer = tokenizer
        self._eos = frozenset(eos_token_ids)
        self._stops = StopStrings(tokenizer, sampling.stop, eos_token_ids=self._eos)
        self._weight_version = weight_version
        self._rows = {
            f"{name}-{index}-{sample}": Growing(limit=request.limit(sampling))
            for index, request in enumerate(requests)
            for sample in range(request.num_samples)
        }
        self._counts = [request.num_samples for request in requests]
        self._num_open = len(self._rows)

    @property
    def names(self) -> list[str]:
        """Names of all completions: by request, then by sample."""
        return list(self._rows)

    def ready(self) -> bool:
        """True once every completion is finished."""
        return self._num_open == 0

    def take(self, name: str, completion: Completion) -> bool:
        """Adds new tokens to a completion; True where vLLM has to be told to end it.

        Raises EngineError where vLLM's account of a completion cannot be right.
        """
        row = self._rows.get(name)
        if row is None:
            raise EngineError(f"vLLM reports on {name!r}, which is not of this batch")
        if row.reason is not None:  # tokens that were under way when it was told to end
            return False
        logprobs, kept_mass = token_columns(completion, wanted=self._sampling.logprobs)
        if not self._sampling.logprobs and not _is_whole(self._sampling):
            kept_mass = [math.nan] * len(logprobs)
        for token, logprob, kept in zip(completion.token_ids, logprobs, kept_mass, strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)
            row.kept_mass.append(kept)
            row.reason = self._reason(row)
            if row.reason is not None:
                break
        ended = completion.finish_reason
        if row.reason is None and ended is not None:
            raise EngineError(
                f"vLLM ended a completion after {len(row.ids)} of {row.limit} tokens (its reason: "
                f"{ended}), although neither EOS nor a stop string was sampled",
                hint="look for an earlier error of vLLM, such as a full cache",
            )
        self._num_open -= row.reason is not None
        return row.reason is not None and ended is None

    def samples(self) -> list[list[Sample]]:
        """One list per request, in the order submitted."""
        rows = iter(self._rows.values())
        return [[self._sample(next(rows)) for _ in range(count)] for count in self._counts]

    def _reason(self, row: Growing) -> FinishReason | None:
        if row.ids[-1] in self._eos:
            return "eos"
        if len(row.ids) >= self._sampling.min_tokens and self._stops.completed_by_last(row.ids):
            return "stop"
        return "length" if len(row.ids) >= row.limit else None

    def _sample(self, row: Growing) -> Sample:
        if row.reason is None:
            raise EngineError("a batch was asked for samples that are not finished")
        return Sample(
            ids=row.ids,
            sampling_logprobs=row.logprobs,
            kept_mass=row.kept_mass,
            text=decode(self._tokenizer, row.ids),
            finish_reason=row.reason,
            weight_version=self._weight_version,
        )


def token_columns(completion: Completion, *, wanted: bool) -> tuple[list[float], list[float]]:
    """(log-probabilities, kept masses) of a completion's tokens; NaN and 1.0 if not wanted.

    Raises EngineError where they do not belong to the tokens one by one, or are not finite.
    """
    num_tokens = len(completion.token_ids)
    if not wanted:
        return [math.nan] * num_tokens, [1.0] * num_tokens
    flat: FlatColumns | None = completion.logprobs  # type: ignore[assignment]
    if flat is None:
        raise EngineError(f"vLLM gave no log-probabilities for {num_tokens} tokens")
    if list(flat.token_ids[::COLUMNS]) != list(completion.token_ids):
        raise EngineError(
            f"vLLM gave log-probabilities of {len(flat.token_ids) / COLUMNS:g} tokens that are not "
            f"the {num_tokens} tokens it sampled",
            hint="this version of vLLM reports them in another layout; 0.23 is the one tested",
        )
    logprobs, log_kept = list(flat.logprobs[::COLUMNS]), flat.logprobs[1::COLUMNS]
    if not all(map(math.isfinite, logprobs)):
        raise broken_logits()
    return logprobs, [min(1.0, max(LEAST_KEPT_MASS, math.exp(value))) for value in log_kept]


def _is_whole(sampling: SamplingParams) -> bool:
    """True where every token of the vocabulary can be drawn at every step."""
    return not sampling.truncates and (sampling.min_tokens == 0 or sampling.temperature == 0)
