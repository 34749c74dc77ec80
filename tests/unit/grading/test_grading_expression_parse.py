"""What the parser of expressions reads, against values of Python's, and what it refuses."""

from __future__ import annotations

import doctest
import importlib
import math
import pkgutil
from collections.abc import Callable
from fractions import Fraction

import pytest

import workings.grading.expression as room
from workings.grading.expression.arithmetic import inexact
from workings.grading.expression.evaluate import context, settled_value
from workings.grading.expression.parse import parse_expression
from workings.grading.expression.tree import Unreadable, symbols_of, to_text
from workings.grading.text.normalise import normalise

POINT = {name: Fraction(place, 7) for place, name in enumerate("abcdhkmnprtxyz", start=2)}
a, b, c, d, h, k, m, n, p, r, t, x, y, z = (float(value) for value in POINT.values())
POINT |= {"theta": POINT["t"], "alpha": POINT["a"], "x_1": POINT["x"], "x_12": POINT["y"]}
DEGREE = math.pi / 180


def value_of(text: str) -> complex:
    """The value at `POINT`, rounded to what a float holds."""
    outcome = settled_value(parse_expression(normalise(text)), POINT, decimal_log=False)
    return complex(inexact(context(outcome.digits), outcome.value))


def exact_value_of(text: str) -> Fraction:
    value = settled_value(parse_expression(normalise(text)), POINT, decimal_log=False).value
    assert isinstance(value, Fraction), text
    return value


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(room.__path__)])
def test_docstrings(name: str) -> None:
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    module = importlib.import_module(f"{room.__name__}.{name}")
    assert doctest.testmod(module, optionflags=flags).failed == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("007", 7),
        ("1.25", Fraction(5, 4)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("1,234", 1234),
        ("12,345,678.5", Fraction(24691357, 2)),
        (r"1{,}234", 1234),
        (r"0.1\overline{6}", Fraction(1, 6)),
        (r"0.\overline{142857}", Fraction(1, 7)),
        (r".\overline{3}", Fraction(1, 3)),
        (r"0.\dot{3}", Fraction(1, 3)),
        (r"0.\dot3", Fraction(1, 3)),
        (r"2.0\dot{1}4\dot{2}", 2 + Fraction(142, 9990)),
        ("1.5e-4", Fraction(3, 20000)),
        ("1.5E4", 15000),
        ("3e8", 300_000_000),
        ("2e-3", Fraction(1, 500)),
        (r"1.5\times 10^{-4}", Fraction(3, 20000)),
        ("1.5 x 10^3", 1500),
        ("1.5x10^{3}", 1500),
        ("3 1/2", Fraction(7, 2)),
        ("-3 1/2", Fraction(-7, 2)),
        (r"3\frac{1}{2}", Fraction(7, 2)),
        (r"-3\frac12", Fraction(-7, 2)),
        (r"1-2\frac{1}{4}", Fraction(-5, 4)),
        (r"2\cdot 3\frac12", 7),
        (r"3\frac{5}{2}", Fraction(15, 2)),
        (r"\frac{1}{2}\frac{1}{3}", Fraction(1, 6)),
        (r"\frac ab", Fraction(2, 3)),
        (r"\frac1{4}", Fraction(1, 4)),
        (r"\frac{3}4", Fraction(3, 4)),
        ("50%", Fraction(1, 2)),
        (r"12.5\%", Fraction(1, 8)),
        ("--1", 1),
        ("+ -3", -3),
        ("5 - -3", 8),
        ("5+-3", 2),
        (r"2\times-3", -6),
        (r"6 \div 4", Fraction(3, 2)),
        ("24/4/2", 3),
        ("24/4*2", 12),
        ("1/2x", Fraction(13, 14)),
        ("2^10", 1024),
        ("2^{10}", 1024),
        ("2**3**2", 512),
        ("2^3^2", 512),
        ("{2^3}^2", 64),
        ("-2^2", -4),
        ("(-2)^2", 4),
        ("2^-3", Fraction(1, 8)),
        ("2^{-3}", Fraction(1, 8)),
        (r"2^\frac{4}{2}", 4),
        (r"8^{1/3}", 2),
        (r"(-8)^{1/3}", -2),
        (r"(-8)^{\frac23}", 4),
        (r"\sqrt[3]{-8}", -2),
        (r"\sqrt[3]8", 2),
        (r"\sqrt{\frac{9}{4}}", Fraction(3, 2)),
        (r"\sqrt16", 4),
        ("sqrt(16)", 4),
        (r"\sqrt(16)", 4),
        ("5!", 120),
        ("0!", 1),
        ("7!!", 105),
        ("(-1)!!", 1),
        ("3!!!", 6),
        ("2\\cdot 3!^2", 72),
        (r"2^{3!}", 64),
        (r"\binom{5}{2}", 10),
        (r"\dbinom52", 10),
        (r"\binom{2}{5}", 0),
        ("C(5,2)", 10),
        ("C_5^2", 10),
        ("C_{10}^{3}", 120),
        ("C^2_5", 10),
        (r"\mathrm{C}_5^2", 10),
        ("{}_5C_2", 10),
        ("{}^5C_2", 10),
        ("^{5}C_{2}", 10),
        ("A_5^2", 20),
        ("P_5^2", 20),
        ("P(5,2)", 20),
        ("|-3|", 3),
        ("||-3|-5|", 2),
        ("|2||-3|", 6),
        (r"\lvert -3\rvert+1", 4),
        (r"\left|-\frac{1}{2}\right|", Fraction(1, 2)),
        (r"\lfloor -2.5\rfloor", -3),
        (r"\lceil 2.5\rceil", 3),
        (r"\left\lfloor \frac{7}{2} \right\rfloor", 3),
        ("[1+2](3)", 9),
        (r"\{1+2\}\cdot 3", 9),
        (r"\max(1,3,2)", 3),
        (r"\min\{4,2\}", 2),
        (r"\gcd(12,180)", 12),
        (r"\operatorname{lcm}(4,6)", 12),
        (r"17 \bmod 5", 2),
        (r"-1 \bmod 5", 4),
        (r"\sum_{k=1}^{10} k^2", 385),
        (r"\sum_{i=1}^{3} i \cdot 2^i + 1", 35),
        (r"\sum_{k=0}^5 \binom{5}{k}", 32),
        (r"\sum_{i=1}^{3}\sum_{j=1}^{i} j", 10),
        (r"\prod_{k=1}^{5} (2k-1)", 945),
        (r"\sum_{k=2}^{1} k", 0),
        (r"\Gamma(5)", 24),
        ("ab", Fraction(6, 49)),
        ("2x^2y", 2 * Fraction(13, 7) ** 2 * 2),
        ("x_1", Fraction(13, 7)),
        ("x_{12}", 2),
        ("x^2_1", Fraction(13, 7) ** 2),
        ("a(b+c)", Fraction(2 * 7, 49)),
        ("(a)(b)", Fraction(6, 49)),
        (r"\frac{a}{b}c", Fraction(8, 21)),
        (r"x\frac12", Fraction(13, 14)),
        ("a*b/c*d", Fraction(2 * 3 * 5, 4 * 49)),
    ],
)
def test_exact_values(text: str, expected: int | Fraction) -> None:
    assert exact_value_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\sqrt 2x", math.sqrt(2) * x),
        (r"x^{3/2}", x**1.5),
        (r"\sqrt{-4}", 2j),
        (r"\sqrt[4]{x}", x**0.25),
        (r"\sqrt{x}^3", x**1.5),
        (r"3\frac{\pi}{2}", 1.5 * math.pi),
        ("2pi r", 2 * math.pi * r),
        (r"\pi r^2", math.pi * r**2),
        (r"\pir^2", math.pi * r**2),
        ("e^x", math.exp(x)),
        ("e^2x", math.exp(2) * x),
        (r"\exp(x+1)", math.exp(x + 1)),
        (r"\exp{x}", math.exp(x)),
        (r"\mathrm{e}^{x}", math.exp(x)),
        ("i^2", -1),
        ("2+3i", 2 + 3j),
        (r"e^{i\theta}", complex(math.cos(t), math.sin(t))),
        (r"\text{cis}\theta", complex(math.cos(t), math.sin(t))),
        (r"2\operatorname{cis}(\alpha)", 2 * complex(math.cos(a), math.sin(a))),
        (r"\sin x", math.sin(x)),
        (r"\sin 2x", math.sin(2 * x)),
        (r"\sin2xy", math.sin(2 * x * y)),
        (r"2\sin x\cos x", math.sin(2 * x)),
        (r"\sin x \cos y", math.sin(x) * math.cos(y)),
        (r"\sin(x) y", math.sin(x) * y),
        (r"\sin(x)^2", math.sin(x) ** 2),
        (r"\sin^2 x", math.sin(x) ** 2),
        (r"\sin^{2}(x)+1", math.sin(x) ** 2 + 1),
        (r"\sin x^2", math.sin(x**2)),
        (r"\sin^{-1} a", math.asin(a)),
        (r"\arcsin a", math.asin(a)),
        ("arcsin(a)", math.asin(a)),
        ("asin(a)", math.asin(a)),
        (r"\cos^{-1}\frac12", math.pi / 3),
        (r"\tan^{-1}(2)", math.atan(2)),
        (r"\operatorname{arctan}2", math.atan(2)),
        (r"\arctg 2", math.atan(2)),
        (r"\operatorname{arccot} 2", math.pi / 2 - math.atan(2)),
        (r"\sin\frac{\pi}{3}", math.sin(math.pi / 3)),
        (r"\sin\frac{1}{2}x", math.sin(x / 2)),
        (r"\sin \pi/3", math.sin(math.pi / 3)),
        (r"\cos 2\pi/3", -0.5),
        (r"\cos n\pi x", math.cos(n * math.pi * x)),
        (r"\cos 2x+1", math.cos(2 * x) + 1),
        (r"\sin -x", -math.sin(x)),
        (r"\sin x e^{-x}", math.sin(x) * math.exp(-x)),
        (r"\sin x i", math.sin(x) * 1j),
        (r"\cos x\sqrt{y}", math.cos(x) * math.sqrt(y)),
        (r"\sin 2\sqrt{y}", math.sin(2 * math.sqrt(y))),
        (r"\sin x(1+y)", math.sin(x) * (1 + y)),
        (r"\sin 60^\circ", math.sin(60 * DEGREE)),
        (r"\sin 60^{\circ} x", math.sin(60 * DEGREE) * x),
        ("sin 60° + cos 30°", 2 * math.sin(60 * DEGREE)),
        (r"45\degree", math.pi / 4),
        (r"\sec x\csc x-\cot x", 1 / math.cos(x) / math.sin(x) - 1 / math.tan(x)),
        (r"\tg x\ctg x", 1),
        (r"\sinh x+\cosh x", math.exp(x)),
        (r"\tanh^{-1} a", math.atanh(a)),
        (r"\ln x^2", 2 * math.log(x)),
        (r"\ln|x-y|", math.log(abs(x - y))),
        (r"\ln\ln x", math.log(math.log(x))),
        (r"\ln\sin x", math.log(math.sin(x))),
        (r"\ln x/x", math.log(x) / x),
        (r"\ln 2/\ln 3", math.log(2) / math.log(3)),
        (r"\ln x \cdot y", math.log(x) * y),
        (r"\ln^2 x", math.log(x) ** 2),
        (r"\log x", math.log(x)),
        (r"\log_2 8", 3),
        (r"\log_28", 3),
        (r"\log_{2}{8}", 3),
        (r"\log_{10} x", math.log10(x)),
        (r"\log_10 x", math.log10(x)),
        (r"\lg x", math.log10(x)),
        (r"\log_2^2 x", math.log2(x) ** 2),
        ("log2(x)", math.log2(x)),
        ("sin(x)cos(x)", math.sin(2 * x) / 2),
        ("xsinx", x * math.sin(x)),
        ("sqrt2", math.sqrt(2)),
        ("abs(x-y)", abs(x - y)),
        (r"\operatorname{sgn}(x-y)", -1),
        (r"\operatorname{Re}(2+3i)", 2),
        (r"n!", math.gamma(n + 1)),
        (r"\binom{n}{3}", n * (n - 1) * (n - 2) / 6),
        (r"\binom{n}{k}", math.gamma(n + 1) / math.gamma(k + 1) / math.gamma(n - k + 1)),
        (r"(-1)^{1/2}", 1j),
        (r"\left(\frac{1}{2}\right)^{n-1}", 0.5 ** (n - 1)),
        ("e^2+2e-3", math.exp(2) + 2 * math.e - 3),
    ],
)
def test_values_by_mpmath(text: str, expected: complex) -> None:
    assert value_of(text) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("AB+CD", {"AB", "CD"}),
        ("ABC", {"ABC"}),
        ("GMm", {"GM", "m"}),
        ("xyz", {"x", "y", "z"}),
        ("abcd", {"a", "b", "c", "d"}),
        ("a_n+a_{n+1}", {"a_n", "a_n+1"}),
        (r"v_{\text{max}}", {"v_max"}),
        ("x'+y''", {"x'", "y''"}),
        (r"y^{\prime\prime}-y^\prime", {"y''", "y'"}),
        (r"\bar x", {"bar x"}),
        (r"\overline{AB}", {"overline AB"}),
        (r"\angle ABC", {"angle ABC"}),
        (r"\hat{p}_1", {"hat p_1"}),
        (r"\alpha\beta_1", {"alpha", "beta_1"}),
        (r"\varphi+\phi", {"phi"}),
        (r"\ell+l", {"l"}),
        (r"\pi e i", set()),
        ("e_1+i_2", {"e_1", "i_2"}),
        (r"\sum_{i=1}^{3} i x", {"x"}),
        ("f(x)+g(y)", {"x", "y"}),
        ("k(x+1)", {"k", "x"}),
        (r"v(t)+y(0)+\theta(\pi)", {"t"}),
        (r"\frac{dy}{dx}+y", {"dy/dx", "y"}),
        (r"\frac{d}{d+1}", {"d"}),
        ("theta", {"theta"}),
        ("C_1x+C", {"C_1", "x", "C"}),
        ("C_1^2", {"C_1"}),
    ],
)
def test_symbols(text: str, names: set[str]) -> None:
    assert symbols_of(parse_expression(normalise(text))) == names


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the end has no place here"),
        ("(", "the end"),
        (")", ") has no place here"),
        ("(1,2)", ") expected, found ,"),
        ("1,2", ", has no place here"),
        ("12,34", ", has no place here"),
        ("[1)", "] expected, found )"),
        ("x=1", "= has no place here"),
        ("x<1", "the sign '<' has no meaning"),
        (r"\pm 3", r"\pm has no place here"),
        ("1+", "the end has no place here"),
        ("*2", "* has no place here"),
        ("2 3", "3 has no place here"),
        ("1.2.3", ".3 has no place here"),
        ("x2", "foot of a letter"),
        ("0.(3)", "period in brackets"),
        ("x^2^3\\cdot 1", "two exponents"),
        ("2^{3}!", "factorial behind an exponent"),
        ("a/bc", "behind a division sign"),
        ("a / b c", "behind a division sign"),
        ("1/xy", "behind a division sign"),
        ("x/2(y+1)", "behind a division sign"),
        ("1/2 1/3", "1 has no place here"),
        (r"\sum_{k=1}^{3} a_k", "changes with the index"),
        (r"h/2\pi", "behind a division sign"),
        (r"\sin x/2", "two readings"),
        (r"\ln a/b", "two readings"),
        (r"\ln(x)^2", "two readings"),
        (r"\ln^{-1} x", "two readings"),
        (r"\sin", "a function without an argument"),
        (r"\sin_2 x", "an index of sin"),
        (r"\max 3", "brackets are missing"),
        ("apple", "'apple' is a word"),
        ("x and y", "'and' is a word"),
        ("5 miles", "'miles' is a word"),
        (r"5\text{ cm}", "cm has no place here"),
        (r"\text{no solution}", "no solution has no place here"),
        (r"\int x dx", r"\int has no place here"),
        (r"\lim_{x\to 0} x", r"\lim has no place here"),
        (r"1+\cdots+n", r"\cdots has no place here"),
        (r"\mathbb{R}", r"\mathbb has no place here"),
        (r"\begin{pmatrix}1\end{pmatrix}", "'pmatrix' is a word"),
        (r"\sum_{n=1}^{\infty} \frac{1}{n^2}", "without end"),
        (r"\sum n", "without both bounds"),
        (r"\frac{1}", "the end has no place here"),
        (r"\frac{}{2}", "has no place here"),
        (r"\sqrt{}", "has no place here"),
        ("x^", "the end has no place here"),
        ("x_", "an index without a name"),
        ("x_{1", "an index without an end"),
        (r"\overline{27}", "over something else than a name"),
        (r"\overline{x+1}", "over something else than a name"),
        (r"\frac{d}{dx} x^2", "a derivative"),
        ("f^{-1}(x)", "an inverse function"),
        (r"\vec a\times\vec b", "depends on their order"),
        ("x😀", "has no meaning"),
        ("数", "has no meaning"),
        ("-" * 3000 + "1", "more than 2000 tokens"),
        ("(" * 100 + "1" + ")" * 100, "nested deeper than 64 levels"),
        ("x" + "!" * 200, "nested deeper than 64 levels"),
        ("x^" * 500 + "x", "nested deeper than 64 levels"),
        (r"\sqrt{" * 65 + "x" + "}" * 65, "nested deeper than 64 levels"),
        ("1" * 4001, "a numeral of more than 4000 digits"),
    ],
)
def test_unreadable(text: str, reason: str) -> None:
    with pytest.raises(Unreadable) as refused:
        parse_expression(text)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "build",
    [
        lambda size: "+".join(["x"] * size),
        lambda size: "*".join(["2"] * size),
        lambda size: "x" + "+1" * size,
        lambda size: "-" * (2 * size) + "x",
    ],
)
def test_long_flat_texts_are_no_deep_trees(build: Callable[[int], str]) -> None:
    assert to_text(parse_expression(build(900)))


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        (r"-2\frac{1}{4}x^{2}\sin 2x", "-9/4*x^2*sin(2*x)"),
        (r"\frac{a+b}{c-d}", "(a + b)/(c - d)"),
        ("a-(b-c)", "a - (b - c)"),
        ("(a+b)^{c+d}", "(a + b)^(c + d)"),
        ("(ab)^{-1/2}", "(a*b)^(-1/2)"),
        ("(-2)^n", "(-2)^n"),
        ("a/(b/c)", "a/(b/c)"),
        (r"\sqrt{x}+\ln|x|", "sqrt(x) + ln(abs(x))"),
        (r"\sum_{k=1}^{10} k x", "sum(k*x, k = 1..10)"),
        ("f(x)+1", "f(x) + 1"),
    ],
)
def test_to_text(text: str, spelt: str) -> None:
    assert to_text(parse_expression(text)) == spelt
