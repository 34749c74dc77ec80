"""A rollout as the replay buffer keeps it: four bytes a token for the id and four for its score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from workings.errors import ConfigError
from workings.types import FinishReason, Rollout

IDS, LOGPROBS = "<i4", "<f4"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRollout:
    """A right rollout of an earlier step.

    Attributes:
        packed_ids, packed_logprobs: little-endian int32 and float32, one number per token.
        text, finish_reason, weight_version: as in `types.Rollout`.
        step: of the batch that it was sampled in.
    """

    packed_ids: bytes
    packed_logprobs: bytes
    text: str
    finish_reason: FinishReason
    weight_version: int
    step: int

    def __post_init__(self) -> None:
        if len(self.packed_ids) != len(self.packed_logprobs) or len(self.packed_ids) % 4:
            raise ValueError(
                f"a stored rollout has {len(self.packed_ids)} bytes of ids and "
                f"{len(self.packed_logprobs)} of log-probabilities"
            )

    @property
    def num_tokens(self) -> int:
        """Tokens of the rollout."""
        return len(self.packed_ids) // 4

    @property
    def ids(self) -> tuple[int, ...]:
        """The token ids."""
        return tuple(np.frombuffer(self.packed_ids, IDS).tolist())

    @property
    def logprobs(self) -> tuple[float, ...]:
        """The log-probability that each token had when it was sampled; float32 values."""
        return tuple(np.frombuffer(self.packed_logprobs, LOGPROBS).tolist())

    def to_state(self) -> dict[str, object]:
        """The fields, as plain values."""
        return {
            "ids": self.packed_ids,
            "logprobs": self.packed_logprobs,
            "text": self.text,
            "finish_reason": str(self.finish_reason),
            "weight_version": self.weight_version,
            "step": self.step,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, object]) -> StoredRollout:
        """What `to_state` gave; KeyError, TypeError or ValueError for anything else."""
        return cls(
            packed_ids=bytes(cast(bytes, state["ids"])),
            packed_logprobs=bytes(cast(bytes, state["logprobs"])),
            text=str(state["text"]),
            finish_reason=cast(FinishReason, state["finish_reason"]),
            weight_version=int(cast(int, state["weight_version"])),
            step=int(cast(int, state["step"])),
        )


def stored_rollout(
    rollout: Rollout, *, step: int, logprobs: Sequence[float] | None, problem_id: str
) -> StoredRollout:
    """`rollout` for the buffer, with the given log-probabilities, else the engine's.

    The engine's are those of the behaviour distribution: `sampling_logprobs - log(kept_mass)`.
    ConfigError where they are unknown, since a replay could then not be weighed.
    """
    if logprobs is None:
        pairs = zip(rollout.sampling_logprobs, rollout.kept_mass, strict=True)
        logprobs = [logprob - math.log(kept) for logprob, kept in pairs]
    if len(logprobs) != len(rollout.ids) or not all(map(math.isfinite, logprobs)):
        raise ConfigError(
            f"a rollout of problem {problem_id!r} has {len(rollout.ids)} tokens and "
            f"{sum(map(math.isfinite, logprobs))} known log-probabilities, so it cannot be "
            "replayed",
            hint="set sampling.logprobs=true",
        )
    return StoredRollout(
        packed_ids=np.asarray(rollout.ids, dtype=IDS).tobytes(),
        packed_logprobs=np.asarray(logprobs, dtype=LOGPROBS).tobytes(),
        text=rollout.text,
        finish_reason=rollout.finish_reason,
        weight_version=rollout.weight_version,
        step=step,
    )
