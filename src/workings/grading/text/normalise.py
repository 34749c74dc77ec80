"""One spelling for answers and golds; every step is a linear scan."""

from __future__ import annotations

import html
import re

from workings.grading.text.braces import peel
from workings.grading.text.symbols import to_latex

_DROPPED = re.compile(
    r"(?P<keep>\\\\|\\\$|\\[{}])"
    r"|\\(?:left|right|middle|[bB]igg?[lrm]?)(?![a-zA-Z])\s*\.?"
    r"|\\(?:vec|mathbf|boldsymbol)(?=\s+[a-zA-Z])"
    r"|\\(?:tiny|scriptsize|footnotesize|small|normalsize|large|Large|LARGE|huge|Huge)(?![a-zA-Z])"
    r"|\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|rm|bf|it|tt|sf|cal)(?![a-zA-Z])"
    r"|\\(?:checkmark|blacksquare|qed|square|Box)(?![a-zA-Z])\s*$"
    r"|\\(?:color|hspace|vspace|phantom)\s*\*?\{[^{}]{0,64}\}"
    r"|\\textcolor\s*\{[^{}]{0,64}\}|\\tag\s*\*?\{[^{}]{0,64}\}"
    r"|\$|\\[()\[\]]"
)
_SPACES = re.compile(
    r"(?P<keep>\\\\|\\[{}])|\\[,;:! ]|\\(?:quad|qquad|thinspace|enspace)(?![a-zA-Z])|~|[\s\x03]+"
)
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,\\!|\\,|\\!,|\x03)(?=\d{3}(?!\d))")
_FRACTION_MACRO = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_BARE_FRACTION = re.compile(
    r"\\frac\s*(?:(?P<a>\d)\s*(?P<b>\d)|(?P<c>\d)\s*(?=\{)|(?P<d>\{[^{}]*\})\s*(?P<e>\d))"
)
_CHOOSE = re.compile(
    r"\{?(?<![\\a-zA-Z])(?P<n>[^{}\\\s][^{}\\]{0,40}?)\s*\\choose(?![a-zA-Z])\s*"
    r"(?P<k>[^{}\\\s][^{}\\]{0,40})\}?"
)
_ROW_SPACE = re.compile(r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|cm|mm)\s*\]")
_ONE_ARROW = re.compile(r"\\(?:vec|overrightarrow)\s*(?:\{\s*([a-zA-Z]|\\[a-z]+)\s*\}|(?=\\[a-z]))")
_LONG_ARROW = re.compile(r"\\(?:vec|overrightarrow)(?=\s*\{\s*[A-Z]{2})")
_UNIT_VECTOR = re.compile(
    r"\\(?:hat|widehat)\s*\{?\s*(?:\\mathbf\s*\{)?\s*\\?(?P<name>[ijk])(?:math)?(?![a-zA-Z])[\s}]{0,3}"
)
_HTML_SCRIPT = re.compile(r"<su([pb])>([^<]{1,40})</su[pb]>")
_ENTITY = re.compile(r"&(?:[a-zA-Z]+\d?|#\d+);")
_TEXT_STOP = re.compile(r"\\text\s*\{\s*[.,;]\s*\}\s*$")
_BARE_OVER = re.compile(
    r"^\s*(-?)\s*([^{}\\+=,\s-][^{}\\+=,-]{0,39}?)\s*"
    r"\\over(?![a-zA-Z])\s*([^{}\\+=,\s-][^{}\\+=,-]{0,39})$"
)
_OVER = re.compile(r"\{([^{}]{1,200}?)\\over(?![a-zA-Z])(?=\s{0,200}[^{}\s])([^{}]{1,200})\}")
_STYLE_GROUP = re.compile(
    r"\\(?P<text>text|textbf|textit|textrm|textsf|texttt|textnormal|mbox|mathrm)\s*\{"
    r"|\\(?P<style>mathbf|mathit|mathsf|mathcal|mathscr|boldsymbol|bm|mathnormal|underline|emph|ensuremath|mathop|operatorname\*?(?=\s*\{\s*(?:sin|cos|tan|log|ln)\s*\}))\s*\{"
    r"|(?P<open>\{)|(?P<close>\})|\\.",
    re.DOTALL,
)
_NAMED = re.compile(
    r"(?P<name>[A-Za-z](?:_\{?\w{1,4}\}?)?(?:\s*\([a-z]\))?|\([a-z](?:\s*,\s*[a-z]){1,3}\))"
    r"\s*(?:=|\\in(?![a-zA-Z]))\s*(?=\S)"
)
_ONE_IN_BRACES = re.compile(r"([\^_])\s*\{\s*(\w)\s*\}(?!\d)")
_RUN_OF_SPACES = re.compile(r"\s{2,}")
r"""One space says as much, and patterns that skip spaces in several places would try every division
of a long run among them."""
_SPACE_BETWEEN_DIGITS = re.compile(r"(?<=\d)\s+(?=\d)")
_SPACE_AFTER_MACRO = re.compile(r"(\\[a-zA-Z]+)\s+(?=[a-zA-Z])")
_KEPT_SPACE = "\x01"  # no whitespace to str.split
_SYNONYM_OF = {
    "leq": r"\le", "geq": r"\ge", "neq": r"\ne", "leqslant": r"\le", "geqslant": r"\ge",
    "varnothing": r"\emptyset", "lbrace": r"\{", "rbrace": r"\}", "pounds": "£", "euro": "€",
    "yen": "¥", "%": "%", "wedge": r"\land", "vee": r"\lor", "colon": ":", "lnot": r"\neg",
    "dots": r"\ldots", "cdots": r"\ldots", "dotsc": r"\ldots", "rightarrow": r"\to",
}  # fmt: skip
_SYNONYMS = re.compile(rf"\\({'|'.join(_SYNONYM_OF)})(?![a-zA-Z])")


def normalise(text: str) -> str:
    r"""`text` as plain LaTeX: one sign per meaning, no style, one fraction form, clean edges.

    Words stay inside `\text{...}`, and nothing that carries meaning is cut.

    >>> normalise(r"$\dfrac12$.")
    '\\frac{1}{2}'
    >>> normalise(r"\textbf{1/2 or 1/3}")
    '\\text{1/2 or 1/3}'
    >>> normalise("10!"), normalise("–3"), normalise(r"1{,}234")
    ('10!', '-3', '1,234')
    """
    if "&" in text or "<su" in text:
        text = _without_html(text)
    text = _THOUSANDS.sub(",", to_latex(text))
    text = _DROPPED.sub(lambda match: match["keep"] or "", text)
    text = _SPACES.sub(lambda match: match["keep"] or " ", text)
    text = _SYNONYMS.sub(lambda match: _SYNONYM_OF[match[1]], text)
    if "\\vec" in text or "\\overrightarrow" in text:
        text = _LONG_ARROW.sub(r"\\overrightarrow", _ONE_ARROW.sub(r"\1", text))
    if "hat" in text:
        text = _UNIT_VECTOR.sub(r"\g<name>", text)
    if "\\\\" in text:
        text = _ROW_SPACE.sub(r"\\\\ ", text)
    text = _unwrap_styles(text)
    if "frac" in text:
        text = _BARE_FRACTION.sub(_braced_fraction, _FRACTION_MACRO.sub(r"\\frac", text))
    if "\\choose" in text:
        text = _CHOOSE.sub(r"\\binom{\g<n>}{\g<k>}", text)
    if "\\over" in text:
        text = _BARE_OVER.sub(r"\1\\frac{\2}{\3}", _OVER.sub(r"\\frac{\1}{\2}", text))
    trimmed = _trim(_TEXT_STOP.sub("", _RUN_OF_SPACES.sub(" ", text)))
    peeled = peel(trimmed) or ""
    return peeled if peeled == trimmed else _trim(peeled)


def canonical(text: str) -> str:
    r"""`normalise(text)` without spaces and `\text`: two answers with one form are the same answer.

    >>> canonical(r"\left( x + \frac12 \right)")
    '(x+\\frac{1}{2})'
    >>> canonical("1 2") == canonical("12")
    False
    """
    return compact(normalise(text))


def compact(text: str) -> str:
    r"""The canonical form of a text that has been normalised.

    >>> compact(r"5\text{ cm}")
    '5cm'
    """
    text = plain_text(text)
    text = _ONE_IN_BRACES.sub(r"\1\2", text)
    text = _SPACE_BETWEEN_DIGITS.sub(_KEPT_SPACE, text)
    text = _SPACE_AFTER_MACRO.sub(rf"\1{_KEPT_SPACE}", text)
    return "".join(text.split()).replace(_KEPT_SPACE, " ") if text else ""


def without_name(text: str) -> tuple[str | None, str]:
    r"""(name, rest) of a normalised text that gives its value a name; (None, text) of any other.

    >>> without_name("f(x) = 2x+1"), without_name(r"x \in [0,1]"), without_name("x=y=2")
    (('f(x)', '2x+1'), ('x', '[0,1]'), (None, 'x=y=2'))
    """
    match = _NAMED.match(text)
    if match is None or "=" in text[match.end() :]:
        return None, text
    return match["name"].replace(" ", ""), text[match.end() :].strip()


def plain_text(text: str) -> str:
    r"""`text` with every `\text{...}` unwrapped, its content set off by spaces.

    >>> plain_text(r"5\text{ or }6")
    '5 or 6'
    """
    if "\\text{" not in text:
        return text
    pieces: list[str] = []
    stack: list[bool] = []
    position = 0
    for match in _STYLE_GROUP.finditer(text):
        pieces.append(text[position : match.start()])
        position = match.end()
        if match["text"] or match["style"] or match["open"]:
            stack.append(bool(match["text"]))
            pieces.append(" " if match["text"] else match[0])
        elif match["close"] and stack:
            pieces.append(" " if stack.pop() else "}")
        else:
            pieces.append(match[0])
    pieces.append(text[position:])
    return _RUN_OF_SPACES.sub(" ", "".join(pieces).strip())


def _without_html(text: str) -> str:
    """`text` with HTML entities as signs and raised or lowered tags as LaTeX."""
    text = _HTML_SCRIPT.sub(lambda m: ("^" if m[1] == "p" else "_") + "{" + m[2] + "}", text)
    return _ENTITY.sub(lambda match: html.unescape(match[0]), text)


def _unwrap_styles(text: str) -> str:
    r"""`text` with `\mathbf{x}` as `x` and every macro of upright words as `\text{...}`."""
    if "\\" not in text:
        return text
    pieces: list[str] = []
    stack: list[str] = []
    position = 0
    for match in _STYLE_GROUP.finditer(text):
        pieces.append(text[position : match.start()])
        position = match.end()
        if match["text"]:
            stack.append("}")
            pieces.append("\\text{")
        elif match["style"]:
            stack.append("")
        elif match["open"]:
            stack.append("}")
            pieces.append("{")
        elif match["close"]:
            pieces.append(stack.pop() if stack else "}")
        else:
            pieces.append(match[0])
    pieces.append(text[position:])
    return "".join(pieces)


def _braced_fraction(match: re.Match[str]) -> str:
    if match["a"]:
        return rf"\frac{{{match['a']}}}{{{match['b']}}}"
    if match["c"]:
        return rf"\frac{{{match['c']}}}"
    return rf"\frac{match['d']}{{{match['e']}}}"


def _trim(text: str) -> str:
    r"""`text` without spaces, closing punctuation and Markdown stars around it.

    `!` and `...` stay; a row break at the end goes. Stars inside are a power or a product.
    """
    start, end = 0, len(text)
    while start < end:
        if text[start].isspace():
            start += 1
        elif (
            text[end - 1].isspace()
            or (text[end - 1] in ".,;:" and text[end - 3 : end] != "...")
            or text[end - 1] == "\\"
        ):
            end -= 1
        elif text[start] == text[end - 1] and text[start] in "*`":
            start, end = start + 1, end - 1
        else:
            break
    return text[start:end]
