"""Generated parts of Markdown pages: between two markers, rewritten or checked, never edited.

<!-- generated NAME, by python docs/generate.py -->
...
<!-- end NAME -->
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
Blocks = Mapping[Path, Mapping[str, str]]
"""Page to block name to content; what stands between the markers."""


def replace_block(text: str, name: str, content: str) -> str:
    """`text` with `content` between the markers of the block; ValueError where it has no such.

    >>> replace_block("<!-- generated x, by y -->\\nold\\n<!-- end x -->\\n", "x", "new")
    '<!-- generated x, by y -->\\n\\nnew\\n\\n<!-- end x -->\\n'
    """
    pattern = _pattern(name)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"the page has no block {name!r}, or two; expected its markers once")
    return pattern.sub(lambda match: f"{match[1]}\n\n{content.strip()}\n\n{match[3]}", text)


def read_block(text: str, name: str) -> str:
    """What stands between the markers of the block, without the empty lines around it."""
    match = _pattern(name).search(text)
    if match is None:
        raise ValueError(f"the page has no block {name!r}")
    return match[2].strip()


def block_names(text: str) -> list[str]:
    """The names of a page's generated blocks, in order."""
    return re.findall(r"<!-- generated ([\w-]+),[^>]*-->", text)


def stale_pages(blocks: Blocks) -> dict[Path, str]:
    """The pages whose blocks are not as they should be, each with its new text."""
    stale = {}
    for page, contents in blocks.items():
        before = after = page.read_text(encoding="utf-8")
        for name, content in contents.items():
            try:
                after = replace_block(after, name, content)
            except ValueError as error:
                raise ValueError(f"{page}: {error}") from error
        if after != before:
            stale[page] = after
    return stale


def write_or_check(blocks: Blocks, arguments: Sequence[str], *, command: str) -> int:
    """Rewrite stale pages, or with `--check` only name them; the exit code (1: stale)."""
    if any(argument != "--check" for argument in arguments):
        sys.stderr.write(f"usage: {command} [--check]\n")
        return 2
    stale = stale_pages(blocks)
    check = "--check" in arguments
    for page, text in stale.items():
        if not check:
            page.write_text(text, encoding="utf-8")
        verb = "is not up to date: run" if check else "rewritten by"
        sys.stderr.write(f"{page.relative_to(ROOT)} {verb} {command}\n")
    return int(check and bool(stale))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table. Code with a bar in it becomes HTML, which every renderer reads alike."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def code(text: str) -> str:
    """Inline code, whatever backticks are in it; a newline shows as an arrow.

    >>> code("x = 1"), code("a`b")
    ('`x = 1`', '``a`b``')
    """
    text = text.replace("\n", "⏎")
    fence = "`"
    while fence in text:
        fence += "`"
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def _cell(text: str) -> str:
    def as_html(match: re.Match[str]) -> str:
        if "|" not in match[0]:
            return match[0]
        return f"<code>{html.escape(match[2].strip()).replace('|', '&#124;')}</code>"

    parts = re.sub(r"(`+)(.+?)(?<!`)\1(?!`)", as_html, text.replace("\n", " "))
    return parts.replace("|", "\\|")


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(
        rf"(<!-- generated {re.escape(name)},[^>]*-->)\n(.*?)\n?(<!-- end {re.escape(name)} -->)",
        re.DOTALL,
    )
