"""One completion while it grows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """A prompt and what has been sampled behind it.

    Attributes:
        request, sample: which of the call's requests, and which of its samples.
        key: starts its stream of random numbers.
        prompt: ids of prompt and prefix; at least one.
        limit: most tokens to sample.
        ids: tokens sampled so far, kept here while the sequence has no slot.
        logprobs, kept_mass: of these tokens.
        slot: its place in the running batch; -1 where it waits.
        num_cached: tokens of `tokens` whose keys and values are in the cache, or will be before
            anything reads them.
        copied: a part-full page that it takes over, and its own page for it, until that is done.
    """

    request: int
    sample: int
    key: np.uint64
    prompt: tuple[int, ...]
    limit: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    kept_mass: list[float] = field(default_factory=list)
    slot: int = -1
    num_cached: int = 0
    copied: tuple[int, int] | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt and sampled tokens."""
        return (*self.prompt, *self.ids)

    @property
    def num_before_decoding(self) -> int:
        """Tokens that prefill processes: all but the last, which is the first step's input."""
        return len(self.prompt) + len(self.ids) - 1
