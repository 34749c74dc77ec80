"""Where in a conversation's prompt the assistant's own earlier turns stand."""

from __future__ import annotations

from collections.abc import Sequence

from workings.data.rendering import Asked, RenderedPrompt, conversation_of, render_messages
from workings.data.special_tokens import Piece, SpecialText, SpecialTokens, encode_pieces
from workings.data.templates import PromptTemplate
from workings.data.tokenizer import Tokenizer
from workings.errors import TemplateError

Span = tuple[int, int]


def assistant_spans(
    item: Asked,
    prompt_ids: Sequence[int],
    template: PromptTemplate,
    tokenizer: Tokenizer,
    *,
    special: SpecialTokens,
    system_prompt: str | None = None,
    special_text: SpecialText = "plain",
) -> tuple[Span, ...]:
    """(first, one past the last) token of each assistant turn in the prompt, EOS included.

    A turn begins where the prompt that would have asked for it ends, so that it is trained after
    the tokens that it would be sampled after; it ends with its EOS, or with its text where the
    template writes none. `prompt_ids` are those of `encode_prompt`; a prompt of one turn has none.

    TemplateError names the row where the template does not write a turn as a continuation of the
    turns before it (some drop earlier thoughts), or the tokenizer merges over the turn's edge.
    """
    if template.mode == "text":
        return ()
    messages = conversation_of(item, template, system_prompt)
    numbers = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
    if not numbers:
        return ()

    def rendered(count: int) -> RenderedPrompt:
        return render_messages(
            item.id,
            messages[:count],
            template,
            tokenizer,
            special,
            ending=template.ending if count == len(messages) else "",
            special_text=special_text,
        )

    whole = rendered(len(messages))
    spans: list[Span] = []
    for number in numbers:
        edges = _edges(
            whole.text, rendered(number).text, messages[number]["content"], tokenizer.eos_token
        )
        places = [] if edges is None else [_first_ids(whole, e, tokenizer, special) for e in edges]
        if not places or any(tuple(prompt_ids[: len(ids)]) != ids for ids in places):
            raise TemplateError(
                f"{item.id}: the chat template of {template.name!r} does not write turn {number} "
                "(assistant) as a continuation of the turns before it, so its tokens cannot be "
                "told from the rest",
                hint="set trained_tokens=completion, which trains the last turn alone, or clean "
                "the row",
            )
        first, end = map(len, places)
        spans.append((first, end))
    return tuple(spans)


def _edges(whole: str, before: str, content: str, eos: str | None) -> tuple[int, int] | None:
    """The characters of `whole` where the turn after `before` begins and ends; None if not there.

    >>> _edges("<user>Hi<eos><bot>Yo<eos><user>", "<user>Hi<eos><bot>", "Yo", "<eos>")
    (18, 25)
    """
    if not whole.startswith(before):
        return None
    rest = whole[len(before) :]
    start = len(rest) - len(rest.lstrip())
    if not rest.startswith(content.strip(), start):
        return None
    end = start + len(content.strip())
    after = rest[end:].lstrip()
    if eos and after.startswith(eos):
        end = len(rest) - len(after) + len(eos)
    return len(before), len(before) + end


def _first_ids(
    whole: RenderedPrompt, num_characters: int, tokenizer: Tokenizer, special: SpecialTokens
) -> tuple[int, ...]:
    """The ids of the first characters of a rendered prompt."""
    pieces: list[Piece] = []
    for piece in whole.pieces:
        text = piece.text[:num_characters]
        num_characters -= len(text)
        if text:
            pieces.append(Piece(text=text, typed=piece.typed))
    return tuple(encode_pieces(pieces, tokenizer, special))
