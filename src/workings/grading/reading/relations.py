"""Equations and inequalities as text: their sides, the names that they give, their direction."""

from __future__ import annotations

import re

from workings.grading.reading.answers import Operator, Relation
from workings.grading.text.braces import split_top
from workings.grading.text.normalise import compact, plain_text

_RELATION = (
    r"\\(?:le|ge|ne|lt|gt|approx|sim|simeq|equiv)(?![a-zA-Z])|<=|>=|!=|[=<>]|\\in(?![a-zA-Z])"
)
_OPERATORS: dict[str, tuple[Operator, bool]] = {  # sign -> (operator, does it point to the left)
    "=": ("=", False), "<": ("<", False), ">": ("<", True), "<=": ("<=", False),
    ">=": ("<=", True), r"\le": ("<=", False), r"\ge": ("<=", True), r"\lt": ("<", False),
    r"\gt": ("<", True), r"\ne": ("!=", False), "!=": ("!=", False), r"\approx": ("~", False),
    r"\sim": ("~", False), r"\simeq": ("~", False),
}  # fmt: skip
_GREEK = (
    r"\\(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|nu|rho|sigma|tau|phi|varphi|omega|Delta"
    r"|Omega|Gamma|Phi|ell|eta|kappa|chi|psi|xi|zeta)(?![a-zA-Z])"
)
_INDEX = r"(?:_\{[^{}]{1,20}\}|_\w)?"
_ACCENT = r"\\(?:overline|vec|bar|hat|overrightarrow|mathbb|widehat|tilde|dot)"
_MARK = (
    rf"(?:{_ACCENT}\s*(?:\{{[^{{}}]{{1,20}}\}}|[A-Za-z]|{_GREEK})|(?:\\Delta\s*)?(?:{_GREEK}|[A-Z]{{2,4}}|[A-Za-z]))"
    rf"{_INDEX}"
)
_ARGUMENTS = r"(?:\((?:[^()]|\([^()]*\)){1,40}\)|\[[^\[\]]{1,40}\]|\\\{[^{}]{1,40}\\\})"
_QUANTITY = (
    r"(?:\\(?:operatorname|mathbb|mathrm|text)\s*\{\s*[A-Za-z]+\s*\}"
    r"|\\(?:det|gcd|dim|ker|deg|Pr|max|min|arg)(?![a-zA-Z]))"
)
_NAME = re.compile(
    rf"{_MARK}"
    rf"|(?:{_MARK})(?:'{{1,3}}|\^\{{?(?:-1|\\prime|\([\dn]\))\}}?)?\s*{_ARGUMENTS}"
    rf"|[yfgh]{_INDEX}'{{1,3}}|[A-Z]\^\{{?(?:-1|T)\}}?"
    rf"|{_QUANTITY}{_INDEX}\s*(?:{_ARGUMENTS}|{_MARK})"
    rf"|\\(?:sin|cos|tan|cot)\s*\{{?\s*(?:[A-Z]|{_GREEK}|\\angle\s*[A-Z]{{1,3}})\s*\}}?"
    rf"|(?:\||\\\|)\s*{_MARK}(?:\s*\\c[ua]p\s*{_MARK})*\s*(?:\||\\\|)"
    r"|\\frac\{(?:d|\\partial)[^{}]{0,8}\}\{(?:d|\\partial)[^{}]{1,8}\}"
    rf"|\(\s*{_MARK}(?:\s*,\s*{_MARK}){{1,7}}\s*\)"
    r"|m?\s*\\(?:angle|triangle)\s*[A-Z]{1,3}|m\s*\\angle\s*[A-Z]{1,3}"
)
_ARGUMENT = re.compile(r"\(\\?[a-z]+(?:,[a-z]+)*\)$")
"""Of a function: "f(x)" and "f(t)" are named f, but "Q(50)" is not "Q(80)"."""
_BARS = re.compile(r"\|([A-Z]{2})\|")
_ONE_LETTER = re.compile(r"\\text\{\s*([A-Za-z])\s*\}")
_LABEL = re.compile(r"[^\W\d_]{3,}(?:[\s'-]+[^\W\d_]+){0,5}")
_NO_LABEL = re.compile(
    r"\b(?:sin|cos|tan|log|ln|sqrt|pi|exp|or|and|not|lambda|return|print|if|for|let|suppose)\b"
)
_CONSTANT_MACROS = re.compile(
    r"\\(?:frac|sqrt|pi|cdot|times|infty|ln|log|lg|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|circ"
    r"|div|pm|gcd|max|min|binom|exp|lfloor|rfloor|lceil|rceil|bmod|operatorname\{lcm\})"
    r"(?![a-zA-Z])"
)


def split_relation(text: str) -> tuple[list[str], list[str]]:
    r"""(sides, signs) of `text` at the relations of its top level; one side where it has none.

    >>> split_relation(r"0 < x \le 5")
    (['0', 'x', '5'], ['<', '\\le'])
    """
    return split_top(text, _RELATION)


def oriented(sides: list[str], signs: list[str]) -> Relation | None:
    r"""The chain with every relation pointing to the right; None for one that mixes directions.

    >>> oriented(["x", "5"], [">"])
    Relation(sides=('5', 'x'), operators=('<',))
    """
    if not all(sides) or not all(sign in _OPERATORS for sign in signs):
        return None
    operators = [_OPERATORS[sign][0] for sign in signs]
    left = [_OPERATORS[sign][1] for sign in signs if _OPERATORS[sign][0] in ("<", "<=")]
    if all(left) and left:
        return Relation(tuple(reversed(sides)), tuple(reversed(operators)))
    return None if any(left) else Relation(tuple(sides), tuple(operators))


def name_in(text: str) -> str | None:
    r"""The name that `text` is, in the form by which names are compared; None where it is none.

    The argument of a function is no part of its name. Sums, products and powers are no names.

    >>> name_in("f(x)"), name_in(r"\text{Area}"), name_in("x_{1}"), name_in(r"\cos A")
    ('f', 'area', 'x_1', '\\cosA')
    >>> name_in("a^2+b"), name_in("2x"), name_in("ab")
    (None, None, None)
    """
    text = _ONE_LETTER.sub(r"\1", text)
    if _NAME.fullmatch(text) and text not in ("e", "i") and not _occurs_in_itself(text):
        name = _BARS.sub(r"\1", compact(text).replace(" ", ""))
        return _ARGUMENT.sub("", name) or name
    plain = " ".join(plain_text(text).split())
    if _LABEL.fullmatch(plain) and not _NO_LABEL.search(plain) and "\\" not in plain:
        return plain.lower()
    return None


def _occurs_in_itself(text: str) -> bool:
    """True for "n(n-1)", which is a product and no function of n-1."""
    name, bracket, arguments = text.partition("(")
    return bool(bracket) and len(name.strip()) == 1 and name.strip() in arguments


def names_in_tuple(name: str) -> tuple[str, ...] | None:
    """The names of "(x,y)"; None for any other name."""
    if not (name.startswith("(") and name.endswith(")")):
        return None
    return tuple(piece.strip() for piece in name[1:-1].split(","))


def is_constant(text: str) -> bool:
    r"""True where `text` holds no letter that could stand for a variable.

    >>> is_constant(r"\frac{\pi}{2}+\sqrt{3}"), is_constant("2a")
    (True, False)
    """
    rest = _CONSTANT_MACROS.sub(" ", text)
    letters = {sign for sign in rest if sign.isalpha()}
    return letters <= {"e"} and "\\" not in rest
