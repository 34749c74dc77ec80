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
_OPENER = re.compile(
    rf"(?P<opener>\\\[|\\\(|\$\$|\\begin\{{(?P<name>(?:{_ENVIRONMENTS})\*?)\}})"
    # As in Pandoc: no space inside of the dollars, and no digit behind, so "$5 and $6" is money.
    r"|(?<![\\$])\$(?![\s$])(?P<single>(?:[^$\\\n]|\\.|\n(?!\s*\n))*?(?<![\s\\]))\$(?![\d$])"
    r"|(?P<boxed>\\boxed\s*\{)",
    re.DOTALL,
)
_CLOSERS = {"\\[": "\\]", "\\(": "\\)", "$$": "$$"}
_LONGEST_BOX = 2000
# As in CommonMark, a fence that is never closed reaches to the end.
_CODE = re.compile(
    r"^ {0,3}(?P<fence>`{3,}+(?=[^`\n]*$)|~{3,}+)[^\n]*+\n"
    r"(?:.*?^ {0,3}(?P=fence)(?:(?<=`)`*+|(?<=~)~*+)[ \t]*+$|.*\Z)"
    r"|`[^`\n]+`",
    re.MULTILINE | re.DOTALL,
)
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>&^=$\"'/@])")
_OPENS_LINE = re.compile(r"^([ \t]+)", re.MULTILINE)
# GitHub's Markdown links bare addresses also where they are escaped.
_ADDRESS = re.compile(r"(?<=www)(?=\\?\.)|(?<=[\w.+\-])(?=\\?@)", re.IGNORECASE)
_ENTITY = r"(?<=&)(?=#?[A-Za-z0-9]{1,31};)"
_LINK = re.compile(
    rf"(?<=\])(?=[(:])|(?<=<)(?=[A-Za-z/!?])|{_ENTITY}|{_ADDRESS.pattern}"
    # An address, a directive, an emoji.
    r"|(?<=:)(?=\\?[/:]|[A-Za-z]+\[|[\w+\-]{1,60}[:/])",
    re.IGNORECASE,
)
_FENCE = re.compile(r"(?<=``)(?=`)|(?<=~~)(?=~)")
# Streamlit draws a diagram of code in this language, with links and images.
_DIAGRAM = re.compile(
    r"(?<=```|~~~)(?![`~]|[ \t]*+(?!mermaid)(?:\w[\w+#.\-]*+)?(?:\s|\Z))"
    r"|(?<=language)(?=\\?-)",
    re.IGNORECASE | re.ASCII,
)


def to_markdown(text: str, *, markdown: bool, latex: bool) -> str:
    r"""The text for `st.markdown`.

    >>> print(to_markdown(r"So \(x=2\) <b>", markdown=True, latex=True))
    So $x=2$ \<b>
    """
    pieces: list[str] = []
    for kind, part in split_parts(text, code=markdown, latex=latex):
        if kind == "inline":
            # "$a$$b$" would open a display, and "\\$a$" nothing.
            apart = _JOINER if pieces and pieces[-1].endswith(("$", "\\")) else ""
            pieces.append(f"{apart}${_math(part)}$")
        elif kind == "display":
            pieces.append(f"\n\n$$\n{_math(part)}\n$$\n\n")
        elif kind == "code":
            pieces.append(_without_links(part))
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
    start = place = 0
    ends = _Ends(text)
    while match := _OPENER.search(text, place):
        first, content = match.start(), match.end()
        if match["boxed"] is not None:
            closing = ends.of_box(content)
            # A box that is never closed, or holds nothing, is shown as it was written.
            if closing is None or not text[content:closing].strip():
                yield "text", text[start:content]
                start = place = content
                continue
            end, inner, display = closing + 1, text[first : closing + 1], False
        elif match["single"] is not None:
            end, inner, display = content, match["single"], False
        else:
            opener, name = match["opener"], match["name"]
            closer = _CLOSERS[opener] if name is None else f"\\end{{{name}}}"
            closing = ends.of(closer, content)
            if closing is None:
                place = content
                continue
            end, display = closing + len(closer), opener != "\\("
            inner = text[content:closing] if name is None else text[first:end]
        if first > start:
            yield "text", text[start:first]
        if not inner.strip():
            yield "text", text[first:end]
        else:
            yield "display" if display else "inline", inner
        start = place = end
    if start < len(text):
        yield "text", text[start:]


class _Ends:
    """Where mathematics ends in a text; every end is looked for once, so the time is linear."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._missing: set[str] = set()
        self._braces: dict[int, int] | None = None

    def of(self, closer: str, start: int) -> int | None:
        """Where `closer` stands, behind one character or more from `start` on."""
        if closer in self._missing:
            return None
        place = self._text.find(closer, start + 1)
        if place < 0:
            # What does not follow here follows nowhere behind.
            self._missing.add(closer)
            return None
        return place

    def of_box(self, start: int) -> int | None:
        """Where the brace closes that opened before `start`, if it is near."""
        if self._braces is None:
            self._braces = _closing_braces(self._text)
        closing = self._braces.get(start)
        return closing if closing is not None and closing < start + _LONGEST_BOX else None


def _closing_braces(text: str) -> dict[int, int]:
    """{the place behind an opening brace: its closing one}; `\\{` and `\\}` are none."""
    closing, opened = {}, []
    for match in re.finditer(r"\\.|([{}])", text, re.DOTALL):
        if match[1] == "{":
            opened.append(match.end())
        elif match[1] == "}" and opened:
            closing[opened.pop()] = match.start()
    return closing


def _math(text: str) -> str:
    """Mathematics between dollars: on one line, without a dollar of its own."""
    one_line = " ".join(text.split())
    # Spaces mean nothing here, and nothing is a link or opens code where the dollars are text.
    one_line = _FENCE.sub(" ", one_line)
    return _LINK.sub(" ", one_line.replace("\\$", _DOLLAR).replace("$", _DOLLAR))


def _without_links(code: str) -> str:
    """Code that stays text, and no link, where Markdown does not read it as code."""
    return _LINK.sub(_JOINER, _DIAGRAM.sub(_JOINER, code))


def _literal(text: str) -> str:
    """Text of which every character is shown, lines kept."""
    text = _OPENS_LINE.sub(lambda match: "\u00a0" * len(match[1].expandtabs(4)), text)
    text = _SPECIAL.sub(r"\\\1", _ADDRESS.sub(_JOINER, text))
    text = re.sub(r"(?<=[<>=~\-])(?=\\?[<>=\-])", _JOINER, text)
    text = re.sub(r":(?=\S)", rf"\\:{_JOINER}", text)
    text = re.sub(r"^(\d+)(?=\\[.)])", rf"\1{_JOINER}", text, flags=re.MULTILINE)
    return re.sub(r"\n(?=\n)|\n", lambda match: "  \n" + _blank(text, match), text)


def _blank(text: str, match: re.Match[str]) -> str:
    """A character for an empty line, which Markdown would otherwise drop."""
    return "\u00a0" if text[match.end() : match.end() + 1] == "\n" else ""


def _marked_up(text: str) -> str:
    """Markdown without HTML, links, images, diagrams, directives and mathematics."""
    text = re.sub(r"(?<!\\)((?:\\\\)*)([<$])", r"\1\\\2", text)
    text = re.sub(_ENTITY, _JOINER, _ADDRESS.sub(_JOINER, _DIAGRAM.sub(_JOINER, text)))
    text = text.replace("![", "\\![").replace("](", "]\\(").replace("]:", f"]{_JOINER}:")
    return re.sub(r":(?=[A-Za-z0-9_/:+\-\\])", rf"\\:{_JOINER}", text)
