"""Length terms: what a completion loses for being long, and which rows truncation leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from workings.errors import ConfigError
from workings.types import FinishReason


def overlong_shaping(num_tokens: int, *, max_tokens: int, buffer: int) -> float:
    """Soft overlong punishment in [-1, 0], added to the reward before group normalisation.

    With L = `num_tokens`, M = `max_tokens`, C = `buffer`: 0 up to M - C, then (M - C - L) / C, and
    -1 above M. Source: DAPO (arXiv 2503.14476), equation 13.

    >>> [overlong_shaping(n, max_tokens=20480, buffer=4096) for n in (16384, 18432, 20480, 20481)]
    [0.0, -0.5, -1.0, -1.0]
    """
    if not 0 < buffer <= max_tokens:
        raise ConfigError(
            f"overlong_buffer={buffer} with max_tokens={max_tokens}; "
            "expected 0 < overlong_buffer <= max_tokens"
        )
    excess = num_tokens - (max_tokens - buffer)
    return -min(max(excess, 0) / buffer, 1.0) + 0.0


def length_penalty(num_tokens: int, *, max_tokens: int, weight: float) -> float:
    """Linear penalty -weight * L / M.

    >>> length_penalty(50, max_tokens=100, weight=0.5)
    -0.25
    """
    if max_tokens < 1:
        raise ConfigError(f"max_tokens={max_tokens}; expected 1 or more")
    return -weight * num_tokens / max_tokens


def kept_when_masking_overlong(finish_reasons: Sequence[FinishReason]) -> list[bool]:
    """False for the truncated rows, which leave numerator and denominator of the loss.

    >>> kept_when_masking_overlong(["eos", "length", "stop"])
    [True, False, True]
    """
    return [reason != "length" for reason in finish_reasons]


def advantages_without_truncated(
    advantages: Sequence[float], finish_reasons: Sequence[FinishReason]
) -> list[float]:
    """The same advantages with 0 for rows that hit the limit; they stay in the denominator.

    >>> advantages_without_truncated([1.0, -1.0], ["eos", "length"])
    [1.0, 0.0]
    """
    return [
        0.0 if reason == "length" else advantage
        for advantage, reason in zip(advantages, finish_reasons, strict=True)
    ]
