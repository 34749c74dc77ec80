"""The equality rules, pair by pair: gold, answer, and whether they are the same."""

from __future__ import annotations

import pytest

from workings.grading import tiers
from workings.grading.policy import GradingPolicy
from workings.grading.tiers import decide
from workings.types import Verdict

SAME = [
    (r"10\text{ m/s}", r"36\text{ km/h}"),
    (r"7", r"7g"),
    (r"12\text{ cm}^2", r"12"),
    (r"12", r"12\,\text{cm}^2"),
    (r"3\text{ hours}", r"180\text{ minutes}"),
    (r"\$0.75", r"75\text{ cents}"),
    (r"20\%", r"0.2"),
    (r"20\%", r"20"),
    (r"3,4", r"x=3\text{ or }x=4"),
    (r"\{3,4\}", r"\{4,3\}"),
    (r"[3,4)", r"3\le x<4"),
    (r"(3,\infty)", r"x>3"),
    (r"x\ne 2", r"(-\infty,2)\cup(2,\infty)"),
    (r"\mathbb{R}", r"\text{all real numbers}"),
    (r"\mathbb{R}\setminus\{2\}", r"x\neq 2"),
    (r"(0,2)\cup(1,3)", r"(0,3)"),
    (r"(0,2]\cup[2,3)", r"(0,3)"),
    (r"\{2\}\cup(3,4)", r"(3,4)\cup\{2\}"),
    (r"x<1\text{ or }x>3", r"(-\infty,1)\cup(3,\infty)"),
    (r"1:2", r"\frac{1}{2}"),
    (r"2:3:4", r"4:6:8"),
    (r"10\text{:}30 \text{ a.m.}", r"10:30"),
    (r"5\text{ p.m.}", r"17:00"),
    (r"\text{Yes}", r"\text{Yes, because } 7 \text{ is odd}"),
    (r"\text{three}", r"3"),
    (r"12", r"\text{twelve}"),
    (r"B", r"(B)"),
    (r"B", r"\text{B) } 12"),
    (r"A, C", r"AC"),
    (r"\text{no solution}", r"\emptyset"),
    (r"\text{undefined}", r"\text{does not exist}"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"(1,2)"),
    (r"(x,y)=(1,2)", r"x=1, y=2"),
    (r"(x,y)=(1,2)", r"y=2, x=1"),
    (r"(1,2)", r"x=1, y=2"),
    (r"212_5", r"212_{\text{five}}"),
    (r"1{,}234", r"1234"),
    (r"0.\overline{3}", r"\frac{1}{3}"),
    (r"\frac13", r"0.333333"),
    (r"-3\frac12", r"-\frac{7}{2}"),
    (r"90^\circ", r"90"),
    (r"\pm 3", r"-3, 3"),
    (r"A(1,2)", r"(1,2)"),
    (r"\text{Area} = 12", r"12"),
    (r"S_{\triangle ABC} = 12", r"12"),
    (r"12", r"\text{Answer: } 12"),
    (r"12", r"\text{The answer is } 12"),
    (r"P(X>2)=0.3", r"0.3"),
    (r"30", r"\angle A = 30^\circ"),
    (r"18", r"18\text{ students}"),
    (r"\text{Monday}", r"\text{monday}"),
    (r"1000", r"10^3"),
    (r"2024", r"2024.0"),
    (r"1.5\times 10^{-4}", r"0.00015"),
    (r"[1,2,3]", r"(1,2,3)"),
    (r"\langle 1,2,3\rangle", r"(1,2,3)"),
    (r"\{(1,2),(3,4)\}", r"(3,4),(1,2)"),
    (r"25\text{ miles per hour}", r"25\text{ mph}"),
    (r"100^\circ\text{C}", r"100"),
    (r"2.236", r"\sqrt{5}"),
    (r"\pi", r"3.14159"),
    (r"f(x)=x^2", r"x^2"),
    (r"x^2", r"f(x)=x^2"),
    (r"y=x+1", r"x-y=-1"),
    (r"x^2+y^2<4", r"4>x^2+y^2"),
    (r"2\pi", r"6.283185"),
    (r"36\pi\text{ cm}^2", r"36\pi"),
    (r"\frac{\sqrt{3}}{2}\text{ m}", r"50\sqrt{3}\text{ cm}"),
    (r"x=\frac{\pi}{4}+k\pi, k\in\mathbb{Z}", r"x=\frac{\pi}{4}+k\pi, k\in\mathbb{Z}"),
    (r"x=\frac{\pi}{4}+k\pi, k\in\mathbb{Z}", r"x=\frac{\pi}{4}+n\pi, n\in\mathbb{Z}"),
    (r"\frac{6}{2}", r"\frac{6}{2}=3"),
    (r"3", r"\frac{6}{2}=3"),
    (r"7", r"3+4=7"),
    (r"9\pi", r"S=\pi r^2=9\pi"),
    (r"xyz", r"zyx"),
    (r"\begin{cases} x=1\\ y=2\end{cases}", r"(1,2)"),
    (r"\frac{3}{4}\text{ cup}", r"\frac34"),
    (r"5\text{ feet }6\text{ inches}", r"66\text{ inches}"),
    (r"45^\circ30'", r"45.5^\circ"),
    (r"2^{10}", r"1024"),
    (r"\$12", r"12\$"),
    (r"\text{1st}", r"1"),
    (r"\approx 8.24", r"8.24"),
    (r"8.25", r"x\approx 8.25"),
    (r"8.25", r"\sqrt{68}\approx 8.25"),
    (r"\sqrt{68}", r"\sqrt{68}\approx 8.25"),
    (r"\sqrt{68}", r"2\sqrt{17}\approx 8.246"),
]
OTHER = [
    (r"5\text{ cm}", r"5\text{ cm}^2"),
    (r"7\text{ kg}", r"7\text{ g}"),
    (r"7\text{ kg}", r"7g"),
    (r"\$5", r"5\text{ euros}"),
    (r"50", r"0.5"),
    (r"x=3", r"x=3\text{ or }x=4"),
    (r"(3,4)", r"(4,3)"),
    (r"(3,4)", r"\{3,4\}"),
    (r"[3,4]", r"(3,4)"),
    (r"(3,\infty)", r"x\ge 3"),
    (r"(0,2)\cup(2,3)", r"(0,3)"),
    (r"2:3", r"3:2"),
    (r"10:30\text{ a.m.}", r"10:30\text{ p.m.}"),
    (r"\text{No}", r"\text{Yes, because } 7 \text{ is odd}"),
    (r"B", r"A, B"),
    (r"AC", r"A,B,C"),
    (r"B", r"\text{(C) } 12"),
    (r"\text{no solution}", r"\text{DNE}"),
    (r"\infty", r"-\infty"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"(2,1)"),
    (r"(1,2)", r"x=2, y=1"),
    (r"212_5", r"212_6"),
    (r"1234", r"12,34"),
    (r"0.\overline{3}", r"0.333"),
    (r"\frac13", r"0.33333"),
    (r"3\frac12", r"-3\frac12"),
    (r"-3\frac12", r"-\frac{5}{2}"),
    (r"10!", r"10"),
    (r"8", r"\text{8 or 11}"),
    (r"\frac12", r"\frac12\text{ or }\frac13"),
    (r"\pm 3", r"3"),
    (r"1,2,3", r"1,2,3,4"),
    (r"18\text{ apples}", r"18\text{ oranges}"),
    (r"5", r"5\text{ or more}"),
    (r"5", r"\text{at least } 5"),
    (r"5", r"\text{about } 5"),
    (r"5", r"\text{not } 5"),
    (r"5", r"-5"),
    (r"5", r"5x"),
    (r"2x", r"2"),
    (r"\text{Monday}", r"\text{Sunday}"),
    (r"\text{odd}", r"\text{even}"),
    (r"\text{October 30}", r"\text{October 31}"),
    (r"1.5\times 10^{-4}", r"1.5\times 10^{-3}"),
    (r"\{(1,2),(3,4)\}", r"(2,1),(3,4)"),
    (r"5\text{ m}", r"5\text{ ft}"),
    (r"100^\circ\text{C}", r"100^\circ\text{F}"),
    (r"\sqrt{5}", r"2.236"),
    (r"\pi", r"3.14"),
    (r"f(x)=x^2", r"g(x)=x^2"),
    (r"y=x+1", r"x-y=1"),
    (r"x>2", r"x>3"),
    (r"x^2+y^2<4", r"4<x^2+y^2"),
    (r"x^2+y^2<4", r"x^2+y^2\le 4"),
    (r"n=3k", r"3"),
    (r"36\pi\text{ cm}^2", r"36\pi\text{ cm}^3"),
    (r"3", r"6-2=3"),
    (r"XY", r"YX"),
    (r"\text{II}", r"\text{III}"),
    (r"(1,2),(3,4)", r"[1,2]\cup[3,4]"),
    (r"\text{Tuesday, 5 March}", r"\text{Tuesday}"),
]


def _is_equal(answer: str, gold: str) -> bool:
    decision = decide(answer, gold, GradingPolicy(), in_worker=True)
    assert decision is not None
    assert decision.reason
    return decision.verdict is Verdict.EQUAL


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_the_same(gold: str, answer: str) -> None:
    assert _is_equal(answer, gold)


@pytest.mark.parametrize(("gold", "answer"), OTHER)
def test_not_the_same(gold: str, answer: str) -> None:
    assert not _is_equal(answer, gold)


@pytest.mark.parametrize(
    ("gold", "answer", "reason"),
    [
        ("2x+1", "1+2x", ""),
        ("y=2x+1", "y=1+2x", ""),
        ("x^2+y^2=4", "2x^2+2y^2=8", ""),
        (r"\sqrt[3]{x}", r"x^{1/3}", ""),
        ("y=2x+1", "z=1+2x", "multiples"),
        ("x^2+y^2=4", "x^2+y^2=5", "multiples"),
    ],
)
def test_plain_formulas_and_equations_go_to_a_worker_unread(
    gold: str, answer: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(gold, gold, GradingPolicy())  # the gold is read now, and remembered
    with monkeypatch.context() as patched:
        patched.setattr(tiers, "read_answer", None)  # a call would fail
        assert decide(answer, gold, GradingPolicy()) is None
    decision = decide(answer, gold, GradingPolicy(), in_worker=True)
    assert decision is not None
    assert decision.verdict is (Verdict.DIFFERENT if reason else Verdict.EQUAL)
    assert reason in decision.reason
