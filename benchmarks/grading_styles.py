"""One answer written in many ways: the typographic variants of a gold.

Every style is a function from the LaTeX of an answer to LaTeX that means the same, or None where it
has nothing to change. None of them touches what would change the meaning of words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from workings.grading.text.braces import is_balanced

PARTICULAR_SHARE = 0.75
"""How often a gold gets a style made for what it holds, where there is one."""

Style = Callable[[str], str | None]
"""The same answer written another way; None where the style has nothing to change."""

_WORDS = re.compile(r"[A-Za-z]{2,}(?: [A-Za-z]{2,})*")
_INTEGER = re.compile(r"-?[1-9]\d{3,}")
_MARKED_INTEGER = re.compile(r"-?[1-9]\d{0,2}(?:,\d{3})+")


def restyled(gold: str, source: random.Random) -> tuple[str, str]:
    """A style that changes `gold`, and `gold` in it; one made for what it holds, where there is.

    >>> restyled("even", random.Random(1))
    ('as text', '\\\\text{even}')
    """
    particular, general = (
        [(style, text) for style in styles if (text := style(gold)) is not None]
        for styles in (PARTICULAR_STYLES, GENERAL_STYLES)
    )
    use_particular = particular and source.random() < PARTICULAR_SHARE
    style, text = source.choice(particular if use_particular else general)
    return style.__name__.replace("_", " "), text


def with_large_fractions(gold: str) -> str | None:
    """
    >>> with_large_fractions(r"\\frac{1}{2}")
    '\\\\dfrac{1}{2}'
    """
    return _if_changed(gold, re.sub(r"\\frac(?![a-z])", r"\\dfrac", gold))


def with_short_fractions(gold: str) -> str | None:
    """
    >>> with_short_fractions(r"\\frac{1}{2}")
    '\\\\frac12'
    """
    return _if_changed(gold, re.sub(r"\\frac\{(\d)\}\{(\d)\}(?!\d)", r"\\frac\1\2", gold))


def with_growing_brackets(gold: str) -> str | None:
    r"""
    >>> with_growing_brackets("(3, 4)")
    '\\left(3, 4\\right)'
    """
    if "\\left" in gold or not is_balanced(gold) or gold.count("(") != gold.count(")"):
        return None
    text = gold.replace("(", "\\left(").replace(")", "\\right)")
    return _if_changed(gold, text)


def with_plain_brackets(gold: str) -> str | None:
    """
    >>> with_plain_brackets(r"\\left(3, 4\\right]")
    '(3, 4]'
    """
    text = re.sub(r"\\(?:left|right)\s*(?=[()\[\]|]|\\[{}])", "", gold)
    return _if_changed(gold, text) if "\\left" not in text and "\\right" not in text else None


def with_air(gold: str) -> str | None:
    """
    >>> with_air("x+1=y"), with_air(r"\\text{a+b}")
    ('x + 1 = y', None)
    """
    if "\\text" in gold or _WORDS.fullmatch(gold):
        return None
    return _if_changed(gold, re.sub(r"(?<=[\w})\]])\s*([+=])\s*(?=[\w\\({])", r" \1 ", gold))


def with_thin_space(gold: str) -> str | None:
    """
    >>> with_thin_space("2x+1")
    '2x\\\\,+\\\\,1'
    """
    if "\\text" in gold or _WORDS.fullmatch(gold):
        return None
    return _if_changed(gold, re.sub(r"(?<=[\w})\]])\s*\+\s*(?=[\w\\({])", r"\\,+\\,", gold))


def with_a_unicode_minus(gold: str) -> str | None:
    """
    >>> with_a_unicode_minus("-3"), with_a_unicode_minus("x-axis and y")
    ('−3', None)
    """
    if "\\text" in gold or re.search(r"[A-Za-z]{2,}-|-[A-Za-z]{2,}", gold):
        return None
    return _if_changed(gold, gold.replace("-", "\N{MINUS SIGN}"))


def with_unicode_letters(gold: str) -> str | None:
    """
    >>> with_unicode_letters(r"2\\pi"), with_unicode_letters(r"90^\\circ")
    ('2π', '90°')
    """
    text = re.sub(r"\\pi(?![a-zA-Z])\s?", "π", gold)
    text = re.sub(r"\\infty(?![a-zA-Z])", "∞", text)
    text = re.sub(r"\^(?:\\circ|\{\\circ\})", "°", text)
    return _if_changed(gold, text)


def with_thousands_marks(gold: str) -> str | None:
    """
    >>> with_thousands_marks("12345"), with_thousands_marks("123")
    ('12,345', None)
    """
    return f"{int(gold):,}" if _INTEGER.fullmatch(gold) else None


def with_latex_thousands_marks(gold: str) -> str | None:
    """
    >>> with_latex_thousands_marks("12345")
    '12{,}345'
    """
    marked = with_thousands_marks(gold)
    return marked.replace(",", "{,}") if marked is not None else None


def without_thousands_marks(gold: str) -> str | None:
    """
    >>> without_thousands_marks("12,345"), without_thousands_marks("1,2")
    ('12345', None)
    """
    return gold.replace(",", "") if _MARKED_INTEGER.fullmatch(gold) else None


def as_text(gold: str) -> str | None:
    """
    >>> as_text("even"), as_text("x")
    ('\\\\text{even}', None)
    """
    return f"\\text{{{gold}}}" if _WORDS.fullmatch(gold) else None


def without_text(gold: str) -> str | None:
    """
    >>> without_text(r"\\text{even}")
    'even'
    """
    match = re.fullmatch(r"\\text\{([^{}\\]+)\}", gold)
    return match[1] if match is not None else None


def with_a_full_stop(gold: str) -> str | None:
    """
    >>> with_a_full_stop("5")
    '5.'
    """
    return f"{gold}." if not gold.rstrip().endswith((".", "!", "?")) else None


def in_dollars(gold: str) -> str | None:
    """
    >>> in_dollars("5")
    '$5$'
    """
    return f"${gold}$" if "$" not in gold and not _WORDS.search(_without_commands(gold)) else None


def in_display_style(gold: str) -> str | None:
    """
    >>> in_display_style("5"), in_display_style("no solution")
    ('\\\\displaystyle 5', None)
    """
    return f"\\displaystyle {gold}" if in_dollars(gold) is not None else None


def with_room(gold: str) -> str:
    """
    >>> with_room("5")
    ' 5 '
    """
    return f" {gold} "


def in_bold(gold: str) -> str | None:
    """
    >>> in_bold("5"), in_bold("x+1")
    ('\\\\mathbf{5}', None)
    """
    return f"\\mathbf{{{gold}}}" if re.fullmatch(r"-?\d+", gold) else None


PARTICULAR_STYLES: tuple[Style, ...] = (
    with_large_fractions,
    with_short_fractions,
    with_growing_brackets,
    with_plain_brackets,
    with_air,
    with_thin_space,
    with_a_unicode_minus,
    with_unicode_letters,
    with_thousands_marks,
    with_latex_thousands_marks,
    without_thousands_marks,
    as_text,
    without_text,
)
GENERAL_STYLES: tuple[Style, ...] = (
    with_a_full_stop,
    in_dollars,
    in_display_style,
    with_room,
    in_bold,
)


def _if_changed(gold: str, text: str) -> str | None:
    return text if text != gold else None


def _without_commands(text: str) -> str:
    return re.sub(r"\\[a-zA-Z]+", "", text)
