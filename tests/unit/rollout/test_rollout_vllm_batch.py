"""vLLM's outputs to samples, on records with the fields of vLLM 0.23's output types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tiny import tiny_tokenizer
from workings.errors import EngineError
from workings.rollout.engine import LEAST_KEPT_MASS, Request, SamplingParams
from workings.rollout.vllm_batch import VLLMBatch, token_columns

TOKENIZER = tiny_tokenizer()
EOS = TOKENIZER.eos_token_id


@dataclass
class FlatLogprobs:
    """As `vllm.logprobs.FlatLogprobs`."""

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ranks: list[int | None] = field(default_factory=list)
    decoded_tokens: list[str | None] = field(default_factory=list)


@dataclass
class CompletionOutput:
    """As `vllm.outputs.CompletionOutput`."""

    index: int
    text: str
    token_ids: Sequence[int]
    cumulative_logprob: float | None
    logprobs: FlatLogprobs | None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


def output(
    ids: Sequence[int], *, reason: str | None = None, logprob: float = -1.5, log_kept: float = 0.0
) -> CompletionOutput:
    flat = FlatLogprobs()
    for token in ids:
        flat.start_indices.append(len(flat.logprobs))
        flat.token_ids += [token, 0]
        flat.logprobs += [logprob, log_kept]
        flat.ranks += [1, 1]
        flat.decoded_tokens += [None, None]
        flat.end_indices.append(len(flat.logprobs))
    return CompletionOutput(0, "", list(ids), logprob * len(ids), flat, reason)


def ids_of(text: str) -> list[int]:
    ids: list[int] = TOKENIZER.encode(text, add_special_tokens=False)
    return ids


def batch(sampling: SamplingParams, *requests: Request) -> VLLMBatch:
    return VLLMBatch(
        requests or (Request(prompt_ids=(7,)),),
        sampling,
        TOKENIZER,
        eos_token_ids=[EOS],
        weight_version=4,
        name="0",
    )


def test_a_whole_completion_that_ends_in_eos() -> None:
    growing = batch(SamplingParams(max_tokens=20))
    assert growing.names == ["0-0-0"]
    assert not growing.ready()
    told_to_end = growing.take("0-0-0", output([*ids_of("hi"), EOS], reason="stop"))
    assert not told_to_end
    assert growing.ready()
    [[sample]] = growing.samples()
    assert sample.ids == [*ids_of("hi"), EOS]
    assert (sample.text, sample.finish_reason, sample.weight_version) == ("hi", "eos", 4)
    assert sample.sampling_logprobs == [-1.5] * 3
    assert sample.kept_mass == [1.0] * 3


def test_samples_stand_in_the_order_of_requests_however_they_finish() -> None:
    growing = batch(
        SamplingParams(max_tokens=1),
        Request(prompt_ids=(7,), num_samples=2),
        Request(prompt_ids=(8,), num_samples=1),
    )
    assert growing.names == ["0-0-0", "0-0-1", "0-1-0"]
    for name, text in (("0-1-0", "c"), ("0-0-1", "b"), ("0-0-0", "a")):
        growing.take(name, output(ids_of(text), reason="length"))
    assert [[s.text for s in group] for group in growing.samples()] == [["a", "b"], ["c"]]


def test_the_token_that_completes_a_stop_string_stays_whole_and_vllm_is_told() -> None:
    growing = batch(SamplingParams(max_tokens=20, stop=("lo",)))
    assert not growing.take("0-0-0", output(ids_of("a")))
    assert growing.take("0-0-0", output(ids_of("hello")))
    assert growing.ready()
    # One more token was under way when vLLM was told.
    assert not growing.take("0-0-0", output(ids_of("z")))
    [[sample]] = growing.samples()
    assert (sample.text, sample.finish_reason) == ("ahello", "stop")
    assert sample.ids == ids_of("ahello")


def test_tokens_behind_an_end_are_dropped() -> None:
    growing = batch(SamplingParams(max_tokens=20, stop=("b",)))
    assert growing.take("0-0-0", output(ids_of("abcd")))
    [[sample]] = growing.samples()
    assert sample.text == "ab"


def test_a_stop_string_at_the_last_token_counts_as_stop() -> None:
    growing = batch(SamplingParams(max_tokens=2, stop=("b",)))
    assert not growing.take("0-0-0", output(ids_of("ab"), reason="length"))
    assert growing.samples()[0][0].finish_reason == "stop"


def test_a_stop_string_before_min_tokens_does_not_count_but_at_it_does() -> None:
    growing = batch(SamplingParams(max_tokens=20, min_tokens=3, stop=("b",)))
    assert not growing.take("0-0-0", output(ids_of("ab")))
    assert growing.take("0-0-0", output(ids_of("b")))
    assert growing.samples()[0][0].text == "abb"


def test_a_request_with_its_own_limit_ends_there() -> None:
    growing = batch(SamplingParams(max_tokens=20), Request(prompt_ids=(7,), max_tokens=2))
    growing.take("0-0-0", output(ids_of("ab"), reason="length"))
    assert growing.samples()[0][0].finish_reason == "length"


def test_an_end_without_our_reason_is_an_error() -> None:
    growing = batch(SamplingParams(max_tokens=20))
    with pytest.raises(EngineError, match=r"after 2 of 20 tokens \(its reason: abort\)"):
        growing.take("0-0-0", output(ids_of("ab"), reason="abort"))


def test_an_output_of_another_batch_is_an_error() -> None:
    with pytest.raises(EngineError, match="'9-0-0', which is not of this batch"):
        batch(SamplingParams()).take("9-0-0", output([5]))


def test_samples_before_the_end_are_an_error() -> None:
    with pytest.raises(EngineError, match="not finished"):
        batch(SamplingParams()).samples()


def test_kept_mass_is_the_exponential_of_the_second_column() -> None:
    growing = batch(SamplingParams(max_tokens=1, top_p=0.5))
    growing.take("0-0-0", output(ids_of("a"), reason="length", log_kept=math.log(0.25)))
    assert growing.samples()[0][0].kept_mass == [pytest.approx(0.25)]


def test_a_kept_mass_too_small_for_a_float_has_a_logarithm() -> None:
    growing = batch(SamplingParams(max_tokens=1, min_tokens=1))
    growing.take("0-0-0", output(ids_of("a"), reason="length", log_kept=-2000.0))
    assert growing.samples()[0][0].kept_mass == [LEAST_KEPT_MASS]


def test_a_stop_string_that_is_never_found_is_refused_but_an_eos_is_not() -> None:
    with pytest.raises(EngineError, match="holds the special token"):
        batch(SamplingParams(stop=("<|im_start|>",)))
    batch(SamplingParams(stop=("<|im_end|>",)))


def test_without_logprobs_both_columns_say_that_nothing_is_known() -> None:
    plain, cut = (
        SamplingParams(max_tokens=1, logprobs=False),
        SamplingParams(max_tokens=1, logprobs=False, top_p=0.5),
    )
    for sampling, known in ((plain, True), (cut, False)):
        growing = batch(sampling)
        completion = output(ids_of("a"), reason="length")
        completion.logprobs = None
        growing.take("0-0-0", completion)
        [[sample]] = growing.samples()
        assert math.isnan(sample.sampling_logprobs[0])
        assert (sample.kept_mass == [1.0]) is known


def test_missing_logprobs_are_an_error() -> None:
    completion = output([5, 6])
    completion.logprobs = None
    with pytest.raises(EngineError, match="no log-probabilities for 2 tokens"):
        token_columns(completion, wanted=True)


def test_logprobs_of_other_tokens_are_an_error() -> None:
    completion = output([5, 6])
    completion.token_ids = [5, 7]
    with pytest.raises(EngineError, match=r"of 2 tokens that are not the 2 tokens it sampled"):
        token_columns(completion, wanted=True)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_logprobs_that_are_not_finite_are_an_error(value: float) -> None:
    with pytest.raises(EngineError, match="logits that are not finite"):
        token_columns(output([5], logprob=value), wanted=True)
