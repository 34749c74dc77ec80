"""Stop strings, found in decoded text while it grows, at a cost that does not grow with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workings.data.tokenizer import Tokenizer
from workings.errors import EngineError

TOKENS_PER_CHARACTER = 4
"""A character may be spread over so many byte-level tokens (UTF-8 has at most four bytes)."""


class StopStrings:
    """Says whether the newest token completed a stop string.

    The policy: the token that completes the string stays whole, so ids and text agree; text that
    the same token carries behind the string stays too.

    Raises EngineError for a stop string with the text of a special token, which the decoded text
    never holds. One with the text of an EOS may stay: the completion ends at that token anyway.
    """

    def __init__(
        self, tokenizer: Tokenizer, stops: Sequence[str], *, eos_token_ids: Iterable[int] = ()
    ) -> None:
        if stops:
            _check_visible(tokenizer, stops, frozenset(eos_token_ids))
        self._tokenizer = tokenizer
        self._stops = tuple(stops)
        self._pieces: dict[int, str] = {}
        self._candidates: dict[int, bool] = {}
        self._window = max((len(stop) + 1 for stop in stops), default=0) * TOKENS_PER_CHARACTER

    def completed_by_last(self, ids: Sequence[int]) -> bool:
        """True if the last of `ids` completed a stop string in their text."""
        if not self._stops or not ids or not self.may_end_with(ids[-1]):
            return False
        window = self._tail(ids)
        text = decode(self._tokenizer, window)
        if not any(stop in text for stop in self._stops):
            return False
        # Bytes of a character that the last token completed stood there as U+FFFD.
        settled = len(decode(self._tokenizer, window[:-1]).rstrip("�"))
        return any(text.find(stop, max(0, settled - len(stop) + 1)) >= 0 for stop in self._stops)

    def may_end_with(self, token_id: int) -> bool:
        """False where no stop string can be completed by this token, whatever comes before it."""
        if not self._stops:
            return False
        known = self._candidates.get(token_id)
        if known is None:
            piece = self._piece(token_id)
            # Alone, part of a character decodes to U+FFFD, and a space marker may vanish.
            unclear = not piece or "�" in piece or any(stop[-1].isspace() for stop in self._stops)
            known = unclear or any(stop[-1] in piece for stop in self._stops)
            self._candidates[token_id] = known
        return known

    def _piece(self, token_id: int) -> str:
        if token_id not in self._pieces:
            self._pieces[token_id] = decode(self._tokenizer, [token_id])
        return self._pieces[token_id]

    def _tail(self, ids: Sequence[int]) -> list[int]:
        """The last tokens of `ids`, enough to hold any stop string, invisible ones not counted."""
        visible = 0
        start = len(ids)
        while start > 0 and visible < self._window:
            start -= 1
            visible += bool(self._piece(ids[start]))
        return list(ids[start:])


def _check_visible(
    tokenizer: Tokenizer, stops: Sequence[str], eos_token_ids: frozenset[int]
) -> None:
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {token_id: str(token) for token_id, token in added.items() if token.special}
    ends = [text for token_id, text in special.items() if token_id in eos_token_ids and text]
    for stop in stops:
        hidden = [text for text in special.values() if text and text in stop]
        if hidden and not any(end in stop for end in ends):
            raise EngineError(
                f"the stop string {stop!r} holds the special token {max(hidden, key=len)!r}; stop "
                "strings are looked for in text without special tokens, so it would never be found",
                hint="use plain text as a stop string; for a completion to end at a special token, "
                "add its id to eos_token_id in the model's generation_config.json",
            )


def decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of `ids` without special tokens, spaces exactly as the tokens have them."""
    return tokenizer.decode(list(ids), skip_special_tokens=True)


def decode_all(tokenizer: Tokenizer, rows: Sequence[Sequence[int]]) -> list[str]:
    """`decode` of every row; many rows on all cores where the tokenizer can do that."""
    decode_batch = getattr(getattr(tokenizer, "backend_tokenizer", None), "decode_batch", None)
    if len(rows) > 1 and decode_batch is not None:
        texts: list[str] = decode_batch([list(row) for row in rows], skip_special_tokens=True)
        # A tokenizer may do more than its backend does, to all texts or to some: then row by row.
        if not getattr(tokenizer, "clean_up_tokenization_spaces", False) and texts[0] == decode(
            tokenizer, rows[0]
        ):
            return texts
    return [decode(tokenizer, row) for row in rows]
