"""Over-long prompts: the question gives way, the template never."""

from __future__ import annotations

import pytest

from tiny import tiny_tokenizer
from workings.data.encoding import encode_prompt
from workings.data.shortening import shorten_prompt
from workings.data.templates import load_template
from workings.errors import TemplateError
from workings.types import Message, Problem

TOKENIZER = tiny_tokenizer()
OWN = load_template("own")


def test_shortening_keeps_the_template_and_the_end_of_the_question() -> None:
    for template in (load_template("qwen"), OWN, load_template("alpaca")):
        problem = Problem(id="p", question="0123456789" * 5, answer="4")
        prompt = encode_prompt(problem, template, TOKENIZER)
        around = len(prompt.ids) - 50
        short = shorten_prompt(prompt, around + 12, template, TOKENIZER)
        assert len(short.ids) == around + 12
        assert short.problem.question == "890123456789"
        assert short.ids == encode_prompt(short.problem, template, TOKENIZER).ids
        with pytest.raises(TemplateError, match=rf"takes {around} tokens without any question"):
            shorten_prompt(prompt, around - 1, template, TOKENIZER)


def test_shortening_a_conversation() -> None:
    turns = (Message(role="system", content="S"), Message(role="user", content="0123456789"))
    problem = Problem(id="p", question="0123456789", answer="4", messages=turns)
    prompt = encode_prompt(problem, OWN, TOKENIZER)
    short = shorten_prompt(prompt, len(prompt.ids) - 4, OWN, TOKENIZER)
    assert short.problem.messages[-1]["content"] == short.problem.question == "456789"
