"""Rows to token ids. SFT, DPO, rollout and evaluation all come through here.

Prompt and response are encoded apart and their ids joined, so the prompt is a prefix of the whole
whatever merges cross the boundary. EOS is added once, after the response; the tokenizer's BOS at
most once, before the prompt, and never on top of a template's. Masks come from lengths, so EOS is
learnt also where it is the padding token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from workings.data.assistant_turns import Span, assistant_spans
from workings.data.rendering import Asked, render_prompt
from workings.data.special_tokens import (
    Piece,
    SpecialText,
    SpecialTokens,
    encode_pieces,
    special_tokens,
)
from workings.data.templates import PromptTemplate
from workings.data.tokenizer import Tokenizer
from workings.errors import TemplateError
from workings.types import Demonstration, PreferencePair, Problem, Prompt

Item = TypeVar("Item")
TrainedTokens = Literal["completion", "assistant", "all"]
"""Which tokens of a row are trained: its last turn, every turn of the assistant, or all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedDemonstration:
    """A demonstration as it is trained on.

    Attributes:
        demonstration: the row.
        prompt: the prompt, the same as a rollout of the question begins with.
        response_ids: the response's ids; EOS last, unless `truncated`.
        truncated: the response was cut at the limit.
        assistant_spans: where the assistant's earlier turns stand in the prompt, see
            `assistant_turns`; empty where they were not asked for.
    """

    demonstration: Demonstration
    prompt: Prompt
    response_ids: tuple[int, ...]
    truncated: bool = False
    assistant_spans: tuple[Span, ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        """Prompt and response."""
        return self.prompt.ids + self.response_ids

    @property
    def mask(self) -> tuple[bool, ...]:
        """True on the response, EOS included; the length of `ids`."""
        return (False,) * len(self.prompt.ids) + (True,) * len(self.response_ids)

    def trained_mask(self, trained: TrainedTokens) -> tuple[bool, ...]:
        """True on the trained ids of prompt and response; see `TrainedTokens`.

        Nothing predicts the first id of a row, so that is never trained.
        """
        mask = list(self.mask)
        if trained == "all":
            mask = [True] * len(mask)
        elif trained == "assistant":
            for first, end in self.assistant_spans:
                mask[first:end] = [True] * (end - first)
        if mask and trained != "completion":
            mask[0] = False
        return tuple(mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedPair:
    """A preference pair as it is trained on; both sides hold the same prompt."""

    pair: PreferencePair
    chosen: EncodedDemonstration
    rejected: EncodedDemonstration


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded(Generic[Item]):
    """Encoded rows, in the order given, and how many of them spelt a control token."""

    items: tuple[Item, ...]
    num_with_special_text: int


def encode_prompt(
    item: Problem | Demonstration | PreferencePair,
    template: PromptTemplate,
    tokenizer: Tokenizer,
    *,
    system_prompt: str | None = None,
    special_text: SpecialText = "plain",
    special: SpecialTokens | None = None,
) -> Prompt:
    """The prompt that an engine samples from and that a demonstration is trained after.

    Args:
        item: the row; its question, or its conversation where the template is a chat.
        system_prompt: see `render_prompt`.
        special_text: what becomes of control tokens that the question spells.
        special: the tokenizer's control tokens, where they are known already.
    """
    special = special or special_tokens(tokenizer)
    if isinstance(item, Demonstration) and not item.question:
        return Prompt(problem=_problem(item), ids=special.automatic_prefix, text="")
    rendered = render_prompt(
        item,
        template,
        tokenizer,
        special,
        system_prompt=system_prompt,
        special_text=special_text,
    )
    ids = tuple(encode_pieces(rendered.pieces, tokenizer, special))
    prefix = () if rendered.is_chat else special.automatic_prefix
    if ids[: len(prefix)] != prefix:
        ids = prefix + ids
    return Prompt(problem=_problem(item), ids=ids, text=rendered.text)


def encode_prompts(
    items: Sequence[Problem] | Sequence[Demonstration] | Sequence[PreferencePair],
    template: PromptTemplate,
    tokenizer: Tokenizer,
    *,
    system_prompt: str | None = None,
    special_text: SpecialText = "plain",
) -> Encoded[Prompt]:
    """The prompts of all rows, and how many questions spell a control token."""
    special = special_tokens(tokenizer)
    prompts = tuple(
        encode_prompt(
            item,
            template,
            tokenizer,
            system_prompt=system_prompt,
            special_text=special_text,
            special=special,
        )
        for item in items
    )
    typed = sum(_spells_special(item, special) for item in items)
    return Encoded(items=prompts, num_with_special_text=typed)


def encode_demonstration(
    demonstration: Demonstration,
    template: PromptTemplate,
    tokenizer: Tokenizer,
    *,
    system_prompt: str | None = None,
    special_text: SpecialText = "plain",
    max_response_length: int | None = None,
    find_assistant_turns: bool = False,
    special: SpecialTokens | None = None,
) -> EncodedDemonstration:
    """The row's ids: prompt, response, EOS.

    A response that begins with the thought tag loses it where the prompt ends with that tag, and
    one that ends with the text of EOS loses that, so that neither stands twice. A row without a
    question is plain text: its prompt is the tokenizer's BOS or nothing.

    Args:
        max_response_length: in tokens, EOS included; a longer response is cut there, gets no EOS
            and is marked `truncated`. None leaves it whole.
        find_assistant_turns: fill in `assistant_spans`, which `trained_mask("assistant")` needs.
    """
    special = special or special_tokens(tokenizer)
    prompt = encode_prompt(
        demonstration,
        template,
        tokenizer,
        system_prompt=system_prompt,
        special_text=special_text,
        special=special,
    )
    ids = encode_response(
        demonstration, prompt.text, template, tokenizer, special=special, special_text=special_text
    )
    truncated = max_response_length is not None and len(ids) > max_response_length
    return EncodedDemonstration(
        demonstration=demonstration,
        prompt=prompt,
        response_ids=ids[:max_response_length] if truncated else ids,
        truncated=truncated,
        assistant_spans=assistant_spans(
            demonstration,
            prompt.ids,
            template,
            tokenizer,
            special=special,
            system_prompt=system_prompt,
            special_text=special_text,
        )
        if find_assistant_turns and demonstration.question
        else (),
    )


def encode_response(
    demonstration: Demonstration,
    prompt: str,
    template: PromptTemplate,
    tokenizer: Tokenizer,
    *,
    special: SpecialTokens,
    special_text: SpecialText = "plain",
) -> tuple[int, ...]:
    """The ids of the row's response after the prompt with this text, EOS last and once."""
    eos_id, eos = tokenizer.eos_token_id, tokenizer.eos_token
    if eos_id is None or not eos:
        raise TemplateError(
            "this tokenizer has no EOS token, so a model could not learn where a response ends",
            hint="set eos_token in the tokenizer's configuration",
        )
    response = demonstration.response.removesuffix(eos)
    if prompt:
        response = without_opened_thought(response, prompt, thought_tag=template.thought_tag)
    return (*_response_ids(demonstration, response, tokenizer, special, special_text), eos_id)


def encode_demonstrations(
    demonstrations: Sequence[Demonstration],
    template: PromptTemplate,
    tokenizer: Tokenizer,
    *,
    system_prompt: str | None = None,
    special_text: SpecialText = "plain",
    max_response_length: int | None = None,
    find_assistant_turns: bool = False,
) -> Encoded[EncodedDemonstration]:
    """All rows encoded, and how many of them spell a control token in question or response."""
    special = special_tokens(tokenizer)
    rows = tuple(
        encode_demonstration(
            demonstration,
            template,
            tokenizer,
            system_prompt=system_prompt,
            special_text=special_text,
            max_response_length=max_response_length,
            find_assistant_turns=find_assistant_turns,
            special=special,
        )
        for demonstration in demonstrations
    )
    typed = sum(
        _spells_special(row, special) or special.count_in(row.response) > 0
        for row in demonstrations
    )
    return Encoded(items=rows, num_with_special_text=typed)


def encode_preference(
    pair: PreferencePair,
    template: PromptTemplate,
    tokenizer: Tokenizer,
    *,
    system_prompt: str | None = None,
    special_text: SpecialText = "plain",
    max_response_length: int | None = None,
    special: SpecialTokens | None = None,
) -> EncodedPair:
    """Both sides of the pair, each encoded as a demonstration of its response would be.

    The prompt's ids are those of SFT, of rollouts and of evaluation. Either side ends in EOS,
    unless it was cut at `max_response_length`.
    """
    special = special or special_tokens(tokenizer)
    chosen, rejected = (
        encode_demonstration(
            Demonstration(
                id=pair.id,
                question=pair.question,
                response=response,
                messages=pair.messages,
                source=pair.source,
                extra=pair.extra,
            ),
            template,
            tokenizer,
            system_prompt=system_prompt,
            special_text=special_text,
            max_response_length=max_response_length,
            special=special,
        )
        for response in (pair.chosen, pair.rejected)
    )
    return EncodedPair(pair=pair, chosen=chosen, rejected=rejected)


def encode_preferences(
    pairs: Sequence[PreferencePair],
    template: PromptTemplate,
    tokenizer: Tokenizer,
    *,
    system_prompt: str | None = None,
    special_text: SpecialText = "plain",
    max_response_length: int | None = None,
) -> Encoded[EncodedPair]:
    """All pairs encoded, and how many of them spell a control token in question or responses."""
    special = special_tokens(tokenizer)
    rows = tuple(
        encode_preference(
            pair,
            template,
            tokenizer,
            system_prompt=system_prompt,
            special_text=special_text,
            max_response_length=max_response_length,
            special=special,
        )
        for pair in pairs
    )
    typed = sum(
        _spells_special(pair, special) or special.count_in(pair.chosen + pair.rejected) > 0
        for pair in pairs
    )
    return Encoded(items=rows, num_with_special_text=typed)


def without_opened_thought(response: str, prompt: str, *, thought_tag: str = "<think>") -> str:
    """The response without the tag that opens the thought, where the prompt ends with that tag.

    The tag goes as a prefix, never as a set of characters, and with it the white space that the
    prompt has after its own.

    >>> without_opened_thought("<think>\\nthink it", "Q\\n<think>\\n")
    'think it'
    >>> without_opened_thought("<think>\\nthink it", "Q\\n")
    '<think>\\nthink it'
    """
    opened = prompt.rstrip()
    if not opened.endswith(thought_tag) or not response.startswith(thought_tag):
        return response
    return response.removeprefix(thought_tag).removeprefix(prompt[len(opened) :])


def _response_ids(
    demonstration: Demonstration,
    response: str,
    tokenizer: Tokenizer,
    special: SpecialTokens,
    special_text: SpecialText,
) -> list[int]:
    if special_text == "refuse" and special.count_in(response):
        raise TemplateError(
            f"{demonstration.id}: the response spells a control token",
            hint="clean the row, or encode such text as plain text (special_text='plain')",
        )
    pieces = [Piece(text=response)] if special_text == "parse" else special.pieces(response)
    return encode_pieces(pieces, tokenizer, special) if response else []


def _spells_special(item: Asked, special: SpecialTokens) -> bool:
    texts = [item.question, *(m["content"] for m in item.messages if m["role"] != "system")]
    return any(special.count_in(text) for text in texts)


def _problem(item: Problem | Demonstration | PreferencePair) -> Problem:
    if isinstance(item, Problem):
        return item
    answer = item.answer if isinstance(item, Demonstration) else None
    return Problem(
        id=item.id,
        question=item.question,
        answer=answer or "",
        messages=item.messages,
        source=item.source,
        extra=item.extra,
    )
