"""A response in two parts: what was thought, which is folded, and what was answered."""

from __future__ import annotations

from dataclasses import dataclass

PAIRS = (("<think>", "</think>"), ("<start_working_out>", "<end_working_out>"))
"""What opens and what closes the thought: of the think templates, and of the tag rewards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """The parts of a response.

    Attributes:
        thought: None where there is none.
        answer: what stands behind it, or the whole response.
        finished: False where the thought was never closed.
    """

    thought: str | None
    answer: str
    finished: bool = True


def split_thinking(response: str, prompt: str = "") -> Thinking:
    """The parts of a response; a prompt that ends in the opening tag has opened the thought.

    >>> split_thinking("<think>1+1</think> 2").answer
    ' 2'
    >>> split_thinking("1+1</think> 2", prompt="Assistant: <think>").thought
    '1+1'
    """
    for opening, closing in PAIRS:
        body = response.lstrip()
        opened = body.startswith(opening)
        body = body.removeprefix(opening) if opened else response
        thought, found, answer = body.partition(closing)
        if found:
            return Thinking(thought=thought, answer=answer)
        if opened or prompt.rstrip().endswith(opening):
            return Thinking(thought=body, answer="", finished=False)
    return Thinking(thought=None, answer=response)
