r"""Mathematics is found whatever its delimiters; nothing else of a model's text means anything."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from workings.viewer.rich_text import answer_markdown, plain_html, split_parts, to_markdown

JOINER = "\u2060"


def _parts(text: str, *, code: bool = False) -> list[tuple[str, str]]:
    return list(split_parts(text, code=code, latex=True))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (r"\(x\)", [("inline", "x")]),
        (r"a \[x\] b", [("text", "a "), ("display", "x"), ("text", " b")]),
        ("$$x$$", [("display", "x")]),
        ("$x$ and $y$", [("inline", "x"), ("text", " and "), ("inline", "y")]),
        ("it costs $5 and $6", [("text", "it costs $5 and $6")]),
        ("from $5$6", [("text", "from $5$6")]),
        ("$ x $", [("text", "$ x $")]),
        (r"a \$5 b $x$", [("text", r"a \$5 b "), ("inline", "x")]),
        (
            r"so \boxed{\frac{1}{2}}.",
            [("text", "so "), ("inline", r"\boxed{\frac{1}{2}}"), ("text", ".")],
        ),
        (r"cut \boxed{\frac{1", [("text", r"cut \boxed{"), ("text", r"\frac{1")]),
        (
            r"\begin{align*}a&=b\end{align*}",
            [("display", r"\begin{align*}a&=b\end{align*}")],
        ),
        (r"$\text{it is \$5}$", [("inline", r"\text{it is \$5}")]),
        ("\\[ \\]", [("text", "\\[ \\]")]),
        (r"\[a \\[2pt] b\] \[c", [("display", r"a \\[2pt] b"), ("text", r" \[c")]),
        (r"\[a $b$", [("text", r"\[a "), ("inline", "b")]),
        (r"} \boxed{\{1} 2}", [("text", "} "), ("inline", r"\boxed{\{1}"), ("text", " 2}")]),
        ("", []),
    ],
)
def test_where_mathematics_stands(text: str, parts: list[tuple[str, str]]) -> None:
    assert _parts(text) == parts


def test_code_is_no_mathematics() -> None:
    text = "a `$x$` b\n```\n\\(y\\)\n```\n$z$"
    kinds = [kind for kind, _ in _parts(text, code=True)]
    assert kinds == ["text", "code", "text", "code", "text", "inline"]


def test_fences_are_those_of_markdown() -> None:
    """Of both kinds, closed by one as long, without a backtick behind them, or open to the end."""
    for text in ("~~~\n$x$\n~~~", "````\n```\n$x$\n````", "   ```py\n$x$\n  ```", "```\n$x$"):
        assert _parts(text, code=True) == [("code", text)]
    assert ("inline", "x") in _parts("```a`b\n$x$\n```", code=True)
    assert _parts("``` $x$", code=True) == [("text", "``` "), ("inline", "x")]


SPAN = "![i](http://a.example/i.png) http://a.example www.a.example me@a.example <http://a.example>"


@pytest.mark.parametrize(
    "text", [f"``{SPAN}`", f"```a`b\n{SPAN}\n```", f"~~~\n```\n~~~\n\n{SPAN}\n```", f"${SPAN}$"]
)
def test_code_and_mathematics_are_no_links_where_markdown_reads_text(text: str) -> None:
    # Without mathematics, so that both are text as far as their marks allow it.
    shown = to_markdown(text, markdown=True, latex=True)
    tags = set(re.findall(r"<(/?\w+)", MarkdownIt("commonmark", {"html": True}).render(shown)))
    assert tags <= {"p", "/p", "br", "pre", "/pre", "code", "/code"}
    # What GitHub's Markdown finds in text, however it is escaped.
    plain = shown.replace("\\", "")
    assert re.search(r"https?://|www\.|[\w.+-]@\w", plain) is None


@pytest.mark.parametrize("info", ["mermaid", " Mermaid x", "m&#101;rmaid", "-language-mermaid"])
@pytest.mark.parametrize("mark", ["```", "~~~", "- ```"])
def test_no_diagram(mark: str, info: str) -> None:
    """Streamlit takes the first `language-NAME` of the class that Markdown gives to code."""
    html = _rendered(f"{mark}{info}\ngraph TD\n{mark}", markdown=True)
    classes = re.findall(r'class="([^"]*)"', html)
    languages = [re.search(r"language-(\w+)", one, re.ASCII) for one in classes]
    assert all(found is None or found[1].lower() != "mermaid" for found in languages)


def test_no_fence_opens_in_mathematics() -> None:
    """Markdown ends the item's code where the text seems to begin a second one."""
    shown = to_markdown(
        "- ```\n  ```\n$$\n```\n\\[```mermaid x\\]\ngraph TD; A-->B\n", markdown=True, latex=True
    )
    assert "`` `mermaid x" in shown
    assert "```mermaid" not in shown
    assert to_markdown("$~~~~a$", markdown=True, latex=True) == "$~~ ~ ~a$"


def test_code_keeps_its_language_and_its_characters() -> None:
    text = "```python\nfor n in f[0](1):\n    a[1:2]\n```"
    shown = to_markdown(text, markdown=True, latex=True)
    assert shown.replace(JOINER, "") == text
    assert "a[1:2]" in shown
    assert 'class="language-python"' in _rendered(text, markdown=True)


@pytest.mark.parametrize(
    "piece",
    ["\\[", "\\(", "$$a", "\\begin{align}", "$a", "\\boxed{", "```x\n", "~~~", "```a`\n", "\\"],
)
@pytest.mark.parametrize("markdown", [False, True])
def test_many_openers_without_an_end_take_linear_time(piece: str, markdown: bool) -> None:
    """A second at most; a search from each opener to the end would take minutes."""
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    to_markdown(text, markdown=markdown, latex=True)
    assert time.process_time() - start < 20


def test_dollars_for_streamlit() -> None:
    assert to_markdown(r"\(a\)\(b\)", markdown=False, latex=True) == f"$a${JOINER}$b$"
    assert to_markdown("\\[a\n\nb\\]", markdown=False, latex=True) == "\n\n$$\na b\n$$\n\n"
    shown = to_markdown(r"$\text{\$5}$", markdown=True, latex=True)
    assert shown == '$\\text{{\\char"24}5}$'


def _rendered(text: str, *, markdown: bool) -> str:
    """What CommonMark with HTML, links and images switched on makes of the result."""
    return MarkdownIt("commonmark", {"html": True}).render(
        to_markdown(text, markdown=markdown, latex=False)
    )


HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![i](http://example.com/x.png)",
    "[l](javascript:alert(1))",
    "[a]: http://example.com\n\n[a]",
    "![a][b]\n\n[b]: http://example.com/x.png",
    "<http://example.com>",
    "a\n<b>\nc",
    r"\\<http://example.com>",
    r"\\<b>",
)


@pytest.mark.parametrize("markdown", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_no_html_no_link_and_no_image(text: str, markdown: bool) -> None:
    tags = set(re.findall(r"<(/?\w+)", _rendered(text, markdown=markdown)))
    assert tags <= {"p", "/p", "br"}


@pytest.mark.parametrize("markdown", [False, True])
@pytest.mark.parametrize("text", [":red[x]", ":smile:", "::name", ":material/home:", "a:b"])
def test_no_directive_and_no_emoji(text: str, markdown: bool) -> None:
    shown = to_markdown(text, markdown=markdown, latex=True)
    # A colon at the very end opens nothing.
    assert re.search(r"(?<!\\):(?=.)", shown) is None
    assert re.search(r":(?!\u2060|$)", shown) is None


@given(st.text(alphabet="ab1 \n\t<>&*_`#-+.!|[](){}~:=\\$\"'/@^%,;?", max_size=60))
def test_plain_text_is_shown_character_for_character(text: str) -> None:
    """CommonMark turned back into text gives what went in, but for white space at the edges."""
    html = _rendered(text, markdown=False)
    assert set(re.findall(r"<(/?\w+)", html)) <= {"p", "/p", "br"}
    back = re.sub(r"<[^>]+>", "", html).replace("\u2060", "")
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        back = back.replace(entity, character)
    assert "".join(back.split()) == "".join(text.split())


def test_lines_and_indentation_stay() -> None:
    html = _rendered("a\n\n  b\n# c", markdown=False)
    assert html.count("<br") == 3
    assert "\u00a0\u00a0b" in html
    assert "<h1>" not in html


def test_markdown_stays_markdown() -> None:
    html = _rendered("# Title\n\n- *one*\n- **two**", markdown=True)
    assert all(tag in html for tag in ("<h1>", "<li>", "<em>", "<strong>"))


def test_the_plain_view_is_escaped() -> None:
    assert plain_html("<b>&\n") == '<pre class="plain">&lt;b&gt;&amp;\n</pre>'


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("21", "$21$"),
        (r"\frac{1}{2}", r"$\frac{1}{2}$"),
        ("x+1", "$x+1$"),
        ("Monday", "Monday"),
        ("$5$", "$5$"),
        ("", "*none*"),
        (None, "*none*"),
    ],
)
def test_answers(answer: str | None, shown: str) -> None:
    assert answer_markdown(answer) == shown
