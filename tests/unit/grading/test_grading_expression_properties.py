"""Random expressions keep their value in every style; garbage is refused and nothing else."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from fractions import Fraction

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from workings.grading.expression.arithmetic import inexact
from workings.grading.expression.compare import constant_ratio, real_value, same_value
from workings.grading.expression.evaluate import context, settled_value
from workings.grading.expression.parse import parse_expression
from workings.grading.expression.tree import Node, TooCostly, Unreadable, to_text
from workings.grading.text.normalise import normalise


def relaxed(max_examples: int) -> settings:
    return settings(
        max_examples=max_examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


Tree = tuple[object, ...]
"""("number", value), ("symbol", name) or (operation, tree, ...)."""

POINT = {"x": Fraction(7, 5), "y": Fraction(-2, 9), "k": Fraction(3, 8)}

numbers = st.integers(0, 99).map(lambda value: ("number", Fraction(value)))
decimals = st.integers(1, 999).map(lambda value: ("number", Fraction(value, 100)))
symbols = st.sampled_from(sorted(POINT)).map(lambda name: ("symbol", name))


def grown(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    pairs = st.tuples(parts, parts)
    return st.one_of(
        *(st.tuples(st.just(name), parts, parts) for name in ("+", "-", "*", "/")),
        st.tuples(st.just("^"), parts, st.integers(-3, 4)),
        st.tuples(st.just("negative"), parts),
        st.tuples(st.just("abs"), parts),
        pairs.map(lambda pair: ("max", *pair)),
    )


trees = st.recursive(st.one_of(numbers, decimals, symbols), grown, max_leaves=12)


def value_of(tree: Tree) -> Fraction:
    """The value at `POINT` by plain arithmetic of Fractions."""
    name, *parts = tree
    if name == "number":
        return parts[0]
    if name == "symbol":
        return POINT[parts[0]]
    if name == "^":
        base = value_of(parts[0])
        if base == 0 == parts[1]:
            raise ZeroDivisionError("0^0 has no value here")
        return base ** parts[1]
    values = [value_of(part) for part in parts]
    return {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
        "negative": lambda a: -a,
        "abs": abs,
        "max": max,
    }[name](*values)


class Printer:
    """Writes a tree as one of many writers would, by the throws of `source`."""

    def __init__(self, source: random.Random, *, plain: bool) -> None:
        self.source = source
        self.plain = plain

    def one_of(self, *texts: str) -> str:
        return self.source.choice(texts)

    def grouped(self, tree: Tree) -> str:
        text = self.text(tree)
        if self.plain:
            return f"({text})"
        return self.one_of(f"({text})", rf"\left({text}\right)", f"[{text}]", f"{{({text})}}")

    def atom(self, tree: Tree) -> str:
        """A factor that may stand beside another without a sign."""
        simple = tree[0] == "symbol" or (tree[0] == "abs" and self.one_of("", "bare"))
        return self.text(tree) if simple else self.grouped(tree)

    def text(self, tree: Tree) -> str:
        name, *parts = tree
        if name == "number":
            value = parts[0]
            if value.denominator == 1:
                return str(value)
            decimal = f"{float(value):.2f}"
            fraction = (
                f"({value})"
                if self.plain
                else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
            )
            return self.one_of(decimal, fraction)
        if name == "symbol":
            return parts[0]
        if name == "negative":
            return f"-{self.grouped(parts[0])}"
        if name == "abs":
            inside = self.text(parts[0])
            if self.plain:
                return self.one_of(f"abs({inside})", f"|{inside}|")
            return self.one_of(f"|{inside}|", rf"\left|{inside}\right|", rf"\lvert {inside}\rvert ")
        if name == "max":
            inside = ", ".join(self.text(part) for part in parts)
            return f"max({inside})" if self.plain else rf"\max\left({inside}\right)"
        if name == "^":
            exponent = str(parts[1])
            if self.plain:
                return self.atom(parts[0]) + self.one_of("^", "**") + f"({exponent})"
            return f"{self.atom(parts[0])}^{{{exponent}}}"
        return self.binary(name, *parts)

    def binary(self, name: str, left: Tree, right: Tree) -> str:
        space = self.one_of("", " ")
        if name == "+":
            return f"{self.text(left)}{space}+{space}{self.grouped(right)}"
        if name == "-":
            return f"{self.text(left)}{space}-{space}{self.grouped(right)}"
        if name == "*":
            signs = [" * "] if self.plain else [r" \cdot ", r"\times ", "*"]
            written = [f"{self.grouped(left)}{sign}{self.grouped(right)}" for sign in signs]
            if right[0] not in ("number", "abs") and left[0] != "abs":
                written.append(f"{self.grouped(left)}{space}{self.grouped(right)}")
            return self.one_of(*written)
        division = f"{self.grouped(left)}{space}/{space}{self.grouped(right)}"
        if self.plain:
            return division
        fraction = self.one_of("frac", "dfrac", "tfrac")
        return self.one_of(division, rf"\{fraction}{{{self.text(left)}}}{{{self.text(right)}}}")


@relaxed(400)
@given(tree=trees, seed=st.integers(0, 10**6), plain=st.booleans())
def test_a_printed_tree_has_the_value_of_the_tree(tree: Tree, seed: int, plain: bool) -> None:
    text = Printer(random.Random(seed), plain=plain).text(tree)
    try:
        expected = value_of(tree)
    except ZeroDivisionError:
        assume(False)
        raise
    try:
        node = parse_expression(normalise(text))
        found = settled_value(node, POINT, decimal_log=False).value
    except TooCostly:
        assume(False)
        raise
    if isinstance(found, Fraction):
        assert found == expected, text
    else:  # a power of too many digits
        mp = context(60)
        assert abs(found - inexact(mp, expected)) <= abs(inexact(mp, expected)) * mp.mpf(10) ** -25


@relaxed(150)
@given(tree=trees, seeds=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)))
def test_two_printings_are_the_same_value(tree: Tree, seeds: tuple[int, int]) -> None:
    nodes = [
        parse_expression(normalise(Printer(random.Random(seed), plain=False).text(tree)))
        for seed in seeds
    ]
    try:
        assert same_value(*nodes) in (True, None if value_exists(nodes[0]) else False)
    except TooCostly:
        assume(False)


def value_exists(node: Node) -> bool:
    """False for an expression without symbols that has no value."""
    return "x" in to_text(node) or "y" in to_text(node) or "k" in to_text(node)


@relaxed(200)
@given(
    template=st.sampled_from(
        [
            *(r"\frac{@\sqrt{5}-3}{2}", "@x^2+3x-1", r"2^{@}\pi", r"\frac{1}{@!}", "3^{-@}", "@"),
            *("x^{@}y", r"\ln @", r"e^{@\pi}", r"\sin\frac{@\pi}{1013}", r"@+\sqrt{2}", "0.@1"),
            r"\binom{@}{2}",
        ]
    ),
    number=st.integers(2, 999),
    change=st.integers(1, 9),
    place=st.integers(0, 2),
)
def test_another_digit_is_another_value(
    template: str, number: int, change: int, place: int
) -> None:
    digits = str(number)
    place %= len(digits)
    other = digits[:place] + str((int(digits[place]) + change) % 10) + digits[place + 1 :]
    assume(int(other) > 1)
    pair = [parse_expression(template.replace("@", text)) for text in (digits, other)]
    if template.startswith(r"\sin") and (number + int(other)) % 1013 == 0:
        return  # sines of supplements
    assert same_value(*pair) is False
    assert same_value(pair[0], pair[0]) is True


SOUP = r"""
\frac \sqrt \binom \sum \prod \int \sin \cos \tan \ln \log \arcsin \exp \max \gcd \pi \infty
\theta \varphi \cdot \times \div \bmod \pm \circ ^\circ ^{\circ} \prime \overline \dot \vec \bar
\angle \lfloor \rfloor \lceil \rceil \lvert \rvert \vert \| \{ \} ( ) [ ] { } | + - * / ^ _ ! !! %
, = ** {} {1} {2} (x) ' '' ^{-1} _{10} 1 2 10 0 99999 1.5 .5 5. 0.(3) 1,234 1e5 1e999 2e-3
3E9999999 x y n k i e j ab AB C P f sin \text{cis} \text{max} \operatorname{lcm} \mathrm{e}
3\frac{1}{2} 中 ² √ ∞ ÷ 😀 \\ & $
"""
PIECES = [*SOUP.split(), " "]


@relaxed(600)
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=14), other=st.lists(st.sampled_from(PIECES))
)
def test_token_soup_raises_nothing_but_refusals(pieces: list[str], other: list[str]) -> None:
    asked(["".join(pieces), " ".join(other)])


@relaxed(200)
@given(text=st.text(max_size=40))
def test_any_text_raises_nothing_but_refusals(text: str) -> None:
    asked([text])


@relaxed(200)
@given(tree=trees, seed=st.integers(0, 10**6), cut=st.integers(0, 100))
def test_truncated_text_raises_nothing_but_refusals(tree: Tree, seed: int, cut: int) -> None:
    text = Printer(random.Random(seed), plain=False).text(tree)
    asked([text[: cut % (len(text) + 1)], text[cut % (len(text) + 1) :]])


def asked(texts: list[str]) -> None:
    """Read and evaluate in every way; anything but a refusal is an error."""
    nodes: list[Node] = [parse_expression("x+1")]
    for text in texts:
        for written in (text, normalise(text)):
            with contextlib.suppress(Unreadable):
                nodes.append(parse_expression(written))
    functions: list[Callable[[Node, Node], object]] = [
        same_value,
        constant_ratio,
        lambda left, right: (real_value(left), to_text(right)),
    ]
    for left in nodes:
        for function in functions:
            with contextlib.suppress(TooCostly):
                function(left, nodes[-1])
