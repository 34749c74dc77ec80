"""References, read once: what the tiers need of a gold answer, and why one cannot be used."""

from __future__ import annotations

from dataclasses import dataclass

from workings.grading.braces import is_balanced, max_depth, split_list
from workings.grading.cache import remembered
from workings.grading.extraction import has_box, last_box
from workings.grading.normalise import canonical, normalise, without_name
from workings.grading.number import Number, read_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One side of a comparison as the tiers see it.

    Attributes:
        text: normalised LaTeX.
        name: the name in front ("x" of "x = 5"), None where there is none.
        body: `text` without that name.
        number: the number that `body` is, if it is one.
    """

    text: str
    name: str | None
    body: str
    number: Number | None

    @property
    def num_elements(self) -> int:
        """Elements of the bare or braced list that `body` is; 1 where it is none."""
        body = self.body
        if body.startswith("\\{") and body.endswith("\\}"):
            body = body[2:-2]
        return 1 if self.number is not None else len(split_list(body))


@remembered
def read(answer: str) -> Reading:
    """`answer` as the tiers see it; works on golds and answers alike.

    >>> read(r"x = \\dfrac12.").body
    '\\\\frac{1}{2}'
    """
    text = normalise(answer)
    name, body = without_name(text)
    return Reading(text=text, name=name, body=body, number=read_number(body))


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
    if "####" in gold:
        return "it is a whole solution, not an answer: keep the text after '####'"
    text = unboxed(gold)
    if not is_balanced(text):
        return "its braces are not balanced"
    if not canonical(text):
        return "it is empty"
    if not any(character.isalnum() or character in "∅{}∞" for character in canonical(text)):
        return f"it holds no number, word or symbol: {text!r:.80}"
    if len(text) > max_length:
        return f"it has {len(text)} characters; at most {max_length} can be compared"
    if max_depth(text) > max_nesting:
        return f"its brackets nest deeper than {max_nesting}"
    return None
