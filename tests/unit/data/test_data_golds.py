"""Golds reduced to what is compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.data.golds import last_box, reduce_gold
from workings.errors import DataError


@pytest.mark.parametrize(
    ("value", "gold"),
    [
        (18, "18"),
        (142.0, "142"),
        (0.5, "0.5"),
        (" 18 ", "18"),
        ("142.0", "142.0"),
        ("so it is 48/2.\n#### 1,234", "1234"),
        ("#### -1,234,567.5", "-1234567.5"),
        ("#### 3,5", "3,5"),
        (r"Hence \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"first \boxed{1}, then \boxed{2}", "2"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {5}", "5"),
        (r"so it is $\boxed 9$.", "9"),
        (["2"], "2"),
        (r"$\frac{1}{2}$", r"\frac{1}{2}"),
        (r"$(1,8), (2,7)$", "(1,8), (2,7)"),
        (r"$1$ and $2$", r"$1$ and $2$"),
        (r"\$5", r"\$5"),
    ],
)
def test_reductions(value: object, gold: str) -> None:
    assert reduce_gold(value) == gold


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the gold is None"),
        (True, "the gold is True"),
        ("", "the gold is empty"),
        ("#### ", "the gold is empty"),
        (r"\boxed{}", "the gold is empty"),
        ("$ $", "the gold is empty"),
        (r"\boxed{5", "a box that never closes"),
        (["1", "2"], "a list of 2 and not one text or number"),
        ({"a": 1}, "a dict and not one text"),
        (float("nan"), "the value is nan; expected a finite number"),
        (float("-inf"), "the value is -inf; expected a finite number"),
        ([float("nan")], "the value is nan"),
    ],
)
def test_what_cannot_be_compared_with(value: object, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        reduce_gold(value)


def test_a_long_solution_without_a_box_is_no_answer() -> None:
    long = "word " * 40
    assert reduce_gold(long) == long.strip()
    assert reduce_gold("34", worked=True) == "34"
    with pytest.raises(DataError, match="solution of 199 characters has no box"):
        reduce_gold(long, worked=True)


@given(st.text(alphabet="ab{}\\ ", max_size=30))
def test_the_last_box_is_balanced_or_nothing(text: str) -> None:
    content = last_box(r"\boxed{" + text)
    if content is not None and "\\" not in content:
        assert content.count("{") == content.count("}")
    assert last_box(r"\boxed{" + "x" + "}" + text.replace("\\", "")) == "x"
