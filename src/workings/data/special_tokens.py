"""Control tokens: which ones a tokenizer adds by itself, and what to do where a user types one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from workings.data.tokenizer import Tokenizer
from workings.errors import TemplateError

SpecialText = Literal["plain", "refuse", "parse"]
"""What becomes of a control token's text inside a question or response: encoded as plain text,
refused with an error, or read as the control token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a text; `typed` marks the text of a control token that a user wrote."""

    text: str
    typed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTokens:
    """The control tokens of a tokenizer, found out once and passed along.

    Attributes:
        ids: their ids.
        pattern: matches the text of any of them, the longest first; None where there is none.
        automatic_prefix: ids that the tokenizer puts before every text by itself (its BOS).
    """

    ids: frozenset[int]
    pattern: re.Pattern[str] | None
    automatic_prefix: tuple[int, ...]

    def count_in(self, text: str) -> int:
        """How often `text` spells a control token."""
        return len(self.pattern.findall(text)) if self.pattern is not None else 0

    def pieces(self, text: str) -> list[Piece]:
        """`text` cut at the control tokens it spells; a text without any is one piece."""
        if self.pattern is None:
            return [Piece(text=text)]
        pieces: list[Piece] = []
        end = 0
        for match in self.pattern.finditer(text):
            pieces.append(Piece(text=text[end : match.start()]))
            pieces.append(Piece(text=match[0], typed=True))
            end = match.end()
        pieces.append(Piece(text=text[end:]))
        return [piece for piece in pieces if piece.text]


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """The control tokens of `tokenizer` and the ids that it adds before a text by itself."""
    special = {
        int(token_id): str(token)
        for token_id, token in tokenizer.added_tokens_decoder.items()
        if token.special
    }
    longest_first = sorted((text for text in special.values() if text), key=len, reverse=True)
    return SpecialTokens(
        ids=frozenset(special),
        pattern=re.compile("|".join(map(re.escape, longest_first))) if longest_first else None,
        automatic_prefix=_automatic_prefix(tokenizer),
    )


def encode_pieces(
    pieces: Sequence[Piece], tokenizer: Tokenizer, special: SpecialTokens
) -> list[int]:
    """The ids of the pieces one after the other: typed ones as plain text, no token added.

    TemplateError where the tokenizer cannot read the text of a control token as plain text.
    """
    ids: list[int] = []
    for piece in pieces:
        if not piece.typed:
            ids.extend(tokenizer.encode(piece.text, add_special_tokens=False))
            continue
        plain = tokenizer.encode(piece.text, add_special_tokens=False, split_special_tokens=True)
        if special.ids & set(plain):
            raise TemplateError(
                f"this tokenizer reads {piece.text!r} as a control token even when asked not to",
                hint="set the handling of special text to 'parse' or 'refuse', or clean the data",
            )
        ids.extend(plain)
    return ids


def _automatic_prefix(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What the tokenizer puts before a text; what it may put after it is EOS, added elsewhere."""
    probe = "a"
    plain = tokenizer.encode(probe, add_special_tokens=False)
    with_added = tokenizer.encode(probe, add_special_tokens=True)
    for start in range(len(with_added) - len(plain) + 1):
        if with_added[start : start + len(plain)] == plain:
            return tuple(with_added[:start])
    raise TemplateError(
        f"with its special tokens this tokenizer encodes {probe!r} as {with_added}, which does not "
        f"contain {plain}, the ids without them; its prompts cannot be put together from parts"
    )
