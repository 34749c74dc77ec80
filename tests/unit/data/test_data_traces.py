"""Teacher traces to ids: the thought tag, EOS, limits, recorded probabilities, immutable rows."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from tiny import tiny_tokenizer
from workings.data.encoding import encode_prompts
from workings.data.templates import PromptTemplate
from workings.data.traces import (
    PROBABILITIES,
    EncodedTrace,
    EncodedTraces,
    encode_traces,
    traces_by_question,
    was_cut,
)
from workings.errors import DataError
from workings.types import Demonstration, Problem

TOKENIZER = tiny_tokenizer()
EOS = TOKENIZER.eos_token_id
OPEN = PromptTemplate(name="open", before="Q: ", after="\n<think>\n")
PLAIN = PromptTemplate(name="plain", before="Q: ", after="\nA: ")
TRACE = "<think>\nthink it\n</think>\nhello"


def problem(name: str = "a", question: str = "2+2?") -> Problem:
    return Problem(id=name, question=question, answer="4")


def demonstration(response: str = TRACE, **extra: object) -> Demonstration:
    return Demonstration(id="a/trace0", question="2+2?", response=response, extra=extra)


def encode(*rows: Demonstration, template: PromptTemplate = OPEN, **settings: Any) -> EncodedTraces:
    prompts = encode_prompts([problem()], template, TOKENIZER).items
    return encode_traces(prompts, {"a": rows}, template, TOKENIZER, **settings)


def only(traces: EncodedTraces) -> EncodedTrace:
    (trace,) = traces.by_problem["a"]
    return trace


def test_D7_the_opened_tag_is_removed_as_a_prefix() -> None:
    assert only(encode(demonstration())).text == "think it\n</think>\nhello"


def test_the_tag_stays_where_the_prompt_does_not_open_the_thought() -> None:
    trace = only(encode(demonstration(), template=PLAIN))
    assert trace.text == TRACE


def test_eos_stands_once_at_the_end_as_an_id() -> None:
    for response in (TRACE, TRACE + TOKENIZER.eos_token):
        trace = only(encode(demonstration(response)))
        assert trace.ids[-1] == EOS
        assert trace.ids.count(EOS) == 1
        assert TOKENIZER.decode(list(trace.ids[:-1])) == trace.text


def test_the_ids_are_those_of_a_demonstration() -> None:
    from workings.data.encoding import encode_demonstration

    row = demonstration()
    assert only(encode(row)).ids == encode_demonstration(row, OPEN, TOKENIZER).response_ids


def test_a_prompt_without_a_trace_is_absent() -> None:
    prompts = encode_prompts([problem("a"), problem("b")], OPEN, TOKENIZER).items
    traces = encode_traces(prompts, {"b": (demonstration(),)}, OPEN, TOKENIZER)
    assert list(traces.by_problem) == ["b"]
    assert traces.num_traces == 1
    assert traces.describe() == (
        f"teacher traces: 1 for 1 of 2 prompts, the longest of {traces.longest} tokens"
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (demonstration("x" * 50), "too_long"),
        (demonstration("<think>\nso far"), "cut"),
        (demonstration("hello", finish_reason="length"), "cut"),
        (demonstration("hello", truncated=True), "cut"),
    ],
)
def test_a_cut_trace_is_dropped_and_counted_never_ended(row: Demonstration, reason: str) -> None:
    traces = encode(row, demonstration("hello"), max_trace_length=40)
    assert traces.dropped == {reason: 1}
    assert [trace.text for trace in traces.by_problem["a"]] == ["hello"]
    assert "1 left out" in traces.describe()
    with pytest.raises(DataError, match=rf"a/trace0: a trace of \d+ tokens is {reason[:3]}"):
        encode(row, max_trace_length=40, on_cut="error")


def test_a_trace_at_the_limit_is_kept_with_its_eos() -> None:
    length = len(only(encode(demonstration())).ids)
    assert only(encode(demonstration(), max_trace_length=length)).ids[-1] == EOS
    assert encode(demonstration(), max_trace_length=length - 1).by_problem == {}


def test_only_a_thought_that_never_closes_is_cut() -> None:
    assert was_cut(demonstration("<think>\nso far"))
    assert not was_cut(demonstration("no thought at all"))
    assert not was_cut(demonstration("late </think> tag", finish_reason="stop"))
    assert not was_cut(demonstration("<think> open", truncated=False), thought_tag="<reason>")


def test_recorded_probabilities_become_logprobs_of_every_id_with_eos() -> None:
    length = len(only(encode(demonstration("hello"))).ids)
    values = [0.5, 0.0][:length]
    trace = only(
        encode(demonstration("hello", **{PROBABILITIES: values}), recorded_probabilities=True)
    )
    assert len(trace.logprobs) == len(trace.ids) == 2
    assert trace.logprobs == pytest.approx([math.log(0.5), math.log(1e-20)])
    assert only(encode(demonstration("hello", **{PROBABILITIES: values}))).logprobs == ()


def test_recorded_probabilities_that_do_not_fit_are_an_error() -> None:
    def read(values: object) -> None:
        encode(demonstration("hello", **{PROBABILITIES: values}), recorded_probabilities=True)

    with pytest.raises(DataError, match="3 recorded probabilities for a trace of 2 tokens, EOS"):
        read([0.5, 0.5, 0.5])
    with pytest.raises(DataError, match=r"\[1\] is -0.7; expected a probability"):
        read([0.5, -0.7])
    with pytest.raises(DataError, match="is no list of numbers"):
        read("0.5")
    with pytest.raises(DataError, match="none of the traces has recorded probabilities"):
        encode(demonstration("hello"), recorded_probabilities=True)


def test_rows_cannot_be_edited_in_place() -> None:
    row = demonstration()
    trace = only(encode(row))
    assert isinstance(trace.ids, tuple)
    with pytest.raises(FrozenInstanceError):
        trace.ids = ()  # type: ignore[misc]
    assert row.response == TRACE, "encoding left the row as it was"
    assert only(encode(row)) == trace, "a second epoch finds the same"


def test_traces_are_found_by_question() -> None:
    rows = [demonstration("one"), replace(demonstration("two"), question=" 2+2?\n")]
    stranger = replace(demonstration(), question="3+3?")
    matched = traces_by_question([problem(), problem("b", "9+9?")], [*rows, stranger])
    assert [row.response for row in matched.by_problem["a"]] == ["one", "two"]
    assert list(matched.by_problem) == ["a"]
    assert matched.num_unmatched == 1
