r"""LaTeX and plain infix text to a tree, by precedence climbing over a linear list of tokens.

Where writers differ, the reading is the one that a mathematician takes without a question; where
two readings are as likely, the text is unreadable. In particular:

- `3\frac{1}{2}` and `3 1/2` are three and a half; `3\frac{\pi}{2}` and `3\frac{5}{2}` products.
- `x^10`, `\sqrt12` and `2^-3` take the whole number, although LaTeX sets only its first digit.
- `1/2x` is (1/2)x. `a/bc`, `a / b c`, `x2`, `2^{3}!` and, with a backslash or braces about, `x^2^3`
  have two readings; in plain text `2^3^2` binds to the right, as `2**3**2` always does.
- `\sin 2x` and `\sin x\cos y`: see `forms`. `f(x+1)`, `g(x+1)`, `v(t)` and `y(0)` apply a function
  without definition; `k(x+1)` is a product.
- `AB` is one symbol, `ab` a product; `e` and `i` are constants unless they index a sum.
- `C_5^2`, `C(5,2)`, `{}_nC_k`, `{}^nC_k` are binomials; with `A` or `P` they count arrangements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from workings.grading.expression.forms import FORMS, apply_function, choice_behind_index
from workings.grading.expression.identifiers import CHOICES, identifier, with_marks
from workings.grading.expression.names import VECTORS
from workings.grading.expression.numerals import number, numeral
from workings.grading.expression.tokens import Token, tokenize
from workings.grading.expression.tree import (
    Call,
    Constant,
    Node,
    Number,
    Power,
    Quotient,
    Symbol,
    Unreadable,
    negated,
    product,
    quotient,
    total,
    walk,
)

MAX_DEPTH = 64
"""Of the finished tree."""
_MAX_NESTING = 100  # of operands while reading: a root and its braces are two

_CLOSING = {
    "(": ")", "[": "]", "{": "}", "\\{": "\\}", "|": "|", "\\|": "\\|", "\\lvert": "\\rvert",
    "\\lVert": "\\rVert", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil",
}  # fmt: skip
_FUNCTION_OF_BRACKET = {
    "|": "abs", "\\|": "abs", "\\lvert": "abs", "\\lVert": "abs", "\\lfloor": "floor",
    "\\lceil": "ceil",
}  # fmt: skip
_OPERANDS = frozenset({"symbol", "constant", "function"})
_DEGREE = Quotient(Constant("pi"), Number(Fraction(180)))
_PERCENT = Number(Fraction(100))
_CHOICE = re.compile(r"(?P<name>[CPA])_(?P<lower>\d+|[\dnm+-]*[nm][\dnm+-]*)")


def parse_expression(text: str) -> Node:
    r"""The tree of `text`, which `normalise` has cleaned; Unreadable unless all of it has a place.

    >>> from workings.grading.expression.tree import to_text
    >>> to_text(parse_expression(r"-2\frac{1}{4}x^{2}\sin 2x")), to_text(parse_expression("1/2n!"))
    ('-9/4*x^2*sin(2*x)', '1/2*factorial(n)')
    """
    node = Parser(text).whole()
    if any(depth > MAX_DEPTH for _, depth in walk(node)):
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels")
    return node


class Parser:
    """A cursor over the tokens of one text, with the grammar of operators and operands."""

    def __init__(self, text: str, bound: Sequence[str] = ()) -> None:
        self.tokens = tokenize(text)
        self.at = 0
        self.depth = 0
        self.plain = "\\" not in text and "{" not in text
        self.bound = list(bound)
        self.brackets: list[tuple[str, bool]] = [("", False)]
        """The partner of every open bracket, and whether commas separate in it."""

    @property
    def token(self) -> Token:
        """The token to be read next."""
        return self.tokens[self.at]

    @property
    def before(self) -> Token:
        """The token read last."""
        return self.tokens[self.at - 1]

    def upcoming(self, count: int) -> list[str]:
        """The texts of the next `count` tokens, fewer at the end."""
        return [token.text for token in self.tokens[self.at : self.at + count]]

    def take(self) -> Token:
        """The next token, read; the end is never passed."""
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def sees(self, *marks: str) -> bool:
        """True where one of these marks comes next."""
        token = self.tokens[self.at]
        return token.text in marks and token.kind == "mark"

    def takes(self, *marks: str) -> bool:
        """As `sees`, and then the mark has been read."""
        seen = self.sees(*marks)
        self.at += seen
        return seen

    def expect(self, mark: str) -> None:
        """Read `mark`, or raise."""
        if not self.takes(mark):
            raise Unreadable(f"{mark} expected, found {self.token.text or 'the end'}")

    def whole(self) -> Node:
        """The tree of the whole text."""
        node = self.expression()
        if self.token.kind != "end":
            raise self.unexpected()
        return node

    def unexpected(self) -> Unreadable:
        """The error that the next token has no place where it stands."""
        return Unreadable(f"{self.token.text or 'the end'} has no place here")

    def expression(self) -> Node:
        """A sum of terms."""
        terms = [self.term()]
        while self.sees("+", "-"):
            terms.append(self.term())
        return total(terms)

    def takes_minus(self) -> bool:
        """True where the signs that come next, now read, make a minus."""
        minus = False
        while self.sees("+", "-"):
            minus ^= self.take().text == "-"
        return minus

    def term(self) -> Node:
        """Factors behind any signs, multiplied and divided from left to right."""
        minus = self.takes_minus()
        above, below = [self.factor()], list[Node]()
        while True:
            if self.takes("*"):
                above.append(self.signed_factor())
            elif self.takes("\\times"):
                above.append(self.signed_factor())
                if _is_vector(above[-2]) and _is_vector(above[-1]):
                    raise Unreadable("a product of vectors depends on their order")
            elif self.takes("/"):
                slash, token = self.before, self.token
                divisor = self.signed_factor()
                self.refuse_two_readings(token, slash, above)
                folded = quotient(above[-1], divisor)
                if isinstance(folded, Number):
                    above[-1] = folded
                else:
                    below.append(divisor)
            elif self.takes("\\bmod"):
                left = negated(_ratio(above, below)) if minus else _ratio(above, below)
                above, below, minus = [Call("mod", (left, self.signed_factor()))], [], False
            elif self.is_times_sign():
                self.take()
                above.append(self.factor())
            elif self.starts_factor():
                above.append(self.factor())
            else:
                break
        return negated(_ratio(above, below)) if minus else _ratio(above, below)

    def refuse_two_readings(self, divisor: Token, slash: Token, above: list[Node]) -> None:
        """Raise for `a/bc` and `a / b c`; `a/b c` and `1/2x` have one reading."""
        kind, text, start, _ = self.token
        bare = divisor.kind in ("symbol", "constant", "number")
        follows = kind in ("symbol", "constant") or text in ("\\sqrt", "\\frac", "(", "[")
        macro = self.before.kind == "symbol" and self.before.end - self.before.start > 1
        set_apart = slash.end == divisor.start and start > self.before.end and not macro
        of_numbers = divisor.kind == "number" and all(isinstance(part, Number) for part in above)
        if bare and follows and not set_apart and not of_numbers:
            raise Unreadable("a product behind a division sign has two readings")

    def is_times_sign(self) -> bool:
        """True at the x of `1.5 x 10^8`."""
        texts = self.upcoming(3)
        return self.before.kind == "number" and texts in (["x", "10", "^"], ["x", "10", "**"])

    def starts_factor(self) -> bool:
        """True where an operand follows the last one without a sign between them."""
        kind, text, start, _ = self.token
        if kind == "number":
            if self.before.kind == "symbol" and self.before.end == start:
                raise Unreadable("a number at the foot of a letter has two readings")
            return self.before.kind != "number" and self.before.text != "%"
        if kind == "mark":
            return (text in _CLOSING and text != self.brackets[-1][0]) or text in FORMS
        return kind in _OPERANDS

    def signed_factor(self) -> Node:
        """A factor behind any number of signs."""
        return negated(self.factor()) if self.takes_minus() else self.factor()

    def factor(self) -> Node:
        """An operand and all that is set behind it."""
        node, raised = self.operand(), False
        while True:
            if self.sees("^", "**"):
                if raised:
                    raise Unreadable("two exponents side by side")
                self.take()
                node, raised = self.power(node, self.script()), True
            elif self.takes("!"):
                if raised:
                    raise Unreadable("a factorial behind an exponent has two readings")
                node = Call("double_factorial" if self.takes("!") else "factorial", (node,))
            elif self.takes("%"):
                node = quotient(node, _PERCENT)
            elif self.takes("degree"):
                node = product([node, _DEGREE])
            elif self.sees("_") and isinstance(node, Power) and isinstance(node.base, Symbol):
                node = self.power(Symbol(with_marks(self, node.base.name)), node.exponent)
            else:
                return node

    def power(self, base: Node, exponent: Node) -> Node:
        """`base` to the `exponent`, unless the two are a binomial such as `C_5^2`."""
        choice = _CHOICE.fullmatch(base.name) if isinstance(base, Symbol) else None
        if choice is not None:
            lower = Parser(choice["lower"], self.bound).whole()
            numbers = isinstance(lower, Number) and isinstance(exponent, Number)
            if not numbers or lower.value >= exponent.value >= 0:  # type: ignore[union-attr]
                return Call(CHOICES[choice["name"]], (lower, exponent))
        return Power(base, exponent)

    def script(self) -> Node:
        """What stands behind `^`: a group or one number, letter or macro, behind any signs."""
        self.descend()
        minus = self.takes_minus()
        node = numeral(self.take().text) if self.token.kind == "number" else self.operand()
        if self.sees("**") or (self.plain and self.sees("^")):
            self.take()
            node = Power(node, self.script())
        self.depth -= 1
        return negated(node) if minus else node

    def operand(self) -> Node:
        """A number, a name, a bracket or a form such as a fraction."""
        self.descend()
        kind, text, _, _ = self.token
        if kind == "number":
            node = number(self)
        elif kind == "symbol":
            node = identifier(self)
        elif kind == "constant":
            self.take()
            node = Constant("pi" if text == "pi" else "infinity")
        elif kind == "function":
            node = apply_function(self)
        elif self.sees("_", "^") or self.upcoming(2) == ["{", "}"]:
            node = choice_behind_index(self)
        elif kind == "mark" and text in FORMS:
            node = FORMS[text](self)
        elif kind == "mark" and text in _CLOSING:
            node = self.enclosed()[0]
            if text in _FUNCTION_OF_BRACKET:
                node = Call(_FUNCTION_OF_BRACKET[text], (node,))
        else:
            raise self.unexpected()
        self.depth -= 1
        return node

    def descend(self) -> None:
        """Count one more level of operands; the caller takes it back."""
        self.depth += 1
        if self.depth > _MAX_NESTING:
            raise Unreadable(f"nested deeper than {MAX_DEPTH} levels")

    def enclosed(self, *, listing: bool = False) -> tuple[Node, ...]:
        """The expression in the bracket here, or all that commas separate in it if `listing`."""
        closer = _CLOSING.get(self.take().text)
        if closer is None:
            raise Unreadable("brackets are missing")
        self.brackets.append((closer, listing))
        nodes = [self.expression()]
        while listing and self.takes(","):
            nodes.append(self.expression())
        self.brackets.pop()
        self.expect(closer)
        return tuple(nodes)

    def argument(self) -> Node:
        r"""The group or token behind `\frac`; of a number without braces, its first digit."""
        token = self.token
        if token.kind != "number" or not token.text.isdigit():
            return self.operand()
        if len(token.text) == 1:
            self.take()
        else:
            rest = token._replace(text=token.text[1:], start=token.start + 1)
            self.tokens[self.at] = rest
        return Number(Fraction(int(token.text[0])))


def _ratio(above: list[Node], below: list[Node]) -> Node:
    return quotient(product(above), product(below)) if below else product(above)


def _is_vector(node: Node) -> bool:
    return any(isinstance(part, Symbol) and part.name.startswith(VECTORS) for part, _ in walk(node))
