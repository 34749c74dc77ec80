"""Stop strings, found in decoded text while it grows, at a cost that does not grow with it."""

from __future__ import annotations

from collections.abc import Sequence

from workings.data.tokenizer import Tokenizer

TOKENS_PER_CHARACTER = 4
"""A character may be spread over so many byte-level tokens (UTF-8 has at most four bytes)."""


class StopStrings:
    """Says whether the newest token completed a stop string.

    The policy: the token that completes the string stays whole, so ids and text agree; text that
    the same token carries behind the string stays too.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
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
