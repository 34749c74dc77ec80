"""What the batches of a run are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from workings.config.grpo import GRPOConfig
from workings.data.sampler import PromptSampler
from workings.data.traces import EncodedTrace
from workings.rewards.reward import Reward
from workings.rollout.engine import Engine, SamplingParams
from workings.rollout.replay import ReplayBuffer
from workings.rollout.replay_batch import Score
from workings.training.distributed import Ranks
from workings.types import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """A teacher's traces by problem id, and how to read their ids back (for partial traces)."""

    traces: Mapping[str, Sequence[EncodedTrace]]
    decode: Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The policy's past successes, the prompts of the run by problem id, and how to rank them."""

    buffer: ReplayBuffer
    prompts: Mapping[str, Prompt]
    score: Score | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a batch is drawn from; the same for the whole run.

    `max_staleness` is how many versions the weights of a sample may lag behind those it trains.
    """

    config: GRPOConfig
    engine: Engine
    sampler: PromptSampler
    sampling: SamplingParams
    reward: Reward
    guidance: Guidance | None = None
    replay: Replay | None = None
    ranks: Ranks = field(default_factory=Ranks)
    max_staleness: int = 0
