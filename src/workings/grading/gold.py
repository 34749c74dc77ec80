"""References, read once: what the tiers need of a gold answer, and why one cannot be used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from workings.grading.cache import remembered
from workings.grading.reading.answers import Answer, Collection, Named
from workings.grading.reading.read import read_answer
from workings.grading.text.braces import is_balanced, max_depth
from workings.grading.text.extraction import has_box, last_box
from workings.grading.text.normalise import compact, normalise
from workings.grading.text.symbols import CIRCLED

_SYMBOLS = {"∅", "{", "}", "∞", *(chr(CIRCLED + place) for place in range(20))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One side of a comparison as the tiers see it.

    Attributes:
        text: normalised LaTeX.
        form: its canonical form; two texts with one form are the same answer.
        answer: what it was read as.
    """

    text: str
    form: str
    answer: Answer

    @property
    def num_elements(self) -> int:
        """Elements of the list that it is; 1 where it is none."""
        answer = self.answer.answer if isinstance(self.answer, Named) else self.answer
        if isinstance(answer, Collection) and answer.brackets in ("", "{}"):
            return len(answer.items)
        return 1


def read(answer: str) -> Reading:
    """`answer` as the tiers see it; works on golds and answers alike.

    >>> read(r"x = \\dfrac12.").text
    'x = \\\\frac{1}{2}'
    """
    text = normalise(answer)
    return Reading(text=text, form=compact(text), answer=read_answer(text))


read_gold = remembered(read)
"""As `read`; golds come back with every sample of their problem and are read once."""


@remembered
def unboxed(gold: str) -> str:
    """`gold` without a box around it; unchanged where it has none."""
    return (last_box(gold) or "") if has_box(gold) else gold


def gold_fault(gold: object, *, max_length: int, max_nesting: int) -> str | None:
    """Why `gold` cannot be graded against, None where it can.

    >>> gold_fault("\\\\frac{1}{2}", max_length=100, max_nesting=9) is None
    True
    >>> gold_fault(" . ", max_length=100, max_nesting=9)
    'it is empty'
    """
    if not isinstance(gold, str):
        return f"it is {type(gold).__name__} {gold!r:.80}, not text"
    return _fault_of(gold, max_length, max_nesting)


@lru_cache(maxsize=16_384)
def _fault_of(gold: str, max_length: int, max_nesting: int) -> str | None:
    if "####" in gold:
        return "it is a whole solution, not an answer: keep the text after '####'"
    text = unboxed(gold)
    if not is_balanced(text):
        return "its braces are not balanced"
    if len(text) > max_length:
        return f"it has {len(text)} characters; at most {max_length} can be compared"
    if max_depth(text) > max_nesting:
        return f"its brackets nest deeper than {max_nesting}"
    form = read_gold(text).form
    if not form:
        return "it is empty"
    if not any(character.isalnum() or character in _SYMBOLS for character in form):
        return f"it holds no number, word or symbol: {text!r:.80}"
    return None
