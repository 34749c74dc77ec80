"""Solutions that begin with a thought, as responses for the template r1_zero."""

from __future__ import annotations

OPENING, CLOSING = "<think>", "</think>"
ANSWER, ANSWER_END = "<answer>", "</answer>"
NO_THOUGHT_END = "no_thought_end"
NO_ANSWER = "no_text_after_thought"


class Unfit(Exception):
    """Why a solution makes no response; the reason is counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def without_opening(solution: str) -> str:
    r"""The solution without a thought tag that opens it, and the line break after that.

    The prompt of r1_zero ends with the tag, so the response begins inside the thought. The tag goes
    as a prefix, not as a set of characters.

    >>> without_opening("<think>\nthink it</think> so"), without_opening("think it")
    ('think it</think> so', 'think it')
    """
    text = solution.lstrip()
    return text.removeprefix(OPENING).lstrip("\n") if text.startswith(OPENING) else solution


def answer_in_tags(solution: str) -> str:
    r"""Thought, then the text after it in answer tags: `...</think> <answer>...</answer>`.

    Between the tags stands one space, which the format check of r1_zero asks for. Raises `Unfit`
    for a thought that never ends, and where nothing follows it.

    >>> answer_in_tags("<think>\nthink it\n</think>\n\nIt is \\boxed{4}.")
    'think it\n</think> <answer>It is \\boxed{4}.</answer>'
    """
    thought, closed, rest = without_opening(solution).partition(CLOSING)
    if not closed:
        raise Unfit(NO_THOUGHT_END)
    text = rest.strip()
    if not text:
        raise Unfit(NO_ANSWER)
    if text.startswith(ANSWER) and text.endswith(ANSWER_END):
        text = text.removeprefix(ANSWER).removesuffix(ANSWER_END).strip()
        if not text:
            raise Unfit(NO_ANSWER)
    return f"{thought}{CLOSING} {ANSWER}{text}{ANSWER_END}"
