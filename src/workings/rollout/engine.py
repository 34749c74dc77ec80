"""The `Engine` protocol: prompts in, samples out. Every sampler in the package keeps it.

`submit` and `collect` are two calls so that a loop may overlap sampling with training, and so that
an engine may live in another process or on another host; `generate` is both at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from workings.errors import ConfigError, EngineError
from workings.types import Sample

if TYPE_CHECKING:
    import torch


LEAST_KEPT_MASS = 2.0**-126
"""Every engine's smallest `kept_mass`, the smallest normal float32, so that it has a logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to sample. A model's own generation_config is never read; these are all there is.

    Attributes:
        temperature: 0 is greedy.
        top_p: 1.0 is off.
        top_k: 0 or -1 is off.
        min_p: 0.0 is off; keeps tokens with p >= min_p * max p.
        max_tokens: most tokens sampled.
        min_tokens: no EOS and no stop string before so many tokens.
        stop: strings that end a completion; they stay in the text and the ids.
        logprobs: False lets an engine skip the float32 log-softmax (evaluation); the
            `sampling_logprobs` are then NaN.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    max_tokens: int = 1024
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    logprobs: bool = True

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ConfigError(f"temperature={self.temperature}; expected 0 (greedy) or more")
        if not 0.0 < self.top_p <= 1.0:
            raise ConfigError(f"top_p={self.top_p}; expected a value in (0, 1]")
        if not 0.0 <= self.min_p <= 1.0:
            raise ConfigError(f"min_p={self.min_p}; expected a value in [0, 1]")
        if self.top_k < -1:
            raise ConfigError(f"top_k={self.top_k}; expected -1 or 0 (off) or a positive number")
        if self.max_tokens < 1 or not 0 <= self.min_tokens <= self.max_tokens:
            raise ConfigError(
                f"max_tokens={self.max_tokens}, min_tokens={self.min_tokens}; "
                "expected max_tokens >= 1 and 0 <= min_tokens <= max_tokens"
            )
        if any(not text for text in self.stop):
            raise ConfigError("an empty stop string would end every completion at once; remove it")

    @property
    def truncates(self) -> bool:
        """True when top-k, top-p or min-p cut the distribution."""
        return self.temperature > 0 and (self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt and how many completions to draw for it.

    Attributes:
        prompt_ids: the prompt's token ids; sampled from as they are.
        prefix_ids: tokens that every completion begins with and that the engine does not sample
            (a teacher prefix); they are not part of the returned ids.
        num_samples: completions to draw; the prompt is processed once for all of them.
        max_tokens: most tokens sampled after the prefix, where that is less than the sampling
            parameters allow; None leaves it to them.
        seed: the draws of this request are a function of it, whatever else is in the batch.
    """

    prompt_ids: tuple[int, ...]
    prefix_ids: tuple[int, ...] = ()
    num_samples: int = 1
    seed: int = 0
    max_tokens: int | None = None

    def limit(self, sampling: SamplingParams) -> int:
        """Most tokens sampled for this request; EngineError where that is less than one."""
        limit = sampling.max_tokens
        if self.max_tokens is not None:
            limit = min(limit, self.max_tokens)
        if limit < 1:
            raise EngineError(
                f"a request allows max_tokens={self.max_tokens}; expected 1 or more",
                hint="a prefix has to leave room for a continuation",
            )
        return limit


class Pending(Protocol):
    """A submitted batch; `ready()` says whether `collect` would return at once."""

    def ready(self) -> bool: ...


class Engine(Protocol):
    """A sampler with its own idea of where weights live."""

    @property
    def weight_version(self) -> int:
        """Version given to the last `load_weights`; 0 for the weights it started with."""
        ...

    def submit(self, requests: Sequence[Request], sampling: SamplingParams) -> Pending:
        """A handle to the work; raises EngineError where the engine cannot do what is asked."""
        ...

    def collect(self, pending: Pending) -> list[list[Sample]]:
        """One list per request, in the order submitted, of `num_samples` samples each."""
        ...

    def generate(self, requests: Sequence[Request], sampling: SamplingParams) -> list[list[Sample]]:
        """`collect(submit(...))`."""
        ...

    def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take new weights, (Hugging Face name, full tensor) one at a time."""
        ...

    def sleep(self) -> None:
        """Give memory back until `wake`.

        The weights may go with it: after a sleep, `load_weights` comes before the next sample.
        """
        ...

    def wake(self) -> None:
        """Be ready to sample again."""
        ...

    def close(self) -> None:
        """Release everything; the engine is not usable afterwards."""
        ...
