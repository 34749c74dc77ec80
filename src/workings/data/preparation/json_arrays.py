"""Rows of a JSON array, one at a time: published `.jsonl` files are not always JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from workings.data.streaming import StreamedRow
from workings.errors import DataError

BLOCK_CHARACTERS = 1 << 16
_SPACE = " \t\r\n"


def holds_array(path: Path) -> bool:
    """True where the first character that is no space opens an array; no row of JSONL does."""
    try:
        with path.open("rb") as file:
            start = file.read(1024).removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return start.lstrip(_SPACE.encode()).startswith(b"[")


def stream_array(path: Path) -> Iterator[StreamedRow]:
    """The objects of the array in bounded memory; an element that is no object is a broken row.

    DataError where the text stops being an array, for nothing after that place can be told apart.
    """
    decode = json.JSONDecoder().raw_decode
    with path.open(encoding="utf-8-sig") as file:
        text = file.read(BLOCK_CHARACTERS).lstrip(_SPACE)[1:]  # after the bracket
        index, ended = 0, False
        while not (text := text.lstrip(_SPACE)).startswith("]"):
            fault = "the array never ends"
            try:
                value, end = decode(text)
                rest = text[end:].lstrip(_SPACE)
            except (ValueError, RecursionError) as error:
                rest, fault = "", str(error)
            # Without the mark that ends it, an element may go on in the next block.
            if rest.startswith((",", "]")):
                yield _row(value, index)
                index += 1
                text = rest.removeprefix(",")
            elif ended or rest:
                raise DataError(f"{path} is not a JSON array after row {index - 1}: {fault}")
            else:
                # Reading as much again as is held keeps the cost of a long row linear.
                block = file.read(max(BLOCK_CHARACTERS, len(text)))
                text, ended = text + block, not block


def _row(value: object, index: int) -> StreamedRow:
    if isinstance(value, dict):
        return StreamedRow(index=index, values=value)
    return StreamedRow(index=index, fault=f"a {type(value).__name__}; expected a JSON object")
