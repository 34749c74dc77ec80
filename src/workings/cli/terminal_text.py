"""Text of models, files and data sets made safe to print: it cannot command the terminal."""

from __future__ import annotations

import re
import sys

# Escapes that move the cursor, set the clipboard or the window's title begin with ESC or with a C1
# control (U+009B is ESC [ in one character); a carriage return or a backspace overwrites what
# stands there; controls of direction show text in another order than it has. A lone surrogate
# cannot be written at all. Left alone: newline, tab, and the joiners that emoji and Persian need.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def for_terminal(text: str) -> str:
    r"""`text` with every character that a terminal might obey written as its escape.

    Newlines and tabs stay. Use it on whatever was sampled or read, before colour is added.

    >>> for_terminal("a\x1b[2Jb\r\n"), for_terminal("x\u202ey\u200bz")
    ('a\\x1b[2Jb\\r\n', 'x\\u202ey\\u200bz')
    """
    return _UNSAFE.sub(lambda match: _escape(match[0]), text)


def on_one_line(text: str) -> str:
    r"""The same with newlines and tabs escaped as well, for cells of tables.

    >>> on_one_line("a\nb\x07")
    'a\\nb\\x07'
    """
    return for_terminal(text).replace("\n", "\\n").replace("\t", "\\t")


def for_stdout(text: str) -> str:
    """`text` made safe where stdout is a terminal; in a file or a pipe it stays what it was."""
    return for_terminal(text) if sys.stdout.isatty() else without_surrogates(text)


def without_surrogates(text: str) -> str:
    r"""`text` as UTF-8 can hold it: half an emoji, cut by a tokenizer, becomes a question mark.

    >>> without_surrogates("a\ud83d")
    'a?'
    """
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
