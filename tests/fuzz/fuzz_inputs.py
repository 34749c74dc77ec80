"""Texts that a fuzzer feeds to the grader: grown from a grammar, mutated, or built to be hard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from random import Random

CASES = Path(__file__).parents[1] / "cases" / "grading_cases.jsonl"

_MACROS = r"""
\frac \dfrac \tfrac \cfrac \sqrt \left \right \text \mathrm \mathbf \textbf \operatorname \over
\displaystyle \boxed \fbox \begin{pmatrix} \end{pmatrix} \begin{cases} \end{cases} \choose
\begin{array}{cc} \end{array} \pm \mp \cdot \times \div \binom \pi \infty \circ \cup \cap
\setminus \in \notin \le \leq \leqslant \ge \neq \ne \lt \gt \equiv \pmod \bmod \approx \sim \to
\mid \vert \lvert \rvert \| \langle \rangle \lfloor \rfloor \lceil \rceil \sin \cos \tan \sec
\arcsin \sinh \ln \log \log_2 \lg \exp \max \min \gcd \sum \prod \int \lim \overline \dot \vec
\hat \overrightarrow \angle \triangle \emptyset \varnothing \mathbb{R} \mathbb{Z} \alpha \theta
\Delta \ldots \cdots \dots \quad \, \! \; \: \{ \} \% \$ \\ \& \_ \# \color{red}
\textcolor{blue} \underline \phantom \not \neg \land \lor
"""
_WORDS = """
cm m km kg g s h hours min mph dollars cents % percent and or to is the than by per x= yes no
true none undefined DNE infinity solution solutions all real numbers except inclusive January
March 5th Monday p.m. a.m. noon three forty-five half million degrees square cubic
"""
_SNIPPETS = (
    "</think>", "<think>", "<answer>", "</answer>", "####", "Answer:", "answer is", "答案", "\r\n",
    "```", "**", "x^{2}", "\\frac{1}{2}", "\\sqrt{2}", "(-\\infty,", "10^{10}", "9^{9^{9^{9}}}",
    "1,234", "1{,}234", "0.\\overline{3}", "2_{3}", "10:30", "1:2:3", "\\boxed{", "}",
)  # fmt: skip
_ASCII = "{}()[]|<>=+-*/^_!?,.;:'\"&%$#~`@ \n\t0123456789abcdefgiknrtxyzABCDEINRX"
_SYMBOLS = "−–—×÷·√∞≤≥≠≈±∪∩∈∅°′″½⅓¾²³ⁿ₂πθαΔ∑∫∠△，。；：（）【】｛｝％＄￥１２３ＡＢ"
_CHINESE = "一二三十百千万半是否或和元米"
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00a0\u2009\u202e\u0301\u0336\x00\x07\x1b\x7f\ud800"
_BEYOND = "\U0001d7d9\U0001f600"
PIECES: Sequence[str] = (
    *_MACROS.split(), *_WORDS.split(), *_SNIPPETS,
    *_ASCII, *_SYMBOLS, *_CHINESE, *_INVISIBLE, *_BEYOND,
)  # fmt: skip


@lru_cache(maxsize=1)
def corpus() -> tuple[tuple[str, str], ...]:
    """(gold, response) of our own cases, as a start for mutations."""
    rows = [json.loads(line) for line in CASES.read_text("utf-8").split("\n") if line]
    return tuple((row["gold"], row["response"]) for row in rows if row["response"])


def answer(random: Random) -> str:
    """An answer or a gold, sane or broken."""
    kind = random.random()
    if kind < 0.35:
        text = expression(random, random.randint(1, 6))
    elif kind < 0.45:
        text = structure(random)
    elif kind < 0.65:
        text = _answer_of(random.choice(corpus()), random)
    elif kind < 0.9:
        text = "".join(random.choices(PIECES, k=random.randint(1, 30)))
    else:
        text = hard(random, random.choice((20, 100, 500, 1000, 4000)))
    for _ in range(random.choice((0, 0, 1, 1, 2, 5))):
        text = mutated(text, random)
    return text[:6000]


def response(random: Random) -> str:
    """A whole response: prose, boxes, tags and thinking, in and out of order."""
    if random.random() < 0.3:
        text = random.choice(corpus())[1]
    else:
        text = "".join(_block(random) for _ in range(random.randint(1, 6)))
    for _ in range(random.choice((0, 1, 1, 3))):
        text = mutated(text, random)
    return text


def expression(random: Random, depth: int) -> str:
    """A well-formed LaTeX expression of bounded depth."""
    if depth <= 0 or random.random() < 0.15:
        return random.choice(
            (*"xynak", r"\pi", "e", "i", "0", "1", "2", "7", "10", "0.5", "123", "3.14159")
        )
    one, two = expression(random, depth - 1), expression(random, random.randint(0, depth - 1))
    return random.choice(
        (
            rf"{one}+{two}", f"{one}-{two}", rf"{one}\cdot {two}", f"{one}{two}", f"{one}/{two}",
            rf"\frac{{{one}}}{{{two}}}", rf"\left({one}\right)", f"({one})({two})", f"-{one}",
            f"{one}^{{{two}}}", f"({one})^2", rf"\sqrt{{{one}}}", rf"\sqrt[3]{{{one}}}",
            rf"\sin {one}", rf"\cos({one})", rf"\tan^2 {one}", rf"\ln({one})",
            rf"\log_{{2}}({one})",
            rf"|{one}|", rf"\lfloor {one}\rfloor", f"({one})!", rf"\binom{{{one}}}{{{two}}}",
            rf"e^{{{one}}}", rf"\frac{{{one}}}{{{two}}}\pi", f"{one}_{{{two}}}",
            rf"\max({one},{two})",
            rf"\sum_{{k=1}}^{{{two}}} {one}", rf"\int_0^1 {one}\,dx", rf"\lim_{{x\to 0}} {one}",
            rf"\arctan({one})", rf"{one}^\circ", rf"{one}\%", rf"2\frac{{{one}}}{{{two}}}",
            rf"\overline{{{one}}}", rf"\gcd({one},{two})", rf"{one} \bmod {two}", rf"\cosh {one}",
        )
    )  # fmt: skip


def structure(random: Random) -> str:
    """A list, set, tuple, interval, relation, matrix, ratio, clock time or sentence."""
    parts = [expression(random, random.randint(0, 2)) for _ in range(random.randint(1, 5))]
    one, two = parts[0], parts[-1]
    opening, closing = random.choice("[("), random.choice("])")
    return random.choice(
        (
            ",".join(parts), rf"\{{{', '.join(parts)}\}}", f"({','.join(parts)})",
            rf"{opening}{one},{two}{closing}",
            rf"(-\infty,{one}{closing}\cup{opening}{two},\infty)",
            rf"{one}<x\le {two}", rf"x\ne {one}", f"{one}={two}", rf"x\equiv {one}\pmod{{{two}}}",
            rf"\begin{{pmatrix}} {' & '.join(parts)} \\ {' & '.join(parts)} \end{{pmatrix}}",
            rf"\begin{{cases}} {one} & x>0 \\ {two} & x\le 0 \end{{cases}}", rf"{one}\pm {two}",
            rf"\{{x \mid {one}<x\}}", rf"{one} \text{{ or }} {two}", ":".join(parts),
            rf"\mathbb{{R}}\setminus\{{{one}\}}", rf"f(x)={one}", rf"(x,y)=({one},{two})",
            rf"x={one}, y={two}", rf"{one}+k\pi, k\in\mathbb{{Z}}", rf"{one}\text{{ cm}}^2",
            rf"\${one}", f"{one} km/h", f"({random.choice('ABCDE')}) {one}", f"1011_{{{one}}}",
            rf"A({one},{two})", rf"all real numbers except {one}", f"between {one} and {two}",
        )
    )  # fmt: skip


def hard(random: Random, length: int) -> str:
    """A few constructions repeated up to about `length` characters: slow or deep for careless code.

    What is repeated does not depend on `length`, so that one seed gives one shape in any size.
    """
    shapes = [_shape(random) for _ in range(random.choice((1, 1, 2, 2, 3)))]
    between = [random.choice((".", ",", " ", "=", "x", "\\", *PIECES)) for _ in shapes]
    size = length // len(shapes)
    text = ""
    for (opening, inner, closing), behind in zip(shapes, between, strict=True):
        count = max(1, size // max(1, len(opening + closing)))
        text += opening * count + inner + closing * count + behind
    return text


def _shape(random: Random) -> tuple[str, str, str]:
    """What opens, stands inside and closes, each repeated but the middle one."""
    piece, other = random.choice(PIECES), random.choice(PIECES)
    inner = random.choice(("1", "x", "", piece))
    opening, closing = random.choice(
        (
            ("(", ")"), ("{", "}"), ("[", "]"), (r"\frac{1}{", "}"), (r"\sqrt{", "}"), ("2^{", "}"),
            (r"\left(", r"\right)"), (r"\text{", "}"), ("|", "|"), (r"\{", r"\}"), ("-", ""),
            ("", "!"), ("1,", ""), (r"\boxed{", "}"), (r"\sin ", ""), ("1+", ""), ("1:", ""),
            (r"x^{2}", ""), ("$", ""), (r"\begin{cases} 1 & ", r"\end{cases}"), ("and ", ""),
            (r"\overline{", "}"), ("9", ""), ("9", ""), (" ", ""), (r"\pm ", ""), ("<", ""),
            ("a", ""), (r"\cup ", ""), ("f(", ")"), (r"\log_{", "}"), ("10^", ""), (",", ""),
            (".", ""), ("'", ""), ("一", ""), ("word ", ""), ("12 cm ", ""), ("x=1 ", ""),
            ("1/", ""), (piece, other), (piece, ""), (piece, ""), (piece + other, ""),
        )
    )  # fmt: skip
    return opening, inner, closing


def mutated(text: str, random: Random) -> str:
    """`text` with one change, of characters or of the bytes behind them."""
    place = random.randint(0, len(text))
    other = random.randint(place, min(len(text), place + random.choice((1, 3, 20))))
    change = random.randint(0, 8)
    if change == 0:
        return text[:place] + text[other:]
    if change == 1:
        return text[:other] + text[place:]
    if change == 2:
        return text[:place] + chr(random.randint(0, 0x2FFF)) + text[place:]
    if change == 3:
        return text[:place] + random.choice(PIECES) + text[other:]
    if change == 4:
        return text[:place] + text[place:other][::-1] + text[other:]
    if change == 5 and text:
        return text[:place] + chr(ord(text[place - 1]) ^ 1 << random.randint(0, 6)) + text[place:]
    if change == 6:
        raw = bytearray(text.encode("utf-8", "surrogatepass"))
        for _ in range(random.randint(1, 4)):
            if raw:
                raw[random.randrange(len(raw))] = random.randrange(256)
        return raw.decode("utf-8", "replace")
    if change == 7:
        return text[:place] + text[place:other] * random.choice((2, 5, 40)) + text[other:]
    return text[:place] + random.choice(PIECES) + text[place:]


def _answer_of(pair: tuple[str, str], random: Random) -> str:
    gold, text = pair
    start = text.rfind("\\boxed{")
    return gold if start < 0 or random.random() < 0.5 else text[start + 7 :].rpartition("}")[0]


def _block(random: Random) -> str:
    kind = random.randint(0, 9)
    if kind < 4:
        return rf"$\boxed{{{answer(random)}}}$ "
    if kind == 4:
        return f"<think>{answer(random)}</think>\n"
    if kind == 5:
        return f"<answer>{answer(random)}</answer>"
    if kind == 6:
        return (
            random.choice(("Answer: ", "#### ", "The answer is ", "答案：")) + answer(random) + "\n"
        )
    if kind == 7:
        return "".join(random.choices(PIECES, k=random.randint(1, 40)))
    return "We argue as before. " * random.randint(1, 30)
