"""Length limits: which rows stay, and that every other one is counted or refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny import tiny_tokenizer
from workings.data.encoding import (
    EncodedDemonstration,
    encode_demonstration,
    encode_prompt,
)
from workings.data.lengths import length_percentile, limit_demonstrations, limit_prompts
from workings.data.shortening import shorten_prompt
from workings.data.templates import load_template
from workings.errors import DataError
from workings.types import Demonstration, Problem, Prompt


def prompts(*lengths: int) -> list[Prompt]:
    problem = Problem(id="p", question="q", answer="a")
    return [Prompt(problem=problem, ids=(7,) * length, text="") for length in lengths]


def rows(*lengths: tuple[int, int]) -> list[EncodedDemonstration]:
    row = Demonstration(id="set/0", question="q", response="r")
    return [
        EncodedDemonstration(
            demonstration=row, prompt=prompts(prompt)[0], response_ids=(5,) * response
        )
        for prompt, response in lengths
    ]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60), st.integers(1, 100))
def test_the_percentile_of_numpy_rounded_down(lengths: list[int], percentile: int) -> None:
    # numpy works in floats: on an exact integer it may land a rounding error below it.
    expected = np.percentile(np.array(lengths, dtype=np.float64), percentile)
    assert length_percentile(lengths, percentile) == int(expected + 1e-9)


def test_percentiles_by_hand() -> None:
    assert length_percentile([1, 2, 3, 4], 50) == 2
    assert length_percentile([10, 20, 30], 90) == 28
    assert length_percentile([5], 37.5) == 5
    with pytest.raises(DataError, match=r"percentile=0; expected a value in \(0, 100\]"):
        length_percentile([5], 0)
    with pytest.raises(DataError, match="no lengths"):
        length_percentile([], 50)


def test_a_percentile_keeps_what_is_at_most_as_long() -> None:
    limited = limit_prompts(prompts(10, 20, 30, 28), percentile=90)
    assert limited.limit == length_percentile([10, 20, 30, 28], 90) == 29
    assert [len(prompt.ids) for prompt in limited.kept] == [10, 20, 28]
    assert (limited.num_dropped, limited.longest) == (1, 30)


def test_a20c_drop_counts() -> None:
    limited = limit_prompts(prompts(3, 9, 5, 8), max_length=5)
    assert [len(prompt.ids) for prompt in limited.kept] == [3, 5]
    assert (limited.limit, limited.num_dropped, limited.num_truncated) == (5, 2, 0)


def test_a20c_error_names_the_first() -> None:
    with pytest.raises(DataError, match=r"2 of 4 prompts are longer than the limit of 5 tokens "):
        limit_prompts(prompts(3, 9, 5, 8), max_length=5, on_overlong="error")
    assert len(limit_prompts(prompts(3), max_length=5, on_overlong="error").kept) == 1


def test_a20c_truncation_never_cuts_the_template() -> None:
    tokenizer = tiny_tokenizer()
    template = load_template("r1_zero")
    problems = [Problem(id=q, question=q, answer="1") for q in ("1", "12345678")]
    both = [encode_prompt(problem, template, tokenizer) for problem in problems]
    limit = len(both[0].ids) + 3
    limited = limit_prompts(
        both,
        max_length=limit,
        on_overlong="truncate",
        shorten=lambda prompt, length: shorten_prompt(prompt, length, template, tokenizer),
    )
    assert (limited.num_truncated, limited.num_dropped) == (1, 0)
    assert len(limited.kept[1].ids) == limit
    text = tokenizer.decode(limited.kept[1].ids)
    assert text == template.before + "5678" + template.after
    with pytest.raises(DataError, match="on_overlong='truncate' needs shorten"):
        limit_prompts(both, max_length=limit, on_overlong="truncate")


def test_no_limit_and_two_limits_and_nothing_left() -> None:
    assert len(limit_prompts(prompts(3, 9)).kept) == 2
    with pytest.raises(DataError, match="max_length=5 and percentile=90 are both set"):
        limit_prompts(prompts(3), max_length=5, percentile=90)
    with pytest.raises(
        DataError, match="none of 1 prompts has at most 2 tokens; the shortest has 3"
    ):
        limit_prompts(prompts(3), max_length=2)
    with pytest.raises(DataError, match="there are no prompts"):
        limit_prompts([], max_length=2)


def test_demonstrations_within_all_limits() -> None:
    data = rows((2, 2), (6, 2), (2, 6), (4, 4))
    limited = limit_demonstrations(data, max_prompt_length=5, max_response_length=5, max_length=7)
    assert limited.kept == (data[0],)
    assert (limited.num_dropped, limited.limit, limited.longest) == (3, 7, 8)
    assert limit_demonstrations(data).kept == tuple(data)


def test_demonstrations_cut_to_what_fits() -> None:
    data = rows((2, 2), (6, 2), (2, 6), (4, 4))
    limited = limit_demonstrations(data, max_prompt_length=5, max_length=7, on_overlong="truncate")
    assert [(len(row.response_ids), row.truncated) for row in limited.kept] == [
        (2, False),
        (5, True),
        (3, True),
    ]
    assert (limited.num_truncated, limited.num_dropped) == (2, 1)


def test_a_cut_response_has_lost_its_eos() -> None:
    tokenizer = tiny_tokenizer()
    row = Demonstration(id="a", question="q", response="12345")
    encoded = encode_demonstration(row, load_template("no"), tokenizer)
    limited = limit_demonstrations([encoded], max_response_length=3, on_overlong="truncate")
    assert tokenizer.decode(limited.kept[0].response_ids) == "123"


def test_demonstrations_refused() -> None:
    with pytest.raises(DataError, match=r"1 of 2 demonstrations are longer than the limit of resp"):
        limit_demonstrations(rows((1, 1), (1, 9)), max_response_length=5, on_overlong="error")
    with pytest.raises(
        DataError, match=r"none of 1 demonstrations is within the limit of prompt 1"
    ):
        limit_demonstrations(rows((2, 2)), max_prompt_length=1)
    with pytest.raises(DataError, match="there are no demonstrations"):
        limit_demonstrations([])
