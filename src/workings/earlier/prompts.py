"""`PromptConfig` and `PromptTemplateManager`: the solution tags under the names they had before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workings.data.encoding import encode_prompts
from workings.data.tags import Tags, tag_response
from workings.data.templates import PromptTemplate, tag_template
from workings.types import Problem, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptConfig:
    """The four tags, and the system prompt that asks for them (None: the packaged one)."""

    reasoning_start: str = "<start_working_out>"
    reasoning_end: str = "<end_working_out>"
    solution_start: str = "<SOLUTION>"
    solution_end: str = "</SOLUTION>"
    system_prompt: str | None = None

    @property
    def tags(self) -> Tags:
        """The same tags as `workings.data.tags` has them."""
        return Tags(
            reasoning_start=self.reasoning_start,
            reasoning_end=self.reasoning_end,
            solution_start=self.solution_start,
            solution_end=self.solution_end,
        )


class PromptTemplateManager:
    """The tag template of a `PromptConfig`: `tag_template`, with what is done with it."""

    def __init__(self, config: PromptConfig | None = None) -> None:
        self.config = config or PromptConfig()
        self.template: PromptTemplate = tag_template(
            tags=self.config.tags, system_prompt=self.config.system_prompt
        )

    @property
    def chat_template(self) -> str:
        """The Jinja text that is saved with the tokenizer."""
        assert self.template.chat_template is not None
        return self.template.chat_template

    def apply_to(self, tokenizer: Any) -> None:
        """Give the tokenizer this chat template."""
        tokenizer.chat_template = self.chat_template

    def prompt(self, question: str, tokenizer: Any) -> Prompt:
        """The question as the model sees it; the tokenizer gets the chat template first."""
        self.apply_to(tokenizer)
        problem = Problem(id="question", question=question, answer="")
        return encode_prompts([problem], self.template, tokenizer).items[0]

    def response(self, reasoning: str, answer: str) -> str:
        """A response in the tags, as SFT teaches it."""
        return tag_response(reasoning, answer, self.config.tags)
