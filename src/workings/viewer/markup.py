"""Small pieces of HTML: badges, tables with intervals, the page's style. All text is escaped.

Lines and greys are mixtures of the page's own text colour, so that light and dark pages need no
rules of their own.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

STYLE = """<style>
:root { --line: color-mix(in srgb, currentColor 14%, transparent);
        --soft: color-mix(in srgb, currentColor 6%, transparent); }
[data-testid="stMainBlockContainer"] { padding: 1.6rem 2.4rem 3rem; max-width: 84rem; }
[data-testid="stSidebarHeader"] { height: 2.2rem; padding-bottom: 0; margin-bottom: 0; }
[data-testid="stSidebarUserContent"] hr { margin: .4rem 0; }
[data-testid="stMarkdownContainer"] .katex { font-size: 1.08em; }
[data-testid="stSidebar"] [data-testid="stColumn"] button[aria-label="Clear all"] { display: none; }
[data-testid="stMultiSelect"] [data-tag] { background: #00695c; }
table.wk { border-collapse: collapse; width: 100%; font-size: .875rem;
           font-variant-numeric: tabular-nums; }
table.wk th { text-align: left; font-weight: 600; opacity: .65; font-size: .78rem; }
table.wk th, table.wk td { padding: .42rem .55rem; vertical-align: middle;
           border: 0; border-bottom: 1px solid var(--line); }
table.wk th:first-child, table.wk td:first-child { padding-left: 0; }
table.wk td.n, table.wk th.n { text-align: right; white-space: nowrap; }
table.wk td.w { min-width: 11rem; width: 22%; }
table.wk a { color: inherit; text-decoration: underline; text-decoration-color: var(--line);
           text-underline-offset: 3px; }
.wk-scroll { overflow-x: auto; }
.wk-scroll.tall { max-height: 34rem; overflow-y: auto; }
.wk-scroll.tall th { position: sticky; top: 0; opacity: 1; z-index: 1; background: Canvas;
           background: light-dark(#ffffff, #14191a);
           color: color-mix(in srgb, currentColor 65%, transparent); }
@media (max-width: 640px) {
  [data-testid="stMainBlockContainer"] { padding: 3.4rem 1rem 2rem; }
}
.wk-axis { position: relative; height: 12px; background: var(--soft); border-radius: 2px; }
.wk-axis i { position: absolute; top: 5px; height: 2px; background: #2A8BC9; }
.wk-axis b { position: absolute; top: 1px; width: 10px; height: 10px; margin-left: -5px;
           border-radius: 50%; background: #2A8BC9; }
.wk-axis u { position: absolute; top: 0; height: 12px; width: 1px; background: currentColor;
           opacity: .5; }
.wk-axis.up i, .wk-axis.up b { background: #009E73; }
.wk-axis.down i, .wk-axis.down b { background: #D55E00; }
.wk-axis.none i, .wk-axis.none b { background: #8A8A8A; }
.wk-head { display: flex; flex-wrap: wrap; gap: .4rem; align-items: center; font-size: .85rem; }
.wk-head .id { font-weight: 600; margin-right: .4rem; overflow-wrap: anywhere; }
.wk-badge { padding: .05rem .5rem; border-radius: .6rem; background: var(--soft);
           font-size: .78rem; white-space: nowrap; font-variant-numeric: tabular-nums; }
.wk-badge.good { background: rgba(0,158,115,.18); }
.wk-badge.bad { background: rgba(213,94,0,.18); }
.wk-badge.warn { background: rgba(230,159,0,.22); }
.wk-file { font-size: .85rem; font-weight: 600; overflow-wrap: anywhere; }
.wk-label { font-size: .74rem; font-weight: 600; opacity: .6; margin-bottom: -.55rem; }
.wk-note { font-size: .82rem; opacity: .7; }
.wk-legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .85rem; }
.wk-legend i { display: inline-block; width: .9rem; height: 3px; border-radius: 2px;
           margin-right: .45rem; vertical-align: middle; }
pre.plain { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .84rem; line-height: 1.55;
           background: var(--soft); border: 0; border-radius: .4rem; padding: .6rem .8rem;
           margin: 0; color: inherit; }
pre.tokens span { border-radius: 2px; padding: 1px 0; }
pre.tokens .nl { opacity: .4; font-style: normal; }
</style>"""

Tone = str
"""Of a badge: "good", "bad", "warn" or "" for neutral."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of a table.

    Attributes:
        content: HTML, escaped by whoever made it; `text_cell` makes one of plain text.
        numeric: right-aligned.
        wide: it holds a drawing.
    """

    content: str
    numeric: bool = False
    wide: bool = False


def text_cell(text: str, *, numeric: bool = False, link: str = "") -> Cell:
    """A cell of plain text, a link where an address is given (the page's own query)."""
    content = html.escape(text)
    if link:
        content = f'<a href="{html.escape(link)}" target="_self">{content}</a>'
    return Cell(content=content, numeric=numeric)


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, tall: bool = False) -> str:
    """The table; a column is aligned as its first cell is. A `tall` one scrolls by itself."""
    sides = [cell.numeric for cell in rows[0]] if rows else [False] * len(headers)
    head = "".join(
        f"<th{_class(numeric=numeric)}>{html.escape(name)}</th>"
        for name, numeric in zip(headers, sides, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_class(numeric=cell.numeric, wide=cell.wide)}>{cell.content}</td>" for cell in row
        )
        + "</tr>"
        for row in rows
    )
    around = "wk-scroll tall" if tall else "wk-scroll"
    return (
        f'<div class="{around}"><table class="wk"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def badge(text: str, tone: Tone = "", *, title: str = "") -> str:
    """A short fact on a coloured ground; `title` shows on pointing at it."""
    return f'<span class="wk-badge {tone}" title="{html.escape(title)}">{html.escape(text)}</span>'


def head(name: str, badges: Sequence[str]) -> str:
    """The line on top of a response."""
    return (
        f'<div class="wk-head"><span class="id">{html.escape(name)}</span>{"".join(badges)}</div>'
    )


def file_name(text: str) -> str:
    """What the file is called that is shown."""
    return f'<div class="wk-file">{html.escape(text)}</div>'


def label(text: str) -> str:
    """A small heading."""
    return f'<div class="wk-label">{html.escape(text)}</div>'


def note(text: str) -> str:
    """A remark in grey."""
    return f'<div class="wk-note">{html.escape(text)}</div>'


def legend(colours: dict[str, str]) -> str:
    """{label: colour} on one line."""
    items = (
        f'<span><i style="background:{html.escape(colour)}"></i>{html.escape(name)}</span>'
        for name, colour in colours.items()
    )
    return f'<div class="wk-legend">{"".join(items)}</div>'


def interval_axis(
    value: float,
    low: float | None,
    high: float | None,
    *,
    start: float = 0.0,
    end: float = 1.0,
    zero: bool = False,
    tone: str = "",
) -> Cell:
    """A dot with its interval on a scale from `start` to `end`; `zero` marks zero on it."""

    def place(number: float) -> float:
        return 100 * min(1.0, max(0.0, (number - start) / (end - start)))

    parts = [f'<u style="left:{place(0):.1f}%"></u>'] if zero else []
    if low is not None and high is not None:
        width = place(high) - place(low)
        parts.append(f'<i style="left:{place(low):.1f}%;width:{width:.1f}%"></i>')
    parts.append(f'<b style="left:{place(value):.1f}%"></b>')
    return Cell(content=f'<div class="wk-axis {tone}">{"".join(parts)}</div>', wide=True)


def _class(*, numeric: bool = False, wide: bool = False) -> str:
    name = "n" if numeric else "w" if wide else ""
    return f' class="{name}"' if name else ""
