"""The scripted engine: canned text, stale, slow and dead."""

from __future__ import annotations

import time

import pytest
import torch

from tiny import tiny_tokenizer
from workings.errors import EngineError
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.scripted import ScriptedEngine

TOKENIZER = tiny_tokenizer()
PROMPT = tuple(TOKENIZER.encode("hi"))
SAMPLING = SamplingParams(max_tokens=50)


def test_texts_come_in_order_and_repeat() -> None:
    engine = ScriptedEngine(TOKENIZER, ["one", "two", "three"])
    groups = engine.generate([Request(prompt_ids=PROMPT, num_samples=2)] * 2, SAMPLING)
    assert [[s.text for s in g] for g in groups] == [["one", "two"], ["three", "one"]]
    sample = groups[0][0]
    assert sample.ids == [*TOKENIZER.encode("one"), TOKENIZER.eos_token_id]
    assert sample.finish_reason == "eos"
    assert len(sample.sampling_logprobs) == len(sample.kept_mass) == len(sample.ids)


def test_a_function_sees_the_request_and_the_sample() -> None:
    engine = ScriptedEngine(TOKENIZER, lambda request, index: f"{len(request.prompt_ids)}:{index}")
    (group,) = engine.generate([Request(prompt_ids=PROMPT, num_samples=2)], SAMPLING)
    assert [sample.text for sample in group] == ["2:0", "2:1"]


def test_stop_strings_and_the_limit_cut_as_a_real_engine_does() -> None:
    engine = ScriptedEngine(TOKENIZER, ["a</s>bcd"])
    request = [Request(prompt_ids=PROMPT)]
    stopped = engine.generate(request, SamplingParams(stop=("</s>",)))[0][0]
    assert (stopped.text, stopped.finish_reason) == ("a</s>", "stop")
    cut = engine.generate(request, SamplingParams(max_tokens=3))[0][0]
    assert (cut.text, cut.finish_reason, len(cut.ids)) == ("a</", "length", 3)


def test_without_eos_a_completion_counts_as_cut() -> None:
    engine = ScriptedEngine(TOKENIZER, ["abc"], add_eos=False)
    sample = engine.generate([Request(prompt_ids=PROMPT)], SAMPLING)[0][0]
    assert (sample.ids, sample.finish_reason) == (TOKENIZER.encode("abc"), "length")


def test_fresh_and_stale_weights() -> None:
    for stale, expected in ((False, 3), (True, 0)):
        engine = ScriptedEngine(TOKENIZER, ["a"], stale=stale)
        engine.load_weights(3, iter([("w", torch.zeros(1))]))
        assert engine.weight_version == expected
        assert engine.num_loads == 1
        sample = engine.generate([Request(prompt_ids=PROMPT)], SAMPLING)[0][0]
        assert sample.weight_version == expected


def test_a_slow_engine_is_ready_later() -> None:
    engine = ScriptedEngine(TOKENIZER, ["a"], delay_seconds=0.05)
    start = time.monotonic()
    pending = engine.submit([Request(prompt_ids=PROMPT)], SAMPLING)
    assert not pending.ready()
    engine.collect(pending)
    assert pending.ready()
    assert time.monotonic() - start >= 0.05


def test_a_dead_engine_raises() -> None:
    engine = ScriptedEngine(TOKENIZER, ["a"], dead_after=1)
    engine.generate([Request(prompt_ids=PROMPT)], SAMPLING)
    with pytest.raises(EngineError, match="died after 1 batches"):
        engine.generate([Request(prompt_ids=PROMPT)], SAMPLING)
    closed = ScriptedEngine(TOKENIZER, ["a"])
    closed.close()
    with pytest.raises(EngineError, match="died"):
        closed.generate([Request(prompt_ids=PROMPT)], SAMPLING)


def test_bad_input_raises() -> None:
    with pytest.raises(EngineError, match="at least one text"):
        ScriptedEngine(TOKENIZER, [])
    with pytest.raises(EngineError, match="was not submitted"):
        ScriptedEngine(TOKENIZER, ["a"]).collect(object())  # type: ignore[arg-type]
