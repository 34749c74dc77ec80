"""Answers that come with their exact value, pairs equal by construction, and ways to style LaTeX.

A `Form` is a LaTeX text with whole numbers in its slots and a function from those numbers to an
exact value. Two fillings with different values are different answers, whatever they look like.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction

from hypothesis import assume
from hypothesis import strategies as st


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One kind of answer: `text` with a slot {0}, {1}, ... for each number that `value` takes."""

    name: str
    text: str
    value: Callable[..., Hashable]
    num_slots: int

    def fill(self, slots: tuple[str, ...]) -> str:
        return self.text.format(*slots)

    def value_of(self, slots: tuple[str, ...]) -> Hashable | None:
        """The exact value, None where the numbers make no such answer."""
        try:
            return self.value(*slots)
        except (ZeroDivisionError, ValueError):
            return None


def _ints(function: Callable[..., Hashable]) -> Callable[..., Hashable]:
    return lambda *slots: function(*map(int, slots))


def _interval(a: int, b: int) -> Hashable:
    if a >= b:
        raise ValueError("empty")
    return a, b


def _gaps(a: int, b: int) -> Hashable:
    if a >= b:
        raise ValueError("no gap")
    return a, b


def _polynomial(*terms: tuple[int, int]) -> Hashable:
    total: dict[int, int] = {}
    for coefficient, exponent in terms:
        total[exponent] = total.get(exponent, 0) + coefficient
    return frozenset(total.items())


def _projective(*numbers: int) -> Hashable:
    first = next(number for number in numbers if number)
    return tuple(Fraction(number, first) for number in numbers)


def _moebius(a: int, b: int, c: int, d: int) -> Hashable:
    return Fraction(a, c) if a * d == b * c else _projective(a, b, c, d)


_ROWS: tuple[tuple[str, str, Callable[..., Hashable], int], ...] = (
    ("integer", "{0}", _ints(lambda a: a), 1),
    ("negative", "-{0}", _ints(lambda a: -a), 1),
    ("decimal", "{0}.{1}", lambda a, b: Fraction(f"{a}.{b}"), 2),
    ("fraction", r"\frac{{{0}}}{{{1}}}", _ints(lambda a, b: Fraction(a, b)), 2),
    ("slash", "-{0}/{1}", _ints(lambda a, b: -Fraction(a, b)), 2),
    ("mixed", r"{0}\frac{{{1}}}{{{2}}}", _ints(lambda a, b, c: a + Fraction(b, c)), 3),
    ("root", r"{0}\sqrt{{{1}}}", _ints(lambda a, b: a * a * b), 2),
    ("pi", r"\frac{{{0}\pi}}{{{1}}}", _ints(lambda a, b: Fraction(a, b)), 2),
    ("set", r"\{{{0},{1},{2}\}}", _ints(lambda *abc: frozenset(abc)), 3),
    ("pair", "({0},-{1})", _ints(lambda a, b: (a, b)), 2),
    ("points", "({0},{1}),({2},{3})", _ints(lambda a, b, c, d: frozenset([(a, b), (c, d)])), 4),
    ("interval", "[{0},{1})", _ints(_interval), 2),
    ("union", r"(-\infty,{0})\cup[{1},\infty)", _ints(_gaps), 2),
    ("inequality", r"{0}<x\le {1}", _ints(_interval), 2),
    ("bound", r"k\ge \frac{{{0}}}{{{1}}}", _ints(lambda a, b: Fraction(a, b)), 2),
    ("line", "{0}x+{1}y={2}", _ints(_projective), 3),
    ("circle", "(x-{0})^2+(y+{1})^2={2}", _ints(lambda a, b, c: (a, b, c)), 3),
    (
        "polynomial",
        "{0}x^{{{1}}}-{2}x+{3}",
        _ints(lambda a, n, b, c: _polynomial((a, n), (-b, 1), (c, 0))),
        4,
    ),
    ("two_letters", "{0}a^2b-{1}ab", _ints(lambda a, b: (a, b)), 2),
    ("quotient", r"\frac{{{0}x+{1}}}{{{2}x+{3}}}", _ints(_moebius), 4),
    ("complex", "{0}-{1}i", _ints(lambda a, b: (a, b)), 2),
    (
        "matrix",
        r"\begin{{pmatrix}}{0} & {1} \\ {2} & {3}\end{{pmatrix}}",
        _ints(lambda *abcd: abcd),
        4,
    ),
    (
        "scientific",
        r"{0}.{1}\times 10^{{-{2}}}",
        lambda a, b, n: Fraction(f"{a}.{b}") / 10 ** int(n),
        3,
    ),
    ("percent", r"{0}.{1}\%", lambda a, b: Fraction(f"{a}.{b}"), 2),
    ("unit", r"{0}\text{{ cm}}^2", _ints(lambda a: a), 1),
    ("price", r"\${0}.{1}", lambda a, b: Fraction(f"{a}.{b}"), 2),
    ("degrees", r"{0}^\circ", _ints(lambda a: a), 1),
    ("decay", "{0}e^{{-{1}t}}", _ints(lambda a, b: (a, b)), 2),
    ("sine", r"{0}\sin({1}x)", _ints(lambda a, b: (a, b)), 2),
    ("logarithm", r"\frac{{\ln {0}}}{{{1}}}", _ints(lambda a, b: (a, b)), 2),
    ("conjugates", r"{0}\pm\sqrt{{{1}}}", _ints(lambda a, b: (a, b)), 2),
    ("named", "x={0}", _ints(lambda a: a), 1),
    ("choose", r"\binom{{{0}}}{{{1}}}", _ints(math.comb), 2),
    ("sequence", "{0}n-{1}", _ints(lambda a, b: (a, b)), 2),
)
FORMS = tuple(
    Form(name=name, text=text, value=value, num_slots=num) for name, text, value, num in _ROWS
)
_SMALL = {"choose": 30, "polynomial": 99, "scientific": 40, "logarithm": 99}
_SLOTS: dict[str, st.SearchStrategy[tuple[str, ...]]] = {
    form.name: st.tuples(*[st.integers(1, _SMALL.get(form.name, 9999)).map(str)] * form.num_slots)
    for form in FORMS
}


@st.composite
def filled_forms(draw: st.DrawFn) -> tuple[Form, tuple[str, ...]]:
    """A form and numbers that make an answer of it."""
    form = draw(st.sampled_from(FORMS))
    slots = draw(_SLOTS[form.name])
    assume(form.value_of(slots) is not None)
    return form, slots


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[str, str]:
    """Two texts that differ in one digit, and for that in their value."""
    form, slots = draw(filled_forms())
    index = draw(st.integers(0, len(slots) - 1))
    position = draw(st.integers(0, len(slots[index]) - 1))
    digit = draw(st.sampled_from("0123456789" if position else "123456789"))
    changed = slots[index][:position] + digit + slots[index][position + 1 :]
    other = (*slots[:index], changed, *slots[index + 1 :])
    assume(form.value_of(other) != form.value_of(slots))
    if form.name == "logarithm":  # ln 4 / 2 is ln 2 / 1
        (a, b), (c, d) = (tuple(map(int, numbers)) for numbers in (slots, other))
        assume(a**d != c**b)
    return form.fill(slots), form.fill(other)


# Pairs that are equal by construction: (gold, answer).

_small = st.integers(-9, 9)
_positive = st.integers(1, 60)


def _two_of(spellings: list[str]) -> st.SearchStrategy[tuple[str, str]]:
    return st.lists(st.sampled_from(spellings), min_size=2, max_size=2, unique=True).map(_pair)


def _pair(texts: list[str]) -> tuple[str, str]:
    return texts[0], texts[1]


@st.composite
def _rational_spellings(draw: st.DrawFn) -> tuple[str, str]:
    value = Fraction(draw(st.integers(-400, 400)), draw(_positive))
    factor = draw(st.integers(2, 9))
    sign, size = ("-" if value < 0 else ""), abs(value)
    top, bottom = size.numerator, size.denominator
    whole, rest = divmod(top, bottom)
    spellings = [
        rf"{sign}\frac{{{top}}}{{{bottom}}}",
        rf"\frac{{{sign}{top}}}{{{bottom}}}",
        f"{sign}{top}/{bottom}",
        rf"{sign}\dfrac{{{top * factor}}}{{{bottom * factor}}}",
        rf"\left({sign}\frac{{{top}}}{{{bottom}}}\right)",
    ]
    if whole and rest:
        spellings.append(rf"{sign}{whole}\frac{{{rest}}}{{{bottom}}}")
    if bottom == 1:
        spellings += [f"{sign}{top}", f"{sign}{top}.0", f"{sign}{top:,}"]
    spellings.append(sign + _decimal(top, bottom))
    return draw(_two_of(spellings))


def _decimal(top: int, bottom: int) -> str:
    r"""`top / bottom` as a decimal, its period under a bar."""
    whole, rest = divmod(top, bottom)
    digits: list[str] = []
    seen: dict[int, int] = {}
    while rest and rest not in seen:
        seen[rest] = len(digits)
        digit, rest = divmod(10 * rest, bottom)
        digits.append(str(digit))
    if not rest:
        return f"{whole}.{''.join(digits)}" if digits else str(whole)
    start = seen[rest]
    return rf"{whole}.{''.join(digits[:start])}\overline{{{''.join(digits[start:])}}}"


def _polynomial_text(coefficients: list[int], letter: str = "x") -> str:
    """Coefficients from the constant upwards as LaTeX, the highest power first."""
    text = ""
    for exponent in range(len(coefficients) - 1, -1, -1):
        value = coefficients[exponent]
        if not value:
            continue
        power = {0: "", 1: letter}.get(exponent, f"{letter}^{{{exponent}}}")
        size = "" if abs(value) == 1 and power else str(abs(value))
        text += ("-" if value < 0 else "+" if text else "") + size + power
    return text or "0"


@st.composite
def _products(draw: st.DrawFn) -> tuple[str, str]:
    factors = draw(
        st.lists(st.tuples(st.integers(1, 5), _small.filter(bool)), min_size=2, max_size=4)
    )
    coefficients = [1]
    for slope, constant in factors:
        grown = [0] * (len(coefficients) + 1)
        for exponent, value in enumerate(coefficients):
            grown[exponent] += value * constant
            grown[exponent + 1] += value * slope
        coefficients = grown
    product = "".join(f"({_polynomial_text([b, a])})" for a, b in factors)
    return draw(_two_of([_polynomial_text(coefficients), product]))


@st.composite
def _shuffled_lists(draw: st.DrawFn) -> tuple[str, str]:
    values = draw(st.lists(st.integers(-99, 99), min_size=2, max_size=6, unique=True))
    other = draw(st.permutations(values))
    separator = draw(st.sampled_from([",", ", ", r",\ ", ";", r"\text{ and }"]))
    if separator == r"\text{ and }":
        text = ", ".join(map(str, other[:-1])) + separator + str(other[-1])
    else:
        text = separator.join(map(str, other))
    if "and" not in text and draw(st.booleans()):
        text = rf"\{{{text}\}}"
    return rf"\{{{','.join(map(str, values))}\}}", text


@st.composite
def _shuffled_points(draw: st.DrawFn) -> tuple[str, str]:
    point = st.tuples(_small, _small, _small)
    points = draw(st.lists(point, min_size=1, max_size=4, unique=True))
    other = draw(st.permutations(points))
    return ",".join(map(_point, points)), r",\ ".join(map(_point, other))


def _point(point: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, point))})"


@st.composite
def _intervals(draw: st.DrawFn) -> tuple[str, str]:
    low, high = sorted(draw(st.lists(_small, min_size=2, max_size=2, unique=True)))
    left, right = draw(st.sampled_from("[(")), draw(st.sampled_from("])"))
    below, above = (r"\le" if left == "[" else "<"), (r"\le" if right == "]" else "<")
    flipped = {"<": ">", r"\le": r"\ge"}
    spellings = [
        f"{left}{low},{high}{right}",
        rf"\left{left}{low}, {high}\right{right}",
        f"{low}{below} x{above} {high}",
        f"{high}{flipped[above]} x{flipped[below]} {low}",
        rf"x\in{left}{low},{high}{right}",
        rf"\{{x \mid {low}{below} x{above} {high}\}}",
    ]
    return draw(_two_of(spellings))


@st.composite
def _radicals(draw: st.DrawFn) -> tuple[str, str]:
    outer, inner = draw(st.integers(2, 12)), draw(st.sampled_from([2, 3, 5, 6, 7, 10, 11]))
    spellings = [
        rf"{outer}\sqrt{{{inner}}}",
        rf"\sqrt{{{outer * outer * inner}}}",
        rf"\frac{{{outer * inner}}}{{\sqrt{{{inner}}}}}",
        rf"{outer}\cdot {inner}^{{1/2}}",
        rf"\sqrt{{{inner}}}\cdot {outer}",
    ]
    return draw(_two_of(spellings))


@st.composite
def _equations(draw: st.DrawFn) -> tuple[str, str]:
    a, b, c = draw(_positive), draw(_positive), draw(_positive)
    factor = draw(st.integers(2, 9))
    spellings = [
        f"{a}x+{b}y={c}",
        f"{a}x+{b}y-{c}=0",
        f"{c}={b}y+{a}x",
        f"-{a}x-{b}y=-{c}",
        f"{a * factor}x+{b * factor}y={c * factor}",
        rf"\frac{{{a}}}{{{c}}}x+\frac{{{b}}}{{{c}}}y=1",
        f"{a}x={c}-{b}y",
    ]
    return draw(_two_of(spellings))


@st.composite
def _conjugates(draw: st.DrawFn) -> tuple[str, str]:
    middle, inner = draw(st.integers(1, 30)), draw(st.sampled_from([2, 3, 5, 7, 13]))
    low, high = rf"{middle}-\sqrt{{{inner}}}", rf"{middle}+\sqrt{{{inner}}}"
    spellings = [
        rf"{middle}\pm\sqrt{{{inner}}}",
        f"{low}, {high}",
        rf"x={high} \text{{ or }} x={low}",
        rf"\{{{high},{low}\}}",
    ]
    return draw(_two_of(spellings))


@st.composite
def _matrices(draw: st.DrawFn) -> tuple[str, str]:
    rows = draw(st.lists(st.tuples(_small, _small), min_size=1, max_size=3))
    factor = draw(st.integers(2, 9))

    def matrix(scale: int, name: str) -> str:
        body = r" \\ ".join(" & ".join(str(value * scale) for value in row) for row in rows)
        return rf"\begin{{{name}}} {body} \end{{{name}}}"

    gold = matrix(factor, "pmatrix")
    return gold, draw(
        st.sampled_from([matrix(factor, "bmatrix"), f"{factor}{matrix(1, 'pmatrix')}"])
    )


@st.composite
def _identities(draw: st.DrawFn) -> tuple[str, str]:
    k, m = draw(st.integers(2, 9)), draw(st.integers(2, 9))
    pairs = [
        (rf"{k}\sin 2x", rf"{2 * k}\sin x\cos x"),
        (rf"\cos 2x+{k}", rf"{k + 1}-2\sin^2 x"),
        (rf"\ln {k * m}", rf"\ln {k}+\ln {m}"),
        (rf"{k}\ln {m}", rf"\ln {m**k}"),
        (f"2^{{n+{k}}}", rf"{2**k}\cdot 2^n"),
        (rf"\frac{{{k}x+{m}}}{{{k + m}}}", rf"\frac{{{k}}}{{{k + m}}}x+\frac{{{m}}}{{{k + m}}}"),
        (rf"\binom{{n}}{{2}}+{k}", rf"\frac{{n(n-1)}}{{2}}+{k}"),
        (f"{k}+{m}i", f"{m}i+{k}"),
        (rf"\log_{{{k}}} {m}", rf"\frac{{\ln {m}}}{{\ln {k}}}"),
        (rf"{k}x^{{-1}}", rf"\frac{{{k}}}{{x}}"),
        (rf"e^{{-{k}t}}", rf"\exp(-{k}t)"),
        (rf"\frac{{1}}{{x+{k}}}-\frac{{1}}{{x}}", rf"-\frac{{{k}}}{{x(x+{k})}}"),
        (rf"{k}\text{{ cm}}^2", rf"{k}\text{{ square centimeters}}"),
        (rf"{k}{m}^\circ", rf"{k}{m}\text{{ degrees}}"),
        (rf"\text{{({'ABCDE'[k % 5]})}}", "ABCDE"[k % 5]),
    ]
    return draw(_two_of(list(draw(st.sampled_from(pairs)))))


EQUAL_PAIRS = {
    "rationals": _rational_spellings(),
    "polynomials": _products(),
    "lists": _shuffled_lists(),
    "points": _shuffled_points(),
    "intervals": _intervals(),
    "radicals": _radicals(),
    "equations": _equations(),
    "conjugates": _conjugates(),
    "matrices": _matrices(),
    "identities": _identities(),
}


# Ways to write the same LaTeX differently.


def _sized_brackets(text: str) -> str:
    if re.search(r"\\(?:left|right|sqrt\[)", text):
        return text
    text = re.sub(r"(?<!\\)([(\[])", r"\\left\1", text)
    return re.sub(r"(?<!\\)([)\]])", r"\\right\1", text)


def _balanced_brackets(text: str) -> bool:
    return text.count("(") + text.count("[") == text.count(")") + text.count("]")


STYLES: dict[str, Callable[[str], str]] = {
    "dfrac": lambda text: text.replace(r"\frac", r"\dfrac"),
    "tfrac": lambda text: text.replace(r"\frac", r"\tfrac"),
    "display": lambda text: rf"\displaystyle {text}",
    "dollars": lambda text: f"${text}$",
    "parentheses of LaTeX": lambda text: rf"\({text}\)",
    "full stop": lambda text: f"{text}.",
    "comma": lambda text: f"{text},",
    "spaces around": lambda text: f"  {text}\n",
    "thin space behind": lambda text: rf"{text}\,",
    "quad behind": lambda text: rf"{text} \quad",
    "braces": lambda text: f"{{{text}}}",
    "bold": lambda text: rf"\mathbf{{{text}}}",
    "boldsymbol": lambda text: rf"\boldsymbol{{{text}}}",
    "colour": lambda text: rf"\textcolor{{blue}}{{{text}}}",
    "zero width": lambda text: f"\u200b{text}\u200b",
    "no-break space": lambda text: f"\u00a0{text}",
    "minus": lambda text: text.replace("-", "−"),
    "pi": lambda text: re.sub(r"\\pi(?![a-zA-Z])", "π", text),
    "infinity": lambda text: re.sub(r"\\infty(?![a-zA-Z])", "∞", text),
    "union": lambda text: re.sub(r"\\cup(?![a-zA-Z])", "∪", text),
    "at most": lambda text: re.sub(r"\\le(?![a-zA-Z])", "≤", text),
    "slanted at most": lambda text: re.sub(r"\\le(?![a-zA-Z])", r"\\leqslant ", text),
    "at least": lambda text: re.sub(r"\\ge(?![a-zA-Z])", "≥", text),
    "superscript": lambda text: re.sub(r"\^2(?!\d)", "²", text),
    "braced exponent": lambda text: re.sub(r"\^(\d)(?!\d)", r"^{\1}", text),
    "degree sign": lambda text: text.replace(r"^\circ", "°"),
    "braced degree": lambda text: text.replace(r"^\circ", r"^{\circ}"),
    "plus minus": lambda text: re.sub(r"\\pm(?![a-zA-Z])", "±", text),
    "square brackets of matrices": lambda text: text.replace("pmatrix", "bmatrix"),
    "full width": lambda text: text.translate(str.maketrans("0123456789", "０１２３４５６７８９")),
    "spaces around signs": lambda text: re.sub(r"(?<=[\w})])([+=])(?=[\w\\({])", r" \1 ", text),
    "sized brackets": lambda text: _sized_brackets(text) if _balanced_brackets(text) else text,
}
"""By name: a text to a text that means the same. Applied one after the other, in any order."""

OUTER_STYLES = ("dollars", "parentheses of LaTeX")
"""Styles that may stand once and only outermost."""
