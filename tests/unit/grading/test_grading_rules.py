"""The small parts: brackets, choices and bases, golds, the cache, the policy."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from workings.errors import ConfigError
from workings.grading.cache import LruCache, remembered
from workings.grading.gold import gold_fault, read, unboxed
from workings.grading.grader import Grader
from workings.grading.policy import GradingPolicy
from workings.grading.reading.answers import (
    Answer,
    Based,
    Choice,
    Clock,
    Expression,
    Infinity,
    Meaning,
    Named,
    Ratio,
    Words,
)
from workings.grading.reading.read import read_answer
from workings.grading.text.braces import encloses, is_balanced, max_depth, peel, split_list
from workings.grading.text.normalise import normalise
from workings.grading.text.symbols import to_latex
from workings.grading.tiers import decide
from workings.types import Verdict


def test_brackets() -> None:
    assert [peel(text) for text in ("{{5}}", "{5", "{}", "{a}b", "")] == [
        "5",
        "{5",
        None,
        "{a}b",
        None,
    ]
    assert max_depth("([{}])") == 3
    assert max_depth("(" * 100_000) == 100_000
    assert not is_balanced("}{")
    assert encloses("[1,2)")
    assert not encloses("(1)(2)")
    assert not encloses("1")
    assert split_list(r"1, (2, 3); \frac{1,2}{3}") == ["1", "(2, 3)", r"\frac{1,2}{3}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\text{B}", Choice("B")),
        ("(B)", Choice("B", is_marked=True)),
        ("B.", Choice("B")),
        (r"\text{(B) 12}", Choice("B", is_marked=True, text="12")),
        ("B: 12", Choice("B", is_marked=True, text="12")),
        ("(b)", Choice("B", is_marked=True)),
        ("b", Expression("b")),
        ("Boat", Words("boat")),
        ("B+1", Expression("B+1")),
        ("(B) + 1", Expression("(B) + 1")),
        ("2516_{\\text{eight}}", Based("2516", 8)),
        ("(1011)_2", Based("1011", 2)),
        ("1f_{16}", Based("1F", 16)),
        ("x_2", Expression("x_2")),
        ("5_{foo}", Expression("5_{foo}")),
        ("10:30 p.m.", Clock(22 * 3600 + 1800)),
        ("12:15 am", Clock(900)),
        ("2:3", Ratio((Fraction(2), Fraction(3)))),
        (r"-\infty", Infinity(-1)),
        ("No solution", Meaning("nothing")),
        ("Yes, it is.", Words("yes, it is", head="yes")),
    ],
)
def test_short_forms(text: str, expected: Answer) -> None:
    assert read_answer(normalise(text)) == expected


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        (None, "it is NoneType None, not text"),
        ([17, 18], "it is list [17, 18], not text"),
        (18, "it is int 18, not text"),
        ("", "it is empty"),
        (" . ", "it is empty"),
        (r"\boxed{}", "it is empty"),
        (r"\text{ }", "it is empty"),
        (r"\frac{1}{2", "its braces are not balanced"),
        ("?", "it holds no number, word or symbol: '?'"),
        (
            "48/2 = 24 clips.\n#### 72",
            "it is a whole solution, not an answer: keep the text after '####'",
        ),
        ("1" * 5000, "it has 5000 characters; at most 4096 can be compared"),
        ("(" * 70 + "1" + ")" * 70, "its brackets nest deeper than 64"),
    ],
)
def test_golds_that_cannot_be_used(gold: object, reason: str) -> None:
    with Grader() as grader:
        assert grader.check_gold(gold) == reason
    assert gold_fault(gold, max_length=4096, max_nesting=64) == reason


@pytest.mark.parametrize(
    "gold",
    ["18", r"\frac{1}{2}", r"\boxed{18}", "Evelyn", "奇数", r"\emptyset", r"\{\}", r"\infty", "x"],
)
def test_golds_that_can_be_used(gold: str) -> None:
    assert gold_fault(gold, max_length=4096, max_nesting=64) is None


def test_golds_are_read_once() -> None:
    assert unboxed(r"\boxed{18}") == "18"
    named = read("x = 18").answer
    assert isinstance(named, Named)
    assert named.answer == read("18").answer
    assert read(r"\{1, 2, 3\}").num_elements == 3
    assert read("1,234").num_elements == 1


def test_the_cache_forgets_the_oldest_and_texts_that_are_long() -> None:
    cache: LruCache[int] = LruCache(2)
    for key, value in (("a", 1), ("b", 2)):
        cache.put(key, value)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("b"), cache.get("a"), len(cache)) == (None, 1, 2)
    empty: LruCache[int] = LruCache(0)
    empty.put("a", 1)
    assert empty.get("a") is None

    calls: list[str] = []
    look_up = remembered(lambda text: calls.append(text) or text)
    for text in ("x", "x", "y" * 1000, "y" * 1000):
        assert look_up(text) == text
    assert [len(text) for text in calls] == [1, 1000, 1000]


def test_tiers_can_be_left_out() -> None:
    only_text = GradingPolicy(tiers=("string",))
    undecided = decide("0.5", "1/2", only_text)
    assert undecided is not None
    assert (undecided.verdict, undecided.reason) == (Verdict.UNDECIDED, "the tier number is off")
    assert decide(r"\text{B}", "B.", only_text) is not None
    decision = decide("0.5", "1/2", GradingPolicy())
    assert decision is not None
    assert (decision.verdict, decision.tier) == (Verdict.EQUAL, "number")


def test_too_long_or_too_deep_is_compared_as_text_only() -> None:
    policy = GradingPolicy()
    deep, long = "(" * 100 + "1" + ")" * 100, "1," * 5000 + "1"
    for bomb in (deep, long):
        refused = decide(bomb, "5", policy)
        assert refused is not None
        assert refused.verdict is Verdict.REFUSED
        equal = decide(bomb, bomb, policy)
        assert equal is not None
        assert (equal.verdict, equal.tier) == (Verdict.EQUAL, "string")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"extraction": "box"}, "unknown extraction policy 'box'; did you mean 'boxed'?"),
        ({"tiers": ("numbr",)}, "unknown grading tier 'numbr'; did you mean 'number'?"),
        ({"deadline_seconds": 0.0}, "deadline_seconds=0.0; expected more than 0"),
        ({"max_depth": 0}, "max_depth=0; expected 1 or more"),
    ],
)
def test_a_policy_that_cannot_be_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        GradingPolicy(**settings)  # type: ignore[arg-type]


def test_ascii_is_left_alone() -> None:
    assert to_latex("x^2 - 1") == "x^2 - 1"
    assert to_latex("\x005") == "5"
