"""The answer text of a response: linear scans, no backtracking patterns, no fallback to prose."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from workings.grading.policy import ExtractionPolicy
from workings.grading.text.braces import TOKENS, peel

TAIL_LENGTH = 65_536
"""Characters read from the end of a response: the answer stands at the end."""

_BOX_MACRO = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])")
_SEPARATORS = frozenset(
    ["", "and", "or", "\\text{and}", "\\text{or}", "\\text{ and }", "\\text{ or }"]
)
_MARKERS = ("answer is", "answer:", "final answer", "####", "答案")
_SENTENCE_END = re.compile(r"[.。]\s+(?=[A-Z一-鿿])")
_MARKED_LINE_EDGES = " \t:：=*$`_"


@dataclass(frozen=True, slots=True)
class _Box:
    """A closed box: `content` is `text[inside:close]`, the macro begins at `start`."""

    start: int
    inside: int
    close: int


def extract_answer(response: str, policy: ExtractionPolicy = "boxed") -> str | None:
    """The answer that `response` gives under `policy`, or None where it gives none.

    Only the text after the last `</think>` counts; a `<think>` left open gives None. The last box
    wins and an empty one is no answer.

    >>> extract_answer(r"maybe \\boxed{4}, no: \\boxed{\\boxed{\\frac{1}{2}}}")
    '\\\\frac{1}{2}'
    >>> extract_answer("The answer is 5") is None
    True
    >>> extract_answer("The answer is 5.", "lenient")
    '5'
    >>> extract_answer("<answer>5</answer>", "tag")
    '5'
    """
    text = final_text(response)
    if text is None:
        return None
    return _EXTRACTORS[policy](text[-TAIL_LENGTH:])


def extract_boxes(response: str) -> list[str]:
    """The boxes at the very end of `response` that only commas, "and" or "or" separate.

    They are the parts of a list when the gold is a list of as many elements, and nothing else.

    >>> extract_boxes(r"The roots are \\boxed{2} and \\boxed{3}.")
    ['2', '3']
    """
    text = final_text(response)
    if text is None:
        return []
    text = text[-TAIL_LENGTH:]
    boxes, last_open = _scan_boxes(text)
    if not boxes or last_open > boxes[-1].close or text[boxes[-1].close + 1 :].strip(" \t\n$.)]\\"):
        return []
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        if text[box.close + 1 : run[-1].start].strip(" \t\n,$") not in _SEPARATORS:
            break
        run.append(box)
    contents = [peel(text[box.inside : box.close]) for box in reversed(run)]
    return [content for content in contents if content is not None]


def last_box(text: str) -> str | None:
    """The content of the last box of `text`, peeled; None for no box, an empty or an open one.

    A box that is opened last and never closed gives None: an earlier box is not the final word.
    """
    content = last_box_content(text)
    return None if content is None else peel(content)


def last_box_content(text: str, *, with_fbox: bool = True) -> str | None:
    r"""What stands between the braces of the last box; None for no box or an open one.

    >>> last_box_content(r"\boxed{}"), last_box_content(r"\boxed{5"), last_box_content("5")
    ('', None, None)
    """
    boxes, last_open = _scan_boxes(text, with_fbox=with_fbox)
    if not boxes or last_open > boxes[-1].close:
        return None
    return text[boxes[-1].inside : boxes[-1].close]


def has_box(text: str) -> bool:
    """True where a box macro stands in `text`, readable or not."""
    return _BOX_MACRO.search(text) is not None


def final_text(response: str) -> str | None:
    """What stands after the thinking; None while the thinking is still open."""
    end = response.rfind("</think>")
    if response.find("<think>", max(end, 0)) >= 0:
        return None
    return response if end < 0 else response[end + len("</think>") :]


def _scan_boxes(text: str, *, with_fbox: bool = True) -> tuple[list[_Box], int]:
    """The outermost closed boxes in order, and where the last box left open begins (-1: none)."""
    boxes: list[_Box] = []
    stack: list[tuple[int, int] | None] = []  # (start, inside) of a box, None for a plain brace
    first = _BOX_MACRO.search(text)
    if first is None:
        return boxes, -1
    start = first.start()
    while start and text[start - 1] == "\\":  # an escaped backslash makes no macro
        start -= 1
    for match in TOKENS.finditer(text, start):
        if match["box"] and (with_fbox or match["box"].startswith("\\boxed")):
            stack.append((match.start(), match.end()))
        elif match["box"] or match["open"]:
            stack.append(None)
        elif match["close"] and stack:
            opened = stack.pop()
            if opened is not None:
                box = _Box(opened[0], opened[1], match.start())
                while boxes and boxes[-1].start > box.start:
                    boxes.pop()
                boxes.append(box)
    return boxes, max((opened[0] for opened in stack if opened is not None), default=-1)


def _from_tag(text: str) -> str | None:
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    if start < 0:
        return None
    content = text[start + len("<answer>") : end].strip()
    return last_box(content) if has_box(content) else content or None


def _leniently(text: str) -> str | None:
    if has_box(text):
        return last_box(text)
    if "</answer>" in text:
        return _from_tag(text)
    return _from_marked_line(text)


def _from_marked_line(text: str) -> str | None:
    """What follows the last marker on its line, or on the next line where that one is empty."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters change their length; then positions do not fit
        lowered = text
    position, marker = max((lowered.rfind(marker), marker) for marker in _MARKERS)
    if position < 0:
        return None
    rest = text[position + len(marker) :].lstrip(_MARKED_LINE_EDGES + "\n是为")
    line = _SENTENCE_END.split(rest.partition("\n")[0], maxsplit=1)[0].rstrip(".。 ")
    for opening, closing in (("\\(", "\\)"), ("\\[", "\\]"), ("$", "$")):
        line = line.removeprefix(opening).removesuffix(closing)
    return line.strip(_MARKED_LINE_EDGES) or None


_EXTRACTORS: dict[ExtractionPolicy, Callable[[str], str | None]] = {
    "boxed": last_box,
    "tag": _from_tag,
    "lenient": _leniently,
}
