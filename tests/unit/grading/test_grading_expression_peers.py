"""Expressions against an independent reader, and the golds of the data sets against themselves."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
import sympy
from latex2sympy2_extended import latex2sympy

from workings.grading.expression.arithmetic import inexact
from workings.grading.expression.compare import same_value
from workings.grading.expression.evaluate import context, settled_value
from workings.grading.expression.parse import parse_expression
from workings.grading.expression.tree import Unreadable
from workings.grading.text.braces import split_list
from workings.grading.text.normalise import normalise

AGREED = [
    r"\frac{2x^{3}-5}{7+x}",
    r"\sqrt{x^{2}+1}-\frac{1}{\sqrt{2}}",
    r"\sqrt[3]{x+2}",
    r"e^{2x}\sin{3x}\cos{x}",
    r"\frac{\ln{x}}{x}+\ln{3}",
    r"\log_{2}{x}",
    r"\arctan{x}+\sinh{x}",
    r"\binom{7}{3}x^{4}",
    r"5!+\frac{4!}{x}",
    r"|x-4|",
    r"\lfloor 3.7 \rfloor + \lceil 2.1 \rceil",
    r"x^{\frac{2}{3}}",
    r"\frac{\frac{1}{x}+1}{1-\frac{1}{x}}",
    r"-x^{2}+(-x)^{2}\cdot 3",
    r"2\cdot 3^{x}-4^{-x}",
    r"\tan^{2}{x}+\sec{x}",
    r"\sin^{-1}{\frac{1}{x}}",
    r"\sum_{k=1}^{5} k^{2}",
]


@pytest.mark.parametrize("text", AGREED)
def test_latex2sympy_reads_the_same(text: str) -> None:
    """At one point, to 30 digits."""
    theirs = latex2sympy(text)
    (symbol,) = theirs.free_symbols or {sympy.Symbol("x")}
    expected = sympy.N(theirs.subs(symbol, sympy.Rational(7, 5)).doit(), 40)
    mp = context(60)
    found = inexact(
        mp, settled_value(parse_expression(text), {"x": Fraction(7, 5)}, decimal_log=False).value
    )
    assert abs(found - mp.mpf(str(expected))) < mp.mpf(10) ** -30


def golds(folder: Path) -> list[str]:
    """The parts of the golds of five data sets that have no relation or word in them."""
    parquet = pytest.importorskip("pyarrow.parquet")
    found: dict[str, None] = {}
    for name in ("math500", "math_train", "college_math", "olympiadbench", "minerva_math"):
        for answer in parquet.read_table(folder / f"{name}.parquet")["answer"].to_pylist():
            for part in split_list(normalise(answer)):
                if not re.search(
                    r"[=<>]|\\(?:le|ge|ne|in|text|begin|cup|pm|infty)\b|(?<![\\a-z])[a-z]{4}", part
                ):
                    found[part] = None
    return list(found)


def test_golds_are_read_and_equal_themselves_in_another_style(shared_data: Path) -> None:
    read = unread = 0
    for gold in golds(shared_data)[::3]:
        try:
            node = parse_expression(gold)
        except Unreadable:
            unread += 1
            continue
        read += 1
        styled = (
            gold.replace(r"\frac", r"\dfrac").replace("(", r"\left( ").replace(")", r" \right)")
        )
        styled = styled.replace("+", " + ").replace(r"\cdot", r"\times ")
        assert same_value(parse_expression(normalise(styled)), node) is True, gold
    assert read > 900
    assert unread < 0.2 * read  # tuples and intervals, mostly
