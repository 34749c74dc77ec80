"""What a prompt or demonstration looks like token by token, for a person to check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workings.data.encoding import EncodedDemonstration
from workings.data.special_tokens import special_tokens
from workings.data.tokenizer import Tokenizer
from workings.types import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenView:
    """One token: its id, its text by itself, and what is done with it.

    Attributes:
        trained: it is in the loss.
        is_bos, is_eos: it has the tokenizer's BOS or EOS id (a chat template may repeat it).
        is_special: it is a control token of any kind.
    """

    id: int
    text: str
    trained: bool
    is_bos: bool
    is_eos: bool
    is_special: bool


def view_tokens(
    ids: Sequence[int], mask: Sequence[bool], tokenizer: Tokenizer
) -> tuple[TokenView, ...]:
    """One `TokenView` per id, with `mask` saying which are trained."""
    special = special_tokens(tokenizer).ids
    return tuple(
        TokenView(
            id=token_id,
            text=tokenizer.decode([token_id]),
            trained=trained,
            is_bos=token_id == tokenizer.bos_token_id,
            is_eos=token_id == tokenizer.eos_token_id,
            is_special=token_id in special,
        )
        for token_id, trained in zip(ids, mask, strict=True)
    )


def view_prompt(prompt: Prompt, tokenizer: Tokenizer) -> tuple[TokenView, ...]:
    """The tokens of a prompt; none of them is trained."""
    return view_tokens(prompt.ids, [False] * len(prompt.ids), tokenizer)


def view_demonstration(
    encoded: EncodedDemonstration, tokenizer: Tokenizer
) -> tuple[TokenView, ...]:
    """The tokens of a demonstration; those of the response are trained."""
    return view_tokens(encoded.ids, encoded.mask, tokenizer)
