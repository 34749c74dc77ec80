"""The four tags around reasoning and solution, their chat template, and SFT targets with them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from workings.errors import DataError, TemplateError
from workings.types import Demonstration


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """The literals that mark the parts of a response.

    `reasoning_start` ends the prompt, so a completion normally lacks it; the model writes the
    other three.
    """

    reasoning_start: str = "<start_working_out>"
    reasoning_end: str = "<end_working_out>"
    solution_start: str = "<SOLUTION>"
    solution_end: str = "</SOLUTION>"

    def __post_init__(self) -> None:
        values = [getattr(self, field.name) for field in fields(self)]
        if not all(values) or len(set(values)) < len(values):
            raise TemplateError(f"tags {values}; expected four different, non-empty texts")


def fill_tags(text: str, tags: Tags) -> str:
    """`text` with the four names in braces replaced by the tags; other braces stay as they are.

    >>> fill_tags(r"Close with {reasoning_end}; use \\boxed{}.", Tags())
    'Close with <end_working_out>; use \\\\boxed{}.'
    """
    values = {field.name: getattr(tags, field.name) for field in fields(tags)}
    pattern = "|".join(re.escape("{" + name + "}") for name in values)
    return re.sub(pattern, lambda match: values[match[0][1:-1]], text)


def tag_chat_template(*, system_prompt: str, reasoning_start: str) -> str:
    """Jinja text: system + EOS, user turns bare, assistant turns + EOS, then `reasoning_start`.

    A conversation without a system message gets `system_prompt`. Both texts are written into the
    template as JSON strings with Unicode kept, which Jinja reads back exactly: apostrophes, the
    backslash of `\\boxed`, braces and emoji survive. Other roles and an empty conversation raise.
    """
    system, start = (
        json.dumps(text, ensure_ascii=False) for text in (system_prompt, reasoning_start)
    )
    return (
        "{%- if not messages -%}"
        "{{- raise_exception('the conversation is empty') -}}"
        "{%- endif -%}"
        "{%- if messages[0]['role'] == 'system' -%}"
        "{{- messages[0]['content'] + eos_token -}}"
        "{%- set turns = messages[1:] -%}"
        "{%- else -%}"
        f"{{{{- {system} + eos_token -}}}}"
        "{%- set turns = messages -%}"
        "{%- endif -%}"
        "{%- for turn in turns -%}"
        "{%- if turn['role'] == 'user' -%}"
        "{{- turn['content'] -}}"
        "{%- elif turn['role'] == 'assistant' -%}"
        "{{- turn['content'] + eos_token -}}"
        "{%- else -%}"
        "{{- raise_exception('role ' + turn['role'] + ' has no place in the tags template') -}}"
        "{%- endif -%}"
        "{%- endfor -%}"
        "{%- if add_generation_prompt -%}"
        f"{{{{- {start} -}}}}"
        "{%- endif -%}"
    )


def tag_response(reasoning: str, answer: str, tags: Tags) -> str:
    """The documented response: reasoning between its tags, then the answer between its own.

    >>> tag_response("<think>15+19</think>", "34", Tags())
    '<start_working_out>15+19<end_working_out><SOLUTION>34</SOLUTION>'
    """
    thoughts = reasoning.replace("<think>", "").replace("</think>", "").strip()
    return (
        f"{tags.reasoning_start}{thoughts}{tags.reasoning_end}"
        f"{tags.solution_start}{answer}{tags.solution_end}"
    )


def tag_demonstrations(demonstrations: Sequence[Demonstration], tags: Tags) -> list[Demonstration]:
    """The same rows with their responses in the tag format; DataError where a gold is missing."""
    without = [row.id for row in demonstrations if row.answer is None]
    if without:
        raise DataError(
            f"{len(without)} of {len(demonstrations)} demonstrations have no answer to put between "
            f"{tags.solution_start} and {tags.solution_end} (first: {without[0]})",
            hint="the tag format needs a column such as expected_answer",
        )
    return [
        replace(row, response=tag_response(row.response, str(row.answer), tags))
        for row in demonstrations
    ]
