"""What the tag rewards look for in a completion, by linear scans.

The patterns are those of the two implementations this format comes from; written as regular
expressions they take quadratic time on repeated tags. Two places are found:

* format: reasoning_end, anything, solution_start, one or more characters (the solution),
  solution_end, optional white space and one EOS, then the end of a line or of the text;
* numeral: the first run of digits, dots and commas, with an optional minus, after solution_start.
"""

from __future__ import annotations

import re

from workings.data.tags import Tags

_NUMERAL = re.compile(r"-?[\d.,]+")
_PLAIN_NUMERAL = re.compile(r"-?\d+\.?\d*")


def formatted_solution(text: str, tags: Tags, eos_token: str | None) -> str | None:
    """The solution of a text in the right format, None where the format is missed.

    The earliest tags count, and the solution ends at the first solution_end that nothing follows on
    its line. Text before reasoning_end is free, the start tag included.

    >>> formatted_solution("w<end_working_out><SOLUTION>34</SOLUTION>", Tags(), None)
    '34'
    >>> formatted_solution("w<end_working_out><SOLUTION>34</SOLUTION> done", Tags(), None) is None
    True
    """
    end = text.find(tags.reasoning_end)
    if end < 0:
        return None
    start = text.find(tags.solution_start, end + len(tags.reasoning_end))
    if start < 0:
        return None
    inside = start + len(tags.solution_start)
    close = text.find(tags.solution_end, inside + 1)
    while close >= 0:
        if _ends_line(text, close + len(tags.solution_end), eos_token):
            return text[inside:close]
        close = text.find(tags.solution_end, close + 1)
    return None


def first_numeral(text: str, tags: Tags, eos_token: str | None) -> str | None:
    """The first numeral after solution_start, closed or not; None where there is none.

    >>> first_numeral("<SOLUTION>x = -1,234", Tags(), None)
    '-1,234'
    >>> first_numeral("<SOLUTION>Ans. 34", Tags(), None)
    '.'
    """
    start = text.find(tags.solution_start)
    if start < 0:
        return None
    if eos_token:
        text = text.removesuffix(eos_token)
    match = _NUMERAL.search(text, start + len(tags.solution_start))
    return match[0] if match else None


def has_strict_blocks(text: str, tags: Tags) -> bool:
    """True for the older exact format: start tag, reasoning, and the solution block right behind.

    >>> has_strict_blocks("<start_working_out>w<end_working_out><SOLUTION>3</SOLUTION>", Tags())
    True
    """
    start = text.find(tags.reasoning_start)
    if start < 0:
        return False
    joint = tags.reasoning_end + tags.solution_start
    middle = text.find(joint, start + len(tags.reasoning_start))
    return middle >= 0 and text.find(tags.solution_end, middle + len(joint) + 1) >= 0


def first_block(text: str, tags: Tags) -> str | None:
    """The content of the first closed solution block, empty ones included.

    >>> first_block("<SOLUTION>7</SOLUTION> <SOLUTION>34</SOLUTION>", Tags())
    '7'
    """
    start = text.find(tags.solution_start)
    if start < 0:
        return None
    inside = start + len(tags.solution_start)
    close = text.find(tags.solution_end, inside)
    return text[inside:close] if close >= 0 else None


def first_numeral_in_block(text: str, tags: Tags) -> str | None:
    """The first plain numeral inside the first closed solution block."""
    block = first_block(text, tags)
    match = _PLAIN_NUMERAL.search(block) if block else None
    return match[0] if match else None


def _ends_line(text: str, position: int, eos_token: str | None) -> bool:
    """True where white space and at most one EOS are all that is left of the line or text."""
    stop = _skip_space(text, position)
    if stop == len(text) or "\n" in text[position:stop]:
        return True
    if not eos_token or not text.startswith(eos_token, stop):
        return False
    position = stop + len(eos_token)
    stop = _skip_space(text, position)
    return stop == len(text) or "\n" in text[position:stop]


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position
