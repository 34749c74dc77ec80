"""Tokens in lines that a person can check: where each one ends, and which are trained.

    0  2|+|3|\u21b5|<think>|
    5  2|+|3|=|5|</think>|...
       ^ ^ ^ ^ ^ ^^^^^^^^

A caret stands below every trained character; on a terminal trained tokens are green as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from workings.cli.colour import Colour, paint
from workings.data.inspection import TokenView

WIDTH = 96
SEPARATOR = "|"
SPACE, NEWLINE, TAB = "\u00b7", "\u21b5", "\u2192"


def token_lines(
    views: Sequence[TokenView],
    *,
    first: int = 0,
    width: int = WIDTH,
    marked: Collection[int] = (),
) -> list[str]:
    """The tokens in lines of at most `width` characters where they fit, broken after newlines.

    The tokens at the places `marked` (counted from 0) are yellow on a terminal.

    Each line begins with the number of its first token, counted from `first`; the line of carets
    below it is left out where nothing is trained.
    """
    lines: list[str] = []
    margin = len(str(first + len(views))) + 4
    for start, row in _rows(views, width - margin):
        cells = [visible(view.text) for view in row]
        shown = [
            _coloured(cell, view, is_marked=start + place in marked)
            for place, (cell, view) in enumerate(zip(cells, row, strict=True))
        ]
        lines.append(f"{first + start:>{margin - 2}}  {SEPARATOR.join(shown)}{SEPARATOR}")
        if any(view.trained for view in row):
            marks = [
                ("^" if view.trained else " ") * len(cell)
                for cell, view in zip(cells, row, strict=True)
            ]
            lines.append(" " * margin + " ".join(marks).rstrip())
    return lines


def visible(text: str) -> str:
    """A token's text with white space made visible and other control characters escaped.

    >>> visible(" a\\n"), visible("\\x00")
    ('·a↵', '\\\\x00')
    """
    text = text.replace(" ", SPACE).replace("\n", NEWLINE).replace("\t", TAB)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def end_tokens(views: Sequence[TokenView]) -> str:
    """Where the ids of BOS and EOS stand, and which of them are trained."""
    parts = []
    for name, positions in (
        ("BOS", [i for i, view in enumerate(views) if view.is_bos]),
        ("EOS", [i for i, view in enumerate(views) if view.is_eos]),
    ):
        if not positions:
            parts.append(f"{name}: none")
            continue
        view = views[positions[0]]
        places = [f"{i} (trained)" if views[i].trained else str(i) for i in positions]
        parts.append(f"{name} {view.text} ({view.id}) at {', '.join(places)}")
    return "; ".join(parts)


def stop_tokens(views: Sequence[TokenView], stop: Sequence[str]) -> frozenset[int]:
    """The places of the tokens that spell a stop string, or a part of one."""
    return frozenset(
        place for text in stop for first, end in _places(views, text) for place in range(first, end)
    )


def stop_lines(views: Sequence[TokenView], stop: Sequence[str]) -> list[str]:
    """One line for each stop string that the tokens spell, with where it begins and ends."""
    lines = []
    for text in stop:
        places = [f"{first} to {end - 1}" for first, end in _places(views, text)]
        if places:
            lines.append(f"stop string {text!r} at {', '.join(places)}")
    return lines


def _places(views: Sequence[TokenView], text: str) -> list[tuple[int, int]]:
    """(first, end) of the tokens in which each occurrence of `text` stands."""
    whole = "".join(view.text for view in views)
    owner = [place for place, view in enumerate(views) for _ in view.text]
    return [
        (owner[match.start()], owner[match.end() - 1] + 1)
        for match in re.finditer(re.escape(text), whole)
        if text
    ]


def _rows(views: Sequence[TokenView], room: int) -> list[tuple[int, list[TokenView]]]:
    """(number of the first token, tokens) of each line."""
    rows: list[tuple[int, list[TokenView]]] = []
    used = 0
    for number, view in enumerate(views):
        size = len(visible(view.text)) + 1
        after_newline = number > 0 and views[number - 1].text.endswith("\n")
        if not rows or used + size > room or after_newline:
            rows.append((number, []))
            used = 0
        rows[-1][1].append(view)
        used += size
    return rows


def _coloured(cell: str, view: TokenView, *, is_marked: bool) -> str:
    colour: Colour | None = None
    if is_marked:
        colour = "yellow"
    elif view.trained:
        colour = "green"
    elif view.is_special:
        colour = "blue"
    return cell if colour is None else paint(cell, colour)
