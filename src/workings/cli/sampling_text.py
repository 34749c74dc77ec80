"""Sampling settings in one line, for whoever watches a run."""

from __future__ import annotations

from workings.rollout.engine import SamplingParams


def describe_sampling(sampling: SamplingParams) -> str:
    """Every setting that is in effect, and where it comes from.

    >>> describe_sampling(SamplingParams(temperature=0, max_tokens=64, stop=("</answer>",)))
    "sampling: greedy, max_tokens 64, stop at EOS and '</answer>' (generation_config is not read)"
    """
    parts = ["greedy"] if sampling.temperature == 0 else [f"temperature {sampling.temperature:g}"]
    parts += [f"top_p {sampling.top_p:g}"] if sampling.top_p < 1 else []
    parts += [f"top_k {sampling.top_k}"] if sampling.top_k > 0 else []
    parts += [f"min_p {sampling.min_p:g}"] if sampling.min_p > 0 else []
    parts += [f"max_tokens {sampling.max_tokens}"]
    parts += [f"min_tokens {sampling.min_tokens}"] if sampling.min_tokens else []
    ends = ["EOS", *map(repr, sampling.stop)]
    parts += [f"stop at {' and '.join(ends)}"]
    return f"sampling: {', '.join(parts)} (generation_config is not read)"
