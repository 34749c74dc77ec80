"""math-verify, asked as the last tier. Imported in worker processes only: it loads sympy.

Its own timeouts are off, since they need signals and the main thread; the pool kills instead.
Only LaTeX is parsed. Its parser of bare expressions is not used: it evaluates text as code.
"""

from __future__ import annotations

import logging

from math_verify import LatexExtractionConfig, parse, verify
from sympy import Expr, Float

_CONFIG = (LatexExtractionConfig(),)
_DIGITS = 40
_RELATIVE_TOLERANCE = 1e-25


def peer_says_equal(answer: str, gold: str) -> bool:
    """True where math-verify holds `answer` and `gold`, both bare LaTeX, for the same.

    Both are set inside `$ $`: bare LaTeX would be read as the last number in it.
    """
    gold_parsed = _parsed(gold)
    answer_parsed = _parsed(answer)
    if not gold_parsed or not answer_parsed:
        return False
    if not verify(gold_parsed, answer_parsed, timeout_seconds=None):
        return False
    return _agree_in_relation(answer_parsed[0], gold_parsed[0])


def warm_up() -> None:
    """Load what the first grade would load, before any worker is forked."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    for answer in (r"\frac{1}{2}x^2+1", r"\{1,\sqrt{2}\}", "(0,1]"):
        if not peer_says_equal(answer, answer):
            raise RuntimeError(f"math-verify does not find {answer!r} equal to itself")


def _agree_in_relation(answer: object, gold: object) -> bool:
    """False where two exact numbers differ by more than a relative tolerance.

    math-verify compares numbers to an absolute one, by which 1/2004! equals 1/2006!.
    """
    if not (isinstance(answer, Expr) and isinstance(gold, Expr)):
        return True
    if not (answer.is_number and gold.is_number) or answer.has(Float) or gold.has(Float):
        return True
    difference = abs((answer - gold).evalf(_DIGITS, maxn=10 * _DIGITS))
    size = abs(gold.evalf(_DIGITS))
    return bool(difference <= _RELATIVE_TOLERANCE * size)


def _parsed(text: str) -> list[object]:
    parsed = parse(
        f"${text}$",
        extraction_config=_CONFIG,
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
    )
    return list(parsed)
