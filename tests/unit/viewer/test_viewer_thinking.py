"""The thought and the answer behind it."""

from __future__ import annotations

import pytest

from workings.viewer.thinking import Thinking, split_thinking


@pytest.mark.parametrize(
    ("response", "prompt", "expected"),
    [
        ("4", "q", Thinking(thought=None, answer="4")),
        ("<think>a</think> 4", "q", Thinking(thought="a", answer=" 4")),
        ("a</think> 4", "q <think>", Thinking(thought="a", answer=" 4")),
        ("a</think> 4", "q", Thinking(thought="a", answer=" 4")),
        ("a", "q <think>\n", Thinking(thought="a", answer="", finished=False)),
        ("\n<think>a", "q", Thinking(thought="a", answer="", finished=False)),
        (
            "a<end_working_out><SOLUTION>4</SOLUTION>",
            "q<start_working_out>",
            Thinking(thought="a", answer="<SOLUTION>4</SOLUTION>"),
        ),
        ("a</think>b</think>c", "q", Thinking(thought="a", answer="b</think>c")),
    ],
)
def test_parts(response: str, prompt: str, expected: Thinking) -> None:
    assert split_thinking(response, prompt) == expected
