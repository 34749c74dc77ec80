r"""Text of models as Markdown for Streamlit: mathematics by KaTeX, everything else as text.

Streamlit's Markdown knows more than models mean: `:red[x]` and `:smile:`, images from any host, and
every dollar as mathematics. Here the text is cut into code, mathematics and the rest. Mathematics
comes between `$`, and in the rest nothing is left that could be read as HTML, a link, an image or a
directive. With `markdown` the marks of emphasis, lists, headings and tables stay.

An invisible word joiner (U+2060) stands where no escape exists (directives, emoji, arrows), so copy
text from the plain view.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Literal

Part = tuple[Literal["text", "inline", "display", "code"], str]

_JOINER = "\u2060"
_DOLLAR = '{\\char"24}'
_ENVIRONMENTS = "align|aligned|equation|gather|gathered|cases|array|matrix|[pbvBV]matrix"
_MATH = re.compile(
    r"\\\[(?P<bracket>.+?)\\\]"
    r"|\\\((?P<paren>.+?)\\\)"
    r"|\$\$(?P<double>.+?)\$\$"
    rf"|(?P<environment>\\begin\{{(?P<name>(?:{_ENVIRONMENTS})\*?)\}}.+?\\end\{{(?P=name)\}})"
    # As in Pandoc: no space inside of the dollars, and no digit behind, so "$5 and $6" is money.
    r"|(?<![\\$])\$(?![\s$])(?P<single>(?:[^$\\\n]|\\.|\n(?!\s*\n))*?(?<![\s\\]))\$(?![\d$])"
    r"|(?P<boxed>\\boxed\s*\{)",
    re.DOTALL,
)
_CODE = re.compile(r"(?P<fence>^```[^\n]*\n.*?^```[ \t]*$)|(?P<span>`[^`\n]+`)", re.M | re.S)
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>&^=$\"'/@])")
_OPENS_LINE = re.compile(r"^([ \t]+)", re.MULTILINE)


def to_markdown(text: str, *, markdown: bool, latex: bool) -> str:
    r"""The text for `st.markdown`.

    >>> print(to_markdown(r"So \(x=2\) <b>", markdown=True, latex=True))
    So $x=2$ \<b>
    """
    pieces: list[str] = []
    for kind, part in split_parts(text, code=markdown, latex=latex):
        if kind == "inline":
            # "$a$$b$" would open a display.
            apart = _JOINER if pieces and pieces[-1].endswith("$") else ""
            pieces.append(f"{apart}${_math(part)}$")
        elif kind == "display":
            pieces.append(f"\n\n$$\n{_math(part)}\n$$\n\n")
        elif kind == "code":
            pieces.append(part)
        else:
            pieces.append(_marked_up(part) if markdown else _literal(part))
    return "".join(pieces)


def split_parts(text: str, *, code: bool, latex: bool) -> Iterator[Part]:
    r"""The text in its parts; without `code` and `latex` it is one part.

    Display is `\[..\]`, `$$..$$` and environments; inline `\(..\)`, `$..$` and a bare `\boxed{..}`.

    >>> list(split_parts(r"a $b$ costs $5", code=False, latex=True))
    [('text', 'a '), ('inline', 'b'), ('text', ' costs $5')]
    """
    if not code:
        if latex:
            yield from _math_parts(text)
        elif text:
            yield "text", text
        return
    start = 0
    for match in _CODE.finditer(text):
        yield from split_parts(text[start : match.start()], code=False, latex=latex)
        yield "code", match[0]
        start = match.end()
    yield from split_parts(text[start:], code=False, latex=latex)


def plain_html(text: str) -> str:
    """The text as it is, every character shown, in a block that keeps its lines."""
    return f'<pre class="plain">{html.escape(text)}</pre>'


def answer_markdown(text: str | None) -> str:
    """A gold or extracted answer, as mathematics where it looks like it."""
    if text is None or not text.strip():
        return "*none*"
    if any(True for kind, _ in split_parts(text, code=False, latex=True) if kind != "text"):
        return to_markdown(" ".join(text.split()), markdown=False, latex=True)
    formula = re.fullmatch(r"[\d\s.,+\-*/^=()a-zA-Z]+", text) and not re.search("[a-zA-Z]{2}", text)
    if "\\" in text or formula:
        return f"${_math(text.strip())}$"
    return to_markdown(" ".join(text.split()), markdown=False, latex=False)


def _math_parts(text: str) -> Iterator[Part]:
    start = 0
    while match := _MATH.search(text, start):
        end = match.end()
        if match["boxed"] is not None:
            closing = _closing_brace(text, end)
            # A box that is never closed, or holds nothing, is shown as it was written.
            if closing is None or not text[end:closing].strip():
                yield "text", text[start:end]
                start = end
                continue
            end = closing + 1
        if match.start() > start:
            yield "text", text[start : match.start()]
        inner = match["bracket"] or match["double"] or match["environment"]
        inline = match["paren"] or match["single"] or text[match.start() : end]
        if not (inner or inline).strip():
            yield "text", text[match.start() : end]
        elif inner is not None:
            yield "display", inner
        else:
            yield "inline", inline
        start = end
    if start < len(text):
        yield "text", text[start:]


def _closing_brace(text: str, start: int) -> int | None:
    """Where the brace closes that opened before `start`."""
    depth, escaped = 1, False
    for place in range(start, min(len(text), start + 2000)):
        character = text[place]
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "{}":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return place
    return None


def _math(text: str) -> str:
    """Mathematics between dollars: on one line, without a dollar of its own."""
    one_line = " ".join(text.split())
    return one_line.replace("\\$", _DOLLAR).replace("$", _DOLLAR)


def _literal(text: str) -> str:
    """Text of which every character is shown, lines kept."""
    text = _OPENS_LINE.sub(lambda match: "\u00a0" * len(match[1].expandtabs(4)), text)
    text = _SPECIAL.sub(r"\\\1", text)
    text = re.sub(r"(?<=[<>=~\-])(?=\\?[<>=\-])", _JOINER, text)
    text = re.sub(r":(?=\S)", rf"\\:{_JOINER}", text)
    text = re.sub(r"^(\d+)(?=\\[.)])", rf"\1{_JOINER}", text, flags=re.MULTILINE)
    return re.sub(r"\n(?=\n)|\n", lambda match: "  \n" + _blank(text, match), text)


def _blank(text: str, match: re.Match[str]) -> str:
    """A character for an empty line, which Markdown would otherwise drop."""
    return "\u00a0" if text[match.end() : match.end() + 1] == "\n" else ""


def _marked_up(text: str) -> str:
    """Markdown without HTML, links, images, directives and mathematics."""
    text = re.sub(r"(?<!\\)([<$])", r"\\\1", text)
    text = text.replace("![", "\\![").replace("](", "]\\(").replace("]:", f"]{_JOINER}:")
    return re.sub(r":(?=[A-Za-z0-9_/:+])", rf"\\:{_JOINER}", text)
