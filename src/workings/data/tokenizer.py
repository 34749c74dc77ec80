"""What this package asks of a tokenizer. Hugging Face tokenizers satisfy it as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that data and engines use."""

    bos_token_id: int | None
    eos_token_id: int | None
    pad_token_id: int | None
    bos_token: str | None
    eos_token: str | None
    chat_template: Any

    @property
    def added_tokens_decoder(self) -> Any:
        """Id to added token; `token.special` tells control tokens from added words."""
        ...

    def __len__(self) -> int: ...

    def encode(
        self, text: str, *, add_special_tokens: bool = True, split_special_tokens: bool = False
    ) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str: ...

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...
