"""Colour on stdout, on top of output that is legible without it."""

from __future__ import annotations

import os
import sys
from typing import Literal

Colour = Literal["green", "yellow", "red", "blue", "dim", "bold"]
_CODES: dict[Colour, str] = {
    "green": "32",
    "yellow": "33",
    "red": "31",
    "blue": "34",
    "dim": "2",
    "bold": "1",
}


def paint(text: str, colour: Colour) -> str:
    """`text` in a colour where stdout is a terminal, unchanged elsewhere and with NO_COLOR set."""
    if not text or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"
