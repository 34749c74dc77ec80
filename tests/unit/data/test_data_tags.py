"""The tag chat template against plain concatenation, for every quoting hazard."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny import tiny_tokenizer
from workings.data.tags import Tags, fill_tags, tag_chat_template, tag_demonstrations, tag_response
from workings.errors import DataError, TemplateError
from workings.types import Demonstration

TOKENIZER = tiny_tokenizer()
EOS = "<|im_end|>"
START = "<start_working_out>"
HAZARDS = [
    "don't",
    'say "hi"',
    r"use \boxed{} and \t",
    "{{x}} {% if y %} {# z #} }}",
    "two\nlines",
    "emoji 😀 and \u2028",
    "back\\slash\\",
    "carriage\r\nreturn",
]


def render(messages: list[dict[str, str]], template: str, *, prompt: bool = True) -> str:
    text = TOKENIZER.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=prompt, chat_template=template
    )
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("text", HAZARDS)
def test_system_prompt_and_tag_render_to_themselves(text: str) -> None:
    template = tag_chat_template(system_prompt=text, reasoning_start=text)
    question = [{"role": "user", "content": text}]
    assert render(question, template) == text + EOS + text + text


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=40))
@settings(max_examples=60)
def test_any_system_prompt_renders_to_itself(text: str) -> None:
    template = tag_chat_template(system_prompt=text, reasoning_start=START)
    assert render([{"role": "user", "content": "Q"}], template) == text + EOS + "Q" + START


def test_every_row_of_the_semantics_table() -> None:
    template = tag_chat_template(system_prompt="D", reasoning_start=START)
    conversation = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "R"},
    ]
    assert render(conversation, template) == f"S{EOS}QA{EOS}R{START}"
    assert render(conversation[1:], template, prompt=False) == f"D{EOS}QA{EOS}R"


def test_other_roles_and_no_messages_raise() -> None:
    from jinja2 import TemplateError as JinjaError

    template = tag_chat_template(system_prompt="D", reasoning_start=START)
    with pytest.raises(JinjaError, match="role tool has no place"):
        render([{"role": "tool", "content": "x"}], template)
    environment = pytest.importorskip("jinja2").Environment()

    def refuse(message: str) -> None:
        raise JinjaError(message)

    with pytest.raises(JinjaError, match="the conversation is empty"):
        environment.from_string(template).render(messages=[], raise_exception=refuse, eos_token="")


def test_the_template_is_saved_with_the_tokenizer(tmp_path: object) -> None:
    from transformers import AutoTokenizer

    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = tag_chat_template(system_prompt="don't 😀", reasoning_start=START)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    messages = [{"role": "user", "content": "Q"}]
    text = again.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "don't 😀" + EOS + "Q" + START


def test_only_the_four_names_are_filled() -> None:
    text = r"{reasoning_start} {solution_end} \boxed{} {other} {{reasoning_end}}"
    filled = fill_tags(text, Tags(solution_end="{reasoning_start}"))
    expected = r"<start_working_out> {reasoning_start} \boxed{} {other} {<end_working_out>}"
    assert filled == expected


def test_tags_must_differ() -> None:
    with pytest.raises(TemplateError, match="expected four different, non-empty texts"):
        Tags(reasoning_end="<SOLUTION>")
    with pytest.raises(TemplateError, match="expected four different"):
        Tags(solution_end="")


def test_the_documented_response() -> None:
    expected = "<start_working_out>so 34<end_working_out><SOLUTION>34</SOLUTION>"
    assert tag_response("<think>\nso 34\n</think>", "34", Tags()) == expected
    row = Demonstration(id="a", question="q", response="so 34", answer="34")
    assert tag_demonstrations([row], Tags())[0].response == expected
    with pytest.raises(DataError, match=r"1 of 2 demonstrations have no answer.*first: a"):
        tag_demonstrations([replace(row, answer=None), row], Tags())
