"""Our requests in vLLM's words: nothing is left to its defaults, nothing means another thing."""

from __future__ import annotations

import pytest

from workings.errors import EngineError
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.vllm_requests import check_sampling, sampling_arguments

REQUEST = Request(prompt_ids=(5, 6), num_samples=3, seed=11)


def arguments(sampling: SamplingParams, *, request: Request = REQUEST, sample: int = 0) -> dict:
    return sampling_arguments(request, sampling, sample=sample, eos_token_ids=(2, 3))


def test_every_setting_is_passed_on() -> None:
    sampling = SamplingParams(
        temperature=0.7, top_p=0.9, top_k=40, max_tokens=9, min_tokens=2, stop=("</a>",)
    )
    given = arguments(sampling)
    assert {name: given[name] for name in ("temperature", "top_p", "top_k", "min_p")} == {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.0,
    }
    assert (given["max_tokens"], given["min_tokens"], given["n"]) == (9, 2, 1)


def test_ends_are_ours() -> None:
    given = arguments(SamplingParams(stop=("x",)))
    assert given["stop_token_ids"] == [2, 3]
    assert given["ignore_eos"] is True
    assert given["stop"] is None
    assert given["detokenize"] is False


def test_top_k_that_is_off_is_zero_for_vllm() -> None:
    assert arguments(SamplingParams(top_k=-1))["top_k"] == 0


def test_greedy_asks_for_no_truncation() -> None:
    given = arguments(SamplingParams(temperature=0, top_p=0.5, top_k=3, min_p=0.2))
    assert (given["temperature"], given["top_p"], given["top_k"], given["min_p"]) == (0, 1.0, 0, 0)


def test_seeds_differ_by_sample_and_request_and_repeat() -> None:
    sampling = SamplingParams()
    seeds = [arguments(sampling, sample=sample)["seed"] for sample in range(4)]
    other = arguments(sampling, request=Request(prompt_ids=(5,), seed=12))["seed"]
    assert len({*seeds, other}) == 5
    assert seeds == [arguments(sampling, sample=sample)["seed"] for sample in range(4)]
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_request_may_be_shorter_than_min_tokens() -> None:
    request = Request(prompt_ids=(5,), prefix_ids=(6,), max_tokens=3)
    given = arguments(SamplingParams(max_tokens=9, min_tokens=5), request=request)
    assert (given["max_tokens"], given["min_tokens"]) == (3, 3)


def test_logprobs_are_asked_for_only_if_wanted() -> None:
    assert arguments(SamplingParams())["logprobs"] == 1
    assert arguments(SamplingParams(logprobs=False))["logprobs"] is None


def test_a_tiny_temperature_is_refused() -> None:
    with pytest.raises(EngineError, match=r"temperature=0.005; vLLM samples at 0.01 or more"):
        check_sampling(SamplingParams(temperature=0.005))
    check_sampling(SamplingParams(temperature=0))
    check_sampling(SamplingParams(temperature=0.01))


def test_min_p_with_top_p_is_refused() -> None:
    with pytest.raises(EngineError, match=r"min_p=0.1 with top_p=0.9: vLLM applies min_p first"):
        check_sampling(SamplingParams(min_p=0.1, top_p=0.9))
    check_sampling(SamplingParams(min_p=0.1, top_k=5))
    check_sampling(SamplingParams(temperature=0, min_p=0.1, top_p=0.9))
