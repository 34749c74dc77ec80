"""Control tokens: found, counted, and read as plain text."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tiny import tiny_tokenizer
from workings.data.special_tokens import Piece, encode_pieces, special_tokens
from workings.errors import TemplateError


def test_what_a_tokenizer_adds_by_itself() -> None:
    assert special_tokens(tiny_tokenizer()).automatic_prefix == ()
    assert special_tokens(tiny_tokenizer(add_bos=True)).automatic_prefix == (1,)


def test_an_eos_added_by_the_tokenizer_is_left_out() -> None:
    tokenizer = SimpleNamespace(
        added_tokens_decoder={},
        encode=lambda text, add_special_tokens=True: [7, 5, 9] if add_special_tokens else [5],
    )
    assert special_tokens(tokenizer).automatic_prefix == (7,)  # type: ignore[arg-type]


def test_a_tokenizer_whose_parts_do_not_add_up() -> None:
    tokenizer = SimpleNamespace(
        added_tokens_decoder={},
        encode=lambda text, add_special_tokens=True: [7, 6] if add_special_tokens else [5],
    )
    with pytest.raises(
        TemplateError, match=r"encodes 'a' as \[7, 6\], which does not contain \[5\]"
    ):
        special_tokens(tokenizer)  # type: ignore[arg-type]


def test_pieces_put_the_longest_token_first() -> None:
    special = special_tokens(tiny_tokenizer())
    text = "a<|im_end|>b<|im_start|>"
    assert special.count_in(text) == 2
    pieces = special.pieces(text)
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.text for piece in pieces if piece.typed] == ["<|im_end|>", "<|im_start|>"]
    assert special.pieces("plain") == [Piece(text="plain")]


def test_typed_pieces_become_plain_text() -> None:
    tokenizer = tiny_tokenizer()
    special = special_tokens(tokenizer)
    ids = encode_pieces(special.pieces("a<|im_end|>b"), tokenizer, special)
    assert tokenizer.decode(ids) == "a<|im_end|>b"
    assert not special.ids & set(ids)
    assert encode_pieces([Piece(text="<|im_end|>")], tokenizer, special) == [3]


def test_a_tokenizer_that_cannot_read_them_plainly() -> None:
    special = special_tokens(tiny_tokenizer())
    stubborn = SimpleNamespace(encode=lambda text, **_: [3])
    with pytest.raises(TemplateError, match="as a control token even when asked not to"):
        encode_pieces([Piece(text="<|im_end|>", typed=True)], stubborn, special)  # type: ignore[arg-type]
