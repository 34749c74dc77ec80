"""A link holds the state, the whole state, and refuses what is no state."""

from __future__ import annotations

from dataclasses import fields

import pytest

from workings.errors import DataError
from workings.viewer.filters import Filters
from workings.viewer.state import ViewState, parse_query, query_of

FULL = ViewState(
    view="responses",
    runs=("a", "b"),
    metrics=("train/loss",),
    smoothing=5,
    reference="x",
    against=("y", "z"),
    file="a/results.jsonl",
    problem="p/1",
    verdicts=("equal",),
    kinds=("10", "01"),
    sources=("amc", "aime"),
    subjects=("Number theory",),
    levels=("5",),
    min_length=3,
    max_length=90,
    truncated="no",
    text="a&b=c #é",
    page=4,
    rows=100,
    other="b/results.jsonl",
    outcome="differ",
    markdown=True,
    latex=False,
    unfolded=True,
    colour="mask",
)


def test_a_link_gives_the_state_back() -> None:
    for field in fields(ViewState):
        assert getattr(FULL, field.name) != field.default, field.name
    assert parse_query(query_of(FULL)) == FULL
    assert query_of(ViewState()) == {}
    assert parse_query({}) == ViewState()


def test_filters_of_a_state() -> None:
    assert ViewState().filters == Filters()
    assert FULL.filters == Filters(
        verdicts=("equal",),
        kinds=("10", "01"),
        sources=("amc", "aime"),
        subjects=("Number theory",),
        levels=("5",),
        min_length=3,
        max_length=90,
        truncated=False,
        text="a&b=c #é",
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"colour": ["red"]}, "colour=red; expected one of none, logprob"),
        ({"view": ["shell"]}, "view=shell"),
        ({"rows": ["101"]}, "rows=101; expected 1 to 100"),
        ({"rows": ["0"]}, "expected 1 to 100"),
        ({"page": ["two"]}, "page=two"),
        ({"page": ["-3"]}, "page=-3"),
        ({"latex": ["maybe"]}, "latex=maybe; expected yes or no"),
        ({"file": ["a", "b"]}, "2 values of file"),
        ({"root": ["/"]}, "unknown parameter 'root'"),
    ],
)
def test_other_values_are_refused(query: dict[str, list[str]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_query(query)
