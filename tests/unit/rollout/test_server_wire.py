"""The bodies between trainer and inference server: exact there and back, nothing else is read."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.errors import EngineError
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.server.wire import (
    pack,
    pack_requests,
    pack_samples,
    unpack,
    unpack_requests,
    unpack_samples,
)
from workings.types import Sample

ids = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)
requests = st.builds(
    Request,
    prompt_ids=ids,
    prefix_ids=ids,
    num_samples=st.integers(1, 9),
    seed=st.integers(0, 2**63 - 1),
    max_tokens=st.none() | st.integers(1, 100),
)
float32 = st.floats(width=32, allow_nan=False)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    length = draw(st.integers(0, 4))

    def column(values: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(values, min_size=length, max_size=length))

    return Sample(
        ids=draw(st.lists(st.integers(0, 2**31 - 1), min_size=length, max_size=length)),
        sampling_logprobs=column(float32),
        kept_mass=column(float32),
        text=draw(st.text(max_size=5)),
        finish_reason=draw(st.sampled_from(["eos", "stop", "length"])),
        weight_version=draw(st.integers(-1, 10**6)),
    )


@given(st.lists(requests, max_size=4))
def test_requests_come_back_as_they_were(sent: list[Request]) -> None:
    sampling = SamplingParams(temperature=0.7, top_p=0.9, stop=("</answer>", "\n"), min_tokens=3)
    header, arrays = unpack(pack_requests(sent, sampling, number=7))
    assert header["number"] == 7
    assert unpack_requests(header, arrays) == (sent, sampling)


@given(st.lists(st.lists(samples(), max_size=3), max_size=3))
def test_samples_come_back_as_they_were(sent: list[list[Sample]]) -> None:
    assert unpack_samples(pack_samples(sent)) == sent


def test_nan_comes_back_as_nan() -> None:
    sample = Sample(
        ids=[1],
        sampling_logprobs=[math.nan],
        kept_mass=[1.0],
        text="",
        finish_reason="eos",
        weight_version=0,
    )
    [[got]] = unpack_samples(pack_samples([[sample]]))
    assert math.isnan(got.sampling_logprobs[0])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x01\x00",
        b"\xff\xff\xff\xff{}",
        b"\x02\x00\x00\x00{}",
        b"\x04\x00\x00\x00null",
        pack({"a": 1}) + b"x",
        pack({"a": 1}, [np.zeros(3, np.int32)])[:-1],
        pack({}).replace(b'"arrays": []', b'"arrays": [["i4", -1]]'),
        pack({}).replace(b'"arrays": []', b'"arrays": [["O8", 1]]'),
    ],
)
def test_what_is_not_of_this_form_is_refused(body: bytes) -> None:
    with pytest.raises(EngineError, match="malformed"):
        unpack(body)


@pytest.mark.parametrize(
    "change",
    [
        {"requests": [[1, 0, 1, 0]]},
        {"requests": [[2, 0, 1, 0, None]]},
        {"requests": "x"},
        {"sampling": {"temperature": 1.0}},
        {"sampling": {"stop": [], "heat": 2}},
    ],
)
def test_requests_that_cannot_be_are_refused(change: dict) -> None:
    header, arrays = unpack(pack_requests([Request(prompt_ids=(5,))], SamplingParams()))
    with pytest.raises(EngineError, match="malformed"):
        unpack_requests({**header, **change}, arrays)


def test_samples_with_a_column_too_short_are_refused() -> None:
    header, arrays = unpack(pack_samples([[]]))
    body = pack({**header, "samples": [[2, "eos", 0, ""]], "groups": [1]}, arrays)
    with pytest.raises(EngineError, match="malformed"):
        unpack_samples(body)


def test_bad_sampling_is_said_by_its_own_error() -> None:
    header, arrays = unpack(pack_requests([Request(prompt_ids=(5,))], SamplingParams()))
    header["sampling"]["temperature"] = -1.0
    with pytest.raises(Exception, match=r"temperature=-1\.0"):
        unpack_requests(header, arrays)
