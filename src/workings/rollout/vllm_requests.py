"""Our requests in vLLM's words. Pure functions; vLLM itself is imported in `vllm_engine` only.

One request with n samples becomes n requests of one sample with seeds of their own: vLLM's `n` with
one seed gives its children seeds that depend on their number only, and its greedy sampling refuses
`n` above 1.
"""

from __future__ import annotations

from typing import Any

from workings.errors import EngineError
from workings.rollout.engine import Request, SamplingParams
from workings.seeds import derive_seed

LOWEST_TEMPERATURE = 0.01
"""vLLM raises a smaller positive temperature to this one, with no more than a log line."""

LOGPROB_COLUMNS = 1
"""vLLM returns one column more than asked for: the sampled token's, then the likeliest one's."""


def check_sampling(sampling: SamplingParams) -> None:
    """Raise EngineError for settings that vLLM would take and mean something else by."""
    if 0.0 < sampling.temperature < LOWEST_TEMPERATURE:
        raise EngineError(
            f"temperature={sampling.temperature:g}; vLLM samples at {LOWEST_TEMPERATURE:g} or more",
            hint="use sampling.temperature=0 for greedy samples, or engine.name=transformers",
        )
    if sampling.temperature > 0 and sampling.min_p > 0.0 and sampling.top_p < 1.0:
        raise EngineError(
            f"min_p={sampling.min_p:g} with top_p={sampling.top_p:g}: vLLM applies min_p first and "
            "takes top_p of what it left, the other engines the other way round, so the same "
            "settings would not mean the same distribution",
            hint="set one of the two, or use engine.name=transformers",
        )


def sampling_arguments(
    request: Request, sampling: SamplingParams, *, sample: int, eos_token_ids: tuple[int, ...]
) -> dict[str, Any]:
    """The keyword arguments of `vllm.SamplingParams` for one sample of a request.

    Ends are ours: EOS ids are stop tokens and vLLM's own are ignored; stop strings are looked for
    by `VLLMBatch`, since vLLM neither keeps the whole token that completes one nor allows one at
    token `min_tokens`. Without them it reports a completion once, when it is finished.
    """
    limit = request.limit(sampling)
    greedy = sampling.temperature == 0
    return {
        "n": 1,
        "temperature": sampling.temperature,
        "top_p": 1.0 if greedy else sampling.top_p,
        "top_k": 0 if greedy else max(sampling.top_k, 0),
        "min_p": 0.0 if greedy else sampling.min_p,
        "seed": derive_seed(request.seed, "sample", sample),
        "max_tokens": limit,
        "min_tokens": min(sampling.min_tokens, limit),
        "stop": None,
        "stop_token_ids": list(eos_token_ids),
        "ignore_eos": True,
        "logprobs": LOGPROB_COLUMNS if sampling.logprobs else None,
        "flat_logprobs": sampling.logprobs,
        "detokenize": False,
    }
