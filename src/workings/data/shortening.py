"""Over-long prompts made to fit without touching the template around the question."""

from __future__ import annotations

from dataclasses import replace

from workings.data.encoding import encode_prompt
from workings.data.special_tokens import SpecialText, SpecialTokens, special_tokens
from workings.data.templates import PromptTemplate
from workings.data.tokenizer import Tokenizer
from workings.errors import TemplateError
from workings.types import Message, Problem, Prompt


def shorten_prompt(
    prompt: Prompt,
    max_length: int,
    template: PromptTemplate,
    tokenizer: Tokenizer,
    *,
    system_prompt: str | None = None,
    special_text: SpecialText = "plain",
    special: SpecialTokens | None = None,
) -> Prompt:
    """The prompt with as much of the end of its question as fits in `max_length` tokens.

    The template stays whole. TemplateError where it does not fit even around an empty question.
    """
    special = special or special_tokens(tokenizer)

    def encoded(num_characters: int) -> Prompt:
        question = prompt.problem.question
        kept = question[len(question) - num_characters :]
        return encode_prompt(
            _with_question(prompt.problem, kept),
            template,
            tokenizer,
            system_prompt=system_prompt,
            special_text=special_text,
            special=special,
        )

    fits, too_many = 0, len(prompt.problem.question) + 1
    best = encoded(0)
    if len(best.ids) > max_length:
        raise TemplateError(
            f"{prompt.problem.id}: template {template.name!r} takes {len(best.ids)} tokens without "
            f"any question, more than the limit of {max_length}"
        )
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        shorter = encoded(middle)
        if len(shorter.ids) <= max_length:
            fits, best = middle, shorter
        else:
            too_many = middle
    return best


def _with_question(problem: Problem, question: str) -> Problem:
    messages = problem.messages
    if messages:
        messages = (*messages[:-1], Message(role="user", content=question))
    return replace(problem, question=question, messages=messages)
