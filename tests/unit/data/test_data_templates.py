"""Packaged templates and their literals, files of the user's, and messages about bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from workings.data.tags import Tags
from workings.data.templates import load_template, parse_template, tag_template, template_names
from workings.errors import TemplateError

QUESTION = "2+2?"
SUFFIX = "Please reason step by step, and put your final answer within \\boxed{}."


def filled(name: str) -> str:
    template = load_template(name)
    return template.before + QUESTION + template.after


def test_all_names() -> None:
    assert set(template_names()) == {
        *("r1_zero", "question_only", "own", "qwen", "simplerl", "simplerl_legacy", "prime"),
        *("prime_sft", "prime_code", "no", "alpaca", "zero_shot", "tags", "think", "luffy"),
    }
    for name in template_names():
        assert load_template(name).name == name


def test_r1_zero_ends_inside_the_thought() -> None:
    text = filled("r1_zero")
    assert text.endswith("\nUser: 2+2?\nAssistant: <think>")
    assert "<think> reasoning process here </think> <answer> answer here </answer>" in text
    assert load_template("r1_zero").stop == ("</answer>",)
    assert load_template("r1_zero").opens_thought(text)


def test_think_is_short() -> None:
    assert filled("think") == "2+2?\n<think>"
    assert load_template("think").stop == ("</answer>",)


@pytest.mark.parametrize("name", ["question_only", "no"])
def test_the_question_alone(name: str) -> None:
    assert filled(name) == QUESTION
    assert load_template(name).stop == ()


def test_chat_markup() -> None:
    turn = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    assert filled("qwen") == f"<|im_start|>system\n{SUFFIX}<|im_end|>\n{turn}"
    system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    asked = f"<|im_start|>user\n2+2?\n{SUFFIX}<|im_end|>\n<|im_start|>assistant\n"
    assert filled("simplerl") == system + asked
    legacy = filled("simplerl_legacy")
    assert legacy == filled("simplerl").replace(r"within \boxed{}", r"within\boxed{{}}")


def test_prime_family() -> None:
    suffix = "2+2?\n\nPresent the answer in LaTex format: \\boxed{Your answer}"
    assert filled("prime").endswith(suffix + ". Assistant:")
    assert not load_template("prime").opens_thought(filled("prime"))
    assert (load_template("prime_sft").mode, filled("prime_sft")) == ("chat", suffix)
    assert "```python\n" in filled("prime_code")


def test_instruction_templates() -> None:
    # The published text of Stanford Alpaca for an instruction without input.
    assert filled("alpaca") == (
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\n2+2?\n\n### Response:\n"
    )
    assert filled("zero_shot").startswith("# Instruction\n")
    assert filled("zero_shot").endswith("# Query:\n```2+2?```\n\n# Answer:\n```")
    assert load_template("zero_shot").stop == ("# Query:",)


def test_chat_templates() -> None:
    own = load_template("own")
    assert (own.mode, own.before, own.after, own.system) == ("chat", "", "", None)
    luffy = load_template("luffy")
    assert luffy.mode == "chat"
    assert luffy.ending == "<think>\n"
    assert luffy.system is not None
    assert "<think>\n {thoughts} </think>\n" in luffy.system
    assert "\\boxed{}" in luffy.system


def test_tags_fill_the_system_prompt() -> None:
    template = load_template("tags")
    assert template.mode == "chat"
    assert template.thought_tag == "<start_working_out>"
    assert template.chat_template is not None
    for literal in ("<end_working_out>", "<SOLUTION></SOLUTION>"):
        assert literal in template.chat_template
    other = load_template("tags", tags=Tags(reasoning_start="<r>"))
    assert other.thought_tag == "<r>"
    assert other.chat_template is not None
    assert "<start_working_out>" not in other.chat_template
    assert tag_template() == template
    own = tag_template(system_prompt="Use {solution_start}.\n")
    assert own.chat_template is not None
    assert '"Use <SOLUTION>."' in own.chat_template


# ----------------------------------------------------------------------------------- user's files


def write(path: Path, text: str) -> str:
    path.write_bytes(text.encode())
    return str(path)


def test_a_file_keeps_braces_and_loses_one_newline(tmp_path: Path) -> None:
    template = load_template(write(tmp_path / "a.txt", "\\boxed{} {x}\nQ: {question}\nA:\n\n"))
    assert (template.before, template.after) == ("\\boxed{} {x}\nQ: ", "\nA:\n")


def test_a_file_without_a_final_newline_loses_nothing(tmp_path: Path) -> None:
    assert load_template(write(tmp_path / "a.prompt", "{question} <think>")).after == " <think>"


@pytest.mark.parametrize("field", ["question", "instruction", "problem", "prompt", "q"])
def test_names_of_the_placeholder(field: str) -> None:
    template = parse_template("t", f"a{{{field}}}b")
    assert (template.before, template.after) == ("a", "b")


def test_other_names_stay_text_beside_the_placeholder() -> None:
    assert parse_template("t", "{prompt} {question}").before == "{prompt} "


def test_a_response_placeholder_ends_the_prompt() -> None:
    assert parse_template("t", "I: {instruction}\nR:\n{response}\n").after == "\nR:\n"
    with pytest.raises(TemplateError, match=r"text after \{response\} would be lost: 'end'"):
        parse_template("t", "{question} {response} end")


def test_settings() -> None:
    text = '---\r\nmode: chat\r\nstop: x\nsystem: "S"\nending: "<think>"\n---\n{question}\n'
    template = parse_template("t", text)
    assert (template.mode, template.stop) == ("chat", ("x",))
    assert (template.system, template.ending) == ("S", "<think>")
    assert parse_template("t", "---\n\n---\n{question}").stop == ()


def test_tags_of_a_file() -> None:
    text = "---\nmode: tags\ntags: {reasoning_start: <r>}\n---\nIn {reasoning_start}, don't.\n"
    template = parse_template("t", text)
    assert template.thought_tag == "<r>"
    assert template.chat_template is not None
    assert '"In <r>, don\'t."' in template.chat_template


def test_a_jinja_file_is_a_chat_template(tmp_path: Path) -> None:
    template = load_template(write(tmp_path / "a.jinja", "{{ messages[0]['content'] }}"))
    assert (template.mode, template.before) == ("chat", "")
    assert template.chat_template == "{{ messages[0]['content'] }}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no place", r"template t has no place for the question; write \{question\}"),
        ("{question} {question}", r"holds \{question\} 2 times"),
        ("---\nmode: text\n{question}", "no closing line of ---"),
        ("---\nmode: [\n---\n{question}", "the settings are not YAML"),
        ("---\nfoo\n---\n{question}", "not a list of `key: value` lines"),
        ("---\nstops: x\n---\n{question}", "unknown setting 'stops'; did you mean 'stop'"),
        ("---\nmode: chats\n---\n{question}", "mode: 'chats'; expected text, chat or tags"),
        ("---\nsystem: x\n---\n{question}", "system has no effect with mode: text"),
        ("---\nmode: chat\ntags: {}\n---\n{question}", "tags has no effect with mode: chat"),
        ("---\nstop: [1]\n---\n{question}", r"stop: \[1\]; expected a list of texts"),
        ("---\nmode: tags\ntags: {start: x}\n---\nS", "unknown tag 'start'"),
        ("---\nmode: tags\ntags: 3\n---\nS", "tags: 3; expected reasoning_start"),
    ],
)
def test_bad_templates(text: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        parse_template("t", text)


def test_unknown_names_and_missing_files() -> None:
    with pytest.raises(TemplateError, match="unknown template 'r1zero'; did you mean 'r1_zero'"):
        load_template("r1zero")
    with pytest.raises(TemplateError, match=r"the template file no/such\.txt cannot be read"):
        load_template("no/such.txt")
