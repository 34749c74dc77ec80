"""Bounds on cost: they hold for the values that they bound, and nothing gets past them."""

from __future__ import annotations

import contextlib
import math
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workings.grading.expression.arithmetic import inexact
from workings.grading.expression.compare import constant_ratio, real_value, same_value
from workings.grading.expression.cost import Bound, _Meter, precision_for
from workings.grading.expression.evaluate import context, settled_value
from workings.grading.expression.parse import parse_expression
from workings.grading.expression.tree import TooCostly, Unreadable, to_text
from workings.grading.text.normalise import normalise

MAX_SECONDS = 10.0  # what is to be kept out takes minutes, or for ever
"""Of processor time for one bomb. Most take under a millisecond; the machine may be slow."""

REFUSED = [
    r"9^{9^{9^9}}",
    r"(10^8)!",
    r"((5!)!)!",
    r"9!!!!!!",
    r"20000!",
    r"e^{e^{e^{e^e}}}",
    r"e^{10^6}",
    r"10^{-10^9}",
    r"1e999999999",
    r"10^{10^{100}}",
    r"\pi^{10^6}",
    r"\sqrt{2}^{10^9}",
    r"2^{60000}+3^{30000}",
    r"\frac{5^{5^{5^{5^5}}-4}-5}{16}",
    r"17^{17^{17}} \bmod 10",
    r"\binom{10^9}{5\cdot10^8}",
    r"P(10^9,5000)",
    r"\sin(10^{19999})",
    r"\tan(e^{40000})",
    r"\cosh(10^5)",
    r"10^{3000}+\sqrt2-10^{3000}",
    r"\sum_{n=1}^{10^9}n",
    r"\sum_{i=1}^{1000}\sum_{j=1}^{1000}\sqrt{i+j}",
    r"\sum_{i=1}^{1000}\sum_{j=1}^{1000}\pi",
    r"\sum_{i=1}^{999}i^{i}",
    r"\prod_{i=1}^{10^6}i",
]
EVALUATED = [
    r"x^{x^{x^x}}",
    r"\tan(\tan(\tan(\tan(x))))",
    r"\sin(\tan(-4x^2-3)^3)",
    r"\cosh(\cosh(\cosh(x)))",
    r"((x!)!)!",
    r"x!!!!!!",
    r"((((x^9+1)^9+1)^9+1)^9+1)^9",
    r"(x+y)^{2000}",
    r"(x+1)^{9000}",
    r"x^{10^{30}}",
    r"e^{100x}+\sqrt{x}",
    r"1.0001^{10^8}",
    r"(1+\frac{1}{10^9})^{10^9}",
    r"(-1)^{10^{50}}",
    r"i^{10^{30}}",
    r"2^{1/10^{9}}",
    r"\sqrt[10^9]{2}",
    r"\binom{10^9}{2}",
    r"\binom{x}{2000}",
    r"\lfloor e^{46000}\rfloor",
    r"\lfloor \pi 10^{500}\rfloor",
    r"10^{600}+\sqrt2-10^{600}",
    r"\sum_{i=1}^{1000}\frac{1}{i}",
    r"\prod_{i=1}^{1000}(x+i)",
    r"f(f(f(f(f(f(f(x)))))))",
    r"\sqrt{" * 45 + "x" + "}" * 45,
    "1" * 4000,
    "+".join(rf"\sin {k}x" for k in range(1, 300)),
    "+".join(f"x^{{{k}}}" for k in range(300)),
    "*".join(rf"\sqrt{{x+{k}}}" for k in range(1, 200)),
    "x!" * 900,
]


@pytest.mark.parametrize("text", REFUSED)
def test_bombs_are_refused_without_evaluation(text: str) -> None:
    node = parse_expression(normalise(text))
    start = time.process_time()
    with pytest.raises(TooCostly):
        precision_for(node, {})
    for ask in (same_value, constant_ratio):
        other = parse_expression("x+1")
        with pytest.raises(TooCostly):
            ask(node, other)
        with pytest.raises(TooCostly):
            ask(other, node)
    with pytest.raises(TooCostly):
        real_value(node)
    assert time.process_time() - start < MAX_SECONDS


@pytest.mark.parametrize("text", EVALUATED)
def test_what_looks_costly_ends_soon(text: str) -> None:
    node, other = parse_expression(normalise(text)), parse_expression("x+1")
    start = time.process_time()
    for left, right in ((node, other), (other, node), (node, node)):
        with contextlib.suppress(TooCostly):
            assert same_value(left, right) is not (left is not right)
    assert time.process_time() - start < MAX_SECONDS


@pytest.mark.parametrize("size", [2_000, 100_000])
@pytest.mark.parametrize(
    "unit",
    ["(", "|", "{", "^", "_", "-", "1,", "x^", "x!", r"\frac{", r"\sin ", r"\overline{", "'"],
)
def test_repetition_is_read_or_refused_at_once(unit: str, size: int) -> None:
    start = time.process_time()
    with pytest.raises(Unreadable):
        parse_expression(unit * size)
    assert time.process_time() - start < MAX_SECONDS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2^{10^6}", "a value beyond 10^20000 or below 10^-20000"),
        (r"\sum_{n=1}^{1001}n", "a sum of more than 1000 terms"),
        (r"\prod_{n=1}^{1001}n", "a product of more than 1000 terms"),
        (r"\sqrt2+10^{3000}", "terms of sizes too far apart"),
        (r"\gcd(10^{9999},6^{9999})", "a rational of more than 20000 digits"),
    ],
)
def test_a_refusal_says_why(text: str, reason: str) -> None:
    with pytest.raises(TooCostly) as refused:
        precision_for(parse_expression(text), {})
    assert str(refused.value) == reason


def test_the_gamma_function_is_refused_many_digits() -> None:
    with pytest.raises(TooCostly, match="a factorial of a fraction to too many digits"):
        real_value(parse_expression(r"(\frac{1}{3})!+10^{500}"))
    assert real_value(parse_expression(r"(\frac{1}{3})!+10^{50}")) is not None


def test_a_sum_of_a_thousand_terms_is_evaluated() -> None:
    found = real_value(parse_expression(r"\sum_{n=1}^{1000}\frac{1}{n(n+1)}"))
    assert found == Fraction(1000, 1001)


def test_cancellation_raises_the_precision() -> None:
    assert precision_for(parse_expression(r"\sqrt{2}+1"), {}) == 60
    precision = precision_for(parse_expression(r"\sqrt{2}+10^{300}"), {})
    assert 300 <= precision <= 400
    assert precision_for(parse_expression(r"2+10^{300}"), {}) == 60  # exact


LEAVES = st.sampled_from(["2", "3", "10", r"\frac{2}{7}", "0.01", "x", "y", r"\pi", "e", "123456"])


def grown(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(parts, parts)
    return st.one_of(
        pairs.map(lambda pair: rf"({pair[0]})\cdot({pair[1]})"),
        pairs.map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}"),
        pairs.map(lambda pair: rf"({pair[0]})^{{{pair[1]}}}"),
        pairs.map(lambda pair: rf"{pair[0]}+{pair[1]}"),
        parts.map(lambda part: rf"\sqrt{{{part}}}"),
        parts.map(lambda part: rf"({part})^{{-12}}"),
        parts.map(lambda part: rf"\exp({part})"),
        parts.map(lambda part: rf"({part})!"),
    )


@settings(deadline=None, max_examples=150, derandomize=True)
@given(text=st.recursive(LEAVES, grown, max_leaves=8))
def test_bounds_hold_for_positive_expressions(text: str) -> None:
    """Where nothing cancels, the value and its digits lie within the bounds."""
    node = parse_expression(text)
    point = {"x": Fraction(7, 5), "y": Fraction(2, 9)}
    meter = _Meter({"x": _bound_of(Fraction(7, 5)), "y": _bound_of(Fraction(2, 9))})
    try:
        bound = meter.bound(node)
        outcome = settled_value(node, point, decimal_log=False)
    except TooCostly:
        return
    if isinstance(outcome.value, Fraction) and bound.digits:
        value = outcome.value
        digits = len(str(value.numerator)) + len(str(value.denominator))
        assert digits <= bound.digits + 2, to_text(node)
    mp = context(outcome.digits)
    size = float(mp.log10(inexact(mp, outcome.value)))
    assert bound.low - 1e-6 <= size <= bound.high + 1e-6, to_text(node)


def _bound_of(value: Fraction) -> Bound:
    size = math.log10(value)
    return Bound(size, size, math.log10(value.numerator * value.denominator) + 0.5, 0.0, True)
