"""A question and a template to the prompt's text, in pieces that say what a user typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from workings.data.conversations import without_system
from workings.data.special_tokens import Piece, SpecialText, SpecialTokens
from workings.data.templates import PromptTemplate
from workings.data.tokenizer import Tokenizer
from workings.errors import TemplateError
from workings.types import Message


class Asked(Protocol):
    """A problem, a demonstration or a preference pair."""

    @property
    def id(self) -> str: ...
    @property
    def question(self) -> str: ...
    @property
    def messages(self) -> tuple[Message, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPrompt:
    """A prompt before it is encoded.

    Attributes:
        pieces: the text in parts; a part with `typed` spells a control token inside a question.
        is_chat: a chat template wrote it, so the tokenizer's automatic BOS stays away.
    """

    pieces: tuple[Piece, ...]
    is_chat: bool

    @property
    def text(self) -> str:
        """The whole prompt."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def num_typed(self) -> int:
        """Control tokens that a user typed."""
        return sum(piece.typed for piece in self.pieces)


def render_prompt(
    item: Asked,
    template: PromptTemplate,
    tokenizer: Tokenizer,
    special: SpecialTokens,
    *,
    system_prompt: str | None = None,
    special_text: SpecialText = "plain",
) -> RenderedPrompt:
    """The prompt of one row.

    A text template is the whole prompt: it takes the question alone, leaves out a system message
    that the data set brings, and refuses `system_prompt` and earlier turns, which it would lose.
    A chat template gets the row's conversation with the question put into the template's last user
    turn. Its system message is `system_prompt`, else the data set's, else the template's; an empty
    `system_prompt` removes it.
    """
    if special_text == "refuse":
        _refuse_typed(item, special)
    if template.mode == "text":
        return _render_text(item, template, special, system_prompt, special_text)
    return _render_chat(item, template, tokenizer, special, system_prompt, special_text)


def _refuse_typed(item: Asked, special: SpecialTokens) -> None:
    for text in (item.question, *(message["content"] for message in item.messages)):
        if special.count_in(text) and special.pattern is not None:
            found = special.pattern.search(text)
            raise TemplateError(
                f"{item.id}: the text spells the control token {found[0] if found else ''!r}",
                hint="clean the row, or encode such text as plain text (special_text='plain')",
            )


def _render_text(
    item: Asked,
    template: PromptTemplate,
    special: SpecialTokens,
    system_prompt: str | None,
    special_text: SpecialText,
) -> RenderedPrompt:
    if system_prompt:
        raise TemplateError(
            f"template {template.name!r} is plain text and has no place for a system prompt",
            hint="write it into a template file, or take a chat template such as own",
        )
    turns = without_system(item.messages)
    if len(turns) > 1:
        raise TemplateError(
            f"{item.id} is a conversation of {len(turns)} turns, of which the text template "
            f"{template.name!r} would keep only the last",
            hint="take a chat template such as own",
        )
    if special_text == "parse":
        question = [Piece(text=item.question)]
    else:
        question = special.pieces(item.question)
    pieces = _joined([Piece(text=template.before), *question, Piece(text=template.after)])
    return RenderedPrompt(pieces=pieces, is_chat=False)


# ------------------------------------------------------------------------------- chat templates


def _render_chat(
    item: Asked,
    template: PromptTemplate,
    tokenizer: Tokenizer,
    special: SpecialTokens,
    system_prompt: str | None,
    special_text: SpecialText,
) -> RenderedPrompt:
    messages = conversation_of(item, template, system_prompt)
    return render_messages(
        item.id,
        messages,
        template,
        tokenizer,
        special,
        ending=template.ending,
        special_text=special_text,
    )


def render_messages(
    item_id: str,
    messages: Sequence[Message],
    template: PromptTemplate,
    tokenizer: Tokenizer,
    special: SpecialTokens,
    *,
    ending: str = "",
    special_text: SpecialText = "plain",
) -> RenderedPrompt:
    """The prompt that asks the assistant for the turn after `messages`.

    Typed control tokens are hidden behind stand-ins while the chat template runs. `ending` is
    appended where the chat template does not end so.
    """
    stand_in = _unused_text([message["content"] for message in messages])
    hidden: list[str] = []
    shown: list[Message] = []
    for message in messages:
        content = message["content"]
        if message["role"] != "system" and special_text != "parse":
            pieces = special.pieces(content)
            hidden.extend(piece.text for piece in pieces if piece.typed)
            content = "".join(stand_in if piece.typed else piece.text for piece in pieces)
        shown.append(Message(role=message["role"], content=content))
    text = _with_ending(_apply(item_id, shown, template, tokenizer), ending)
    parts = text.split(stand_in)
    if len(parts) != len(hidden) + 1:
        raise TemplateError(
            f"{item_id} spells {len(hidden)} control tokens, and the chat template of "
            f"{template.name!r} repeats or drops the turns that hold them",
            hint="set special_text to 'parse' or 'refuse', or clean the row",
        )
    pieces_of_prompt: list[Piece] = [Piece(text=parts[0])]
    for typed, part in zip(hidden, parts[1:], strict=True):
        pieces_of_prompt += [Piece(text=typed, typed=True), Piece(text=part)]
    return RenderedPrompt(pieces=_joined(pieces_of_prompt), is_chat=True)


def conversation_of(
    item: Asked, template: PromptTemplate, system_prompt: str | None
) -> tuple[Message, ...]:
    """What the chat template gets: system message, earlier turns, the wrapped question."""
    turns = item.messages or (Message(role="user", content=item.question),)
    own_system = turns[0]["content"] if turns[0]["role"] == "system" else template.system
    system = own_system if system_prompt is None else system_prompt
    question = f"{template.before}{item.question}{template.after}"
    conversation = (*without_system(turns)[:-1], Message(role="user", content=question))
    if not system:
        return conversation
    return (Message(role="system", content=system), *conversation)


def _apply(
    item_id: str, messages: Sequence[Message], template: PromptTemplate, tokenizer: Tokenizer
) -> str:
    from jinja2 import TemplateError as JinjaError

    if template.chat_template is None and not tokenizer.chat_template:
        raise TemplateError(
            f"template {template.name!r} needs a chat template, and this tokenizer has none",
            hint="set model.chat_template to a Jinja file, or take a text template such as r1_zero",
        )
    options = {} if template.chat_template is None else {"chat_template": template.chat_template}
    try:
        text: object = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tokenize=False,
            add_generation_prompt=True,
            **options,
        )
    except (JinjaError, TypeError, ValueError) as error:
        raise TemplateError(
            f"{item_id}: the chat template of {template.name!r} cannot render it: {error}"
        ) from error
    return str(text)


def _with_ending(text: str, ending: str) -> str:
    """`text` with the ending once, also where the chat template puts other space after its tag."""
    if text.endswith(ending):
        return text
    tag = ending.rstrip()
    stripped = text.rstrip()
    if stripped.endswith(tag):
        text = stripped.removesuffix(tag)
    return text + ending


def _unused_text(contents: Sequence[str]) -> str:
    """A text from Unicode's private use area that stands in none of the contents."""
    everything = "".join(contents)
    number = 0
    while (text := f"\ue000{number}\ue001") in everything:
        number += 1
    return text


def _joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Neighbouring pieces of the template and of plain text as one, so that merges cross them."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and not piece.typed and not joined[-1].typed:
            joined[-1] = Piece(text=joined[-1].text + piece.text)
        elif piece.text:
            joined.append(piece)
    return tuple(joined)
