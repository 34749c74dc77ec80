"""Which questions are the same: the key that duplicates and exact matches are found by."""

from __future__ import annotations

import hashlib
import re
import unicodedata

_SPACING = re.compile(r"\\(?:left|right|displaystyle|q?quad)(?![a-z])|\\[!,;:\s]")
_DELIMITERS = re.compile(r"\\?\$+|\\[()\[\]]")
_FRACTION = re.compile(r"\\[dt]frac(?![a-z])")
_END = ".,;:!?。，；：！？"


def normalised(text: str) -> str:
    r"""The text without what two copies of one question differ in.

    Unicode is composed (NFKC) and case folded; LaTeX's math delimiters, spacing commands and
    variants of \frac go, white space goes, and so does punctuation at the end. Operators and
    digits stay: questions that differ in a sign are different.

    >>> normalised(r"Find $\dfrac{1}{2} + x$.") == normalised(r"find \(\frac{1}{2}+x\)")
    True
    >>> normalised("Find $x+1$.") == normalised("Find $x-1$.")
    False
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    text = _FRACTION.sub(r"\\frac", text)
    text = _DELIMITERS.sub("", _SPACING.sub("", text))
    return "".join(text.split()).rstrip(_END)


def question_key(text: str) -> bytes:
    """16 bytes that are equal for questions with equal `normalised` text."""
    return hashlib.blake2b(
        normalised(text).encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()
