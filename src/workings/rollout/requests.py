"""What every engine asks of its requests, and how it describes its settings. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from workings.errors import EngineError
from workings.rollout.engine import Request, SamplingParams


def check_request(
    request: Request, sampling: SamplingParams, *, vocabulary: int, max_positions: int | None
) -> None:
    """Raise EngineError for a request that a model of this size cannot answer.

    `max_positions` is None where the model states no limit.
    """
    ids = (*request.prompt_ids, *request.prefix_ids)
    if not ids:
        raise EngineError("a request has an empty prompt; the model needs at least one token")
    if request.num_samples < 1:
        raise EngineError(f"num_samples={request.num_samples}; expected 1 or more")
    if min(ids) < 0 or max(ids) >= vocabulary:
        raise EngineError(
            f"a prompt holds the token id {max(ids) if min(ids) >= 0 else min(ids)}, outside "
            f"the model's vocabulary of {vocabulary}",
            hint="the tokenizer belongs to another model",
        )
    max_tokens = request.limit(sampling)
    if max_positions is not None and len(ids) + max_tokens > max_positions:
        raise EngineError(
            f"a prompt of {len(ids)} tokens and max_tokens={max_tokens} need "
            f"{len(ids) + max_tokens} positions; the model has {max_positions}",
            hint="lower sampling.max_tokens or data.max_prompt_length",
        )


def describe_sampling(sampling: SamplingParams, eos_token_ids: Sequence[int]) -> str:
    """The sampling settings in effect, in one line that says where they come from."""

    def switch(name: str, value: float, off: bool) -> str:
        return f"{name} off" if off else f"{name} {value:g}"

    parts = (
        "greedy" if sampling.temperature == 0 else f"temperature {sampling.temperature:g}",
        switch("top_p", sampling.top_p, sampling.top_p >= 1.0),
        switch("top_k", sampling.top_k, sampling.top_k <= 0),
        switch("min_p", sampling.min_p, sampling.min_p <= 0.0),
        f"max_tokens {sampling.max_tokens}",
        f"min_tokens {sampling.min_tokens}",
        "stop " + (", ".join(map(repr, sampling.stop)) or "none") + " (kept in the text)",
        f"EOS ids {', '.join(map(str, eos_token_ids)) or 'none'}",
    )
    return (
        "; ".join(parts) + ". From the run's configuration; the model's generation_config is "
        "not read."
    )
