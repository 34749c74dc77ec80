r"""The choice that a response to a multiple-choice question makes.

A choice is a label in the box or tag that holds the answer, or stands in a statement: "ANSWER: C",
"The correct answer is C". A capital letter elsewhere in prose is no choice.
"""

from __future__ import annotations

import re

from workings.grading.text.course_answers import parse_mmlu_response
from workings.grading.text.extraction import TAIL_LENGTH

_ANSWER = re.compile(
    r"\b(?i:answer)\s*:[\s*_$(\[\"'`]*(?:\\(?:text|textbf|mathrm|mathbf)\{\(?)?"
    r"(?P<label>[A-Z1-9])(?![A-Za-z0-9_'’])(?P<rest>[^\n]{0,40})"
)
LONGEST_ANSWER = 500
"""Characters; a label with its option behind it is shorter."""

_BLANKS = re.compile(r"[^\S\n]{2,}|\n{2,}")
_SECOND = re.compile(r"\s*(?:,|/|&|,?\s*(?:and|or)\b)\s*\(?[A-Z1-9]\b(?!\s+[a-z])")
_ARTICLE = re.compile(r"\s+[a-z]")
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mathsf|bf)\s*\{(?P<inner>[^{}]*)\}")
_ALONE = re.compile(
    r"[\s*_$(\[{\"'`]*(?:(?i:option|choice|answer)\s*:?\s*\(?)?(?P<label>[A-Z1-9])"
    r"(?:[\s*_$)\]}\"'`.]*|\s*[).:]\s+.*)",
    re.DOTALL,
)


def stated_choice(response: str, labels: str) -> str | None:
    """The label in the last statement of `response`; None where it makes none or names two.

    `labels` are those of the question, "ABCD" or "1234".

    >>> stated_choice("So it is the second.\\nANSWER: B", "ABCD")
    'B'
    >>> stated_choice("The correct answer is (C).", "ABCD"), stated_choice("Answer: A man", "ABCD")
    ('C', None)
    """
    found = None
    # The patterns below look at a run of blanks from each of its places.
    response = _BLANKS.sub(lambda run: run[0][0], response[-TAIL_LENGTH:])
    for match in _ANSWER.finditer(response):
        label, rest = match["label"], match["rest"]
        if label not in labels or (label == "A" and _ARTICLE.match(rest)):
            continue
        found = None if _SECOND.match(rest) else label
    return found or parse_mmlu_response({"options": list(labels)}, response)


def choice_in(answer: str, labels: str) -> str | None:
    r"""The label that an answer is, wrapped or with its option behind it; None for any other text.

    >>> choice_in("(C)", "ABCD"), choice_in(r"\text{C. It falls}", "ABCD"), choice_in("7", "ABCD")
    ('C', 'C', None)
    """
    text = answer.strip()
    if len(text) > LONGEST_ANSWER:
        return None
    while (wrapped := _WRAPPED.search(text)) is not None:
        text = text[: wrapped.start()] + wrapped["inner"] + text[wrapped.end() :]
    match = _ALONE.fullmatch(text.strip())
    return match["label"] if match is not None and match["label"] in labels else None
