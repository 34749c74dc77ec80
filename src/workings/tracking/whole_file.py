"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write the text to the side and rename it, so that a process that is killed leaves the old.

    A lone surrogate (half an emoji cut by a tokenizer) cannot be written as UTF-8; "?" stands for
    it.
    """
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8", errors="replace")
    beside.replace(path)
