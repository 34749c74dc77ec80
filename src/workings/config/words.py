"""Values as a configuration file writes them, for messages."""

from __future__ import annotations

from typing import Any

_LONGEST = 80


def show(value: Any) -> str:
    """A value in one short line: null, true, [a, b], text without quotes.

    >>> show(None), show(True), show(("a", 1)), show("x")
    ('null', 'true', '[a, 1]', 'x')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return _cut(f"[{', '.join(show(entry) for entry in value)}]")
    return _cut(str(value))


def show_quoted(value: Any) -> str:
    """As `show`, with quotes around text, so that '5' and 5 are told apart.

    >>> show_quoted("5"), show_quoted(5)
    ("'5'", '5')
    """
    return _cut(repr(value)) if isinstance(value, str) else show(value)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
