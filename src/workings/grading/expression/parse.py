r"""LaTeX and plain infix text to a tree, by precedence climbing over a linear list of tokens.

Where writers differ, the reading is the one that a mathematician would take without a question;
where two readings are as likely, the text is unreadable. In particular:

- `\frac12`, `3\frac{1}{2}` and `3 1/2` are a half and three and a half; `3\frac{\pi}{2}` a product.
- `x^10`, `\sqrt12` and `2^-3` take the whole number, although LaTeX sets only its first digit.
- `1/2x` is (1/2)x; `a/bc` without a space is unreadable.
- `\sin 2x`, `\sin x\cos y`, `\sin(x)y`: an argument without brackets is a product of numbers and
  letters; it ends at the next function, bracket, sign or, after a letter, at `e`, `i` or a root.
  `\sin 2\pi/3` takes the divisor in, `\ln x/x` and `\ln 2/\ln 3` do not, `\sin x/2` is unreadable.
- `\sin^2 x` is a power, `\sin^{-1} x` the arcsine, `\ln(x)^2` unreadable.
- `AB` is one symbol, `ab` a product; `e` and `i` are constants unless they index a sum.
- `f(x)` and `g(x)` apply a function without definition; `k(x)` is a product.
- `C_5^2`, `\mathrm{C}_n^k`, `{}^nC_k`, `_nC_k`, `C(5,2)` are binomials, `A` and `P` arrangements.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from workings.grading.expression.names import (
    ACCENTS,
    INVERSES,
    LISTING,
    LOGARITHMS,
)
from workings.grading.expression.numerals import read_numeral
from workings.grading.expression.tokens import Token, tokenize
from workings.grading.expression.tree import (
    APPLIED,
    BOUND,
    Call,
    Constant,
    Node,
    Number,
    Power,
    Product,
    Quotient,
    Series,
    Symbol,
    Unreadable,
    negated,
    product,
    quotient,
    total,
    walk,
)

MAX_DEPTH = 64
"""Of nested operands while reading, and of the finished tree."""

_CLOSING = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}
_CLOSING_MACROS = {"lfloor": "rfloor", "lceil": "rceil", "lvert": "rvert", "lVert": "rVert"}
_BARS = frozenset({"|", "\\|"})
_BAR_MACROS = {"vert": "|", "mid": "|", "Vert": "\\|", "lbrace": "\\{", "rbrace": "\\}"}
_ATOM_MACROS = frozenset({"frac", "dfrac", "tfrac", "sqrt", "binom", "sum", "prod"}) | ACCENTS
_TIMES = frozenset({"cdot", "times", "ast"})
_DEGREE = Quotient(Constant("pi"), Number(Fraction(180)))
_UNDEFINED_FUNCTIONS = frozenset("fgFG")
_CHOOSING = {"C": "binomial", "P": "permutations", "A": "permutations"}


def parse_expression(text: str) -> Node:
    r"""The tree of `text`, which `normalise` has cleaned; Unreadable unless all of it has a place.

    >>> from workings.grading.expression.tree import to_text
    >>> to_text(parse_expression(r"-2\frac{1}{4}x^{2}\sin 2x")), to_text(parse_expression("1/2n!"))
    ('-9/4*x^2*sin(2*x)', '1/2*factorial(n)')
    """
    node = _Parser(text).whole()
    if any(depth > MAX_DEPTH for _, depth in walk(node)):
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self.at = 0
        self.depth = 0
        self.plain = "\\" not in text and "{" not in text
        self.closers: list[str] = [""]  # the innermost open bracket's partner
        self.bound: list[str] = []
        self.listing = False  # inside `\max(`: commas separate

    # --- tokens ---

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def sees(self, *marks: str) -> bool:
        token = self.tokens[self.at]
        return token.kind == "mark" and token.text in marks

    def sees_macro(self, *names: str) -> bool:
        token = self.tokens[self.at]
        return token.kind == "macro" and token.text in names

    def expect(self, closer: str) -> None:
        token = self.take()
        if token.kind not in ("mark", "macro") or token.text != closer:
            raise Unreadable(f"expected {closer!r}, found {token.text or 'the end'!r}")

    def unexpected(self) -> Unreadable:
        return Unreadable(f"{self.token.text or 'the end'!r} has no place here")

    # --- sums, products, powers ---

    def whole(self) -> Node:
        node = self.expression()
        if self.token.kind != "end":
            raise self.unexpected()
        return node

    def expression(self) -> Node:
        terms: list[Node] = []
        while True:
            negative = self.signs()
            term = self.term()
            terms.append(negated(term) if negative else term)
            if not self.sees("+", "-"):
                return total(terms)

    def signs(self) -> bool:
        negative = False
        while self.sees("+", "-"):
            negative ^= self.take().text == "-"
        return negative

    def term(self) -> Node:
        numerators, denominators = [self.factor()], list[Node]()
        while True:
            if self.sees("*") or self.sees_macro(*_TIMES):
                self.take()
                numerators.append(self.signed_factor())
            elif self.sees("/") or self.sees_macro("div"):
                self.take()
                start = self.at
                denominators.append(self.signed_factor())
                self.refuse_ambiguous_divisor(numerators, start)
            elif self.sees_macro("bmod"):
                self.take()
                left = _ratio(numerators, denominators)
                numerators, denominators = [Call("mod", (left, self.signed_factor()))], []
            elif self.is_times_sign():
                self.take()
            elif self.starts_factor():
                numerators.append(self.factor())
            else:
                return _ratio(numerators, denominators)

    def signed_factor(self) -> Node:
        return negated(self.factor()) if self.signs() else self.factor()

    def refuse_ambiguous_divisor(self, numerators: list[Node], start: int) -> None:
        """Raise for `a/bc`: a letter follows the divisor `b`, which has no brackets, at once."""
        divisor, following, last = self.tokens[start], self.token, self.tokens[self.at - 1]
        unspaced = following.start == last.end or (last.text.isalpha() and len(last.text) > 1)
        if (
            following.kind in ("symbol", "constant")
            and divisor.kind in ("symbol", "constant", "number")
            and unspaced
            and not all(isinstance(factor, Number) for factor in numerators)
        ):
            raise Unreadable("a product behind a division sign has two readings")

    def is_times_sign(self) -> bool:
        """True at the x of `1.5 x 10^8`."""
        return (
            self.token.text == "x"
            and self.tokens[self.at - 1].kind == "number"
            and self.peek().text == "10"
            and self.peek(2).text in ("^", "**")
        )

    def starts_factor(self) -> bool:
        kind, text, _, _ = self.token
        if kind in ("symbol", "constant", "function"):
            return True
        if kind in ("number", "repeating", "scientific"):
            before = self.tokens[self.at - 1]
            return before.kind not in ("number", "repeating", "scientific") and before.text != "%"
        if kind == "mark":
            if text in _BARS:
                return self.closers[-1] != text
            return text in _CLOSING
        if kind == "macro":
            if text in _BAR_MACROS:
                return text != "mid" and self.closers[-1] != _BAR_MACROS[text]
            return text in _ATOM_MACROS or text in _CLOSING_MACROS
        return False

    def factor(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH} levels")
        node = self.postfix(self.primary())
        self.depth -= 1
        return node

    def postfix(self, node: Node) -> Node:
        raised = False
        while self.token.kind in ("mark", "macro"):
            if self.sees("^", "**"):
                if raised:
                    raise Unreadable("two exponents side by side")
                self.take()
                if self.took_degree():
                    node = product([node, _DEGREE])
                else:
                    node, raised = _power(node, self.exponent()), True
            elif self.sees("!"):
                if raised:
                    raise Unreadable("a factorial behind an exponent has two readings")
                self.take()
                double = self.sees("!")
                if double:
                    self.take()
                node = Call("double_factorial" if double else "factorial", (node,))
            elif self.sees("%"):
                self.take()
                node = quotient(node, Number(Fraction(100)))
            elif self.sees_macro("degree"):
                self.take()
                node = product([node, _DEGREE])
            elif self.sees("_") and isinstance(node, Power) and isinstance(node.base, Symbol):
                self.take()  # x^2_1
                node = _power(Symbol(f"{node.base.name}_{self.raw()}"), node.exponent)
            else:
                return node
        return node

    def took_degree(self) -> bool:
        r"""True where `\circ` or `{\circ}` stood behind `^`; it has been taken."""
        braced = self.sees("{")
        macro = self.peek() if braced else self.token
        if macro.kind != "macro" or macro.text != "circ":
            return False
        self.at += 3 if braced else 1
        if braced and self.tokens[self.at - 1].text != "}":
            raise self.unexpected()
        return True

    def exponent(self) -> Node:
        """What stands behind `^`: a group, or one number, letter, macro; signs in front."""
        negative = self.signs()
        if self.token.kind == "number":
            node: Node = Number(read_numeral(self.take().text))
        elif self.token.kind == "function" and not self.plain:
            raise self.unexpected()
        else:
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise Unreadable(f"nested deeper than {MAX_DEPTH} levels")
            node = self.primary()
            self.depth -= 1
        if self.sees("^", "**") and (self.plain or self.sees("**")):
            self.take()
            node = Power(node, self.exponent())  # a^b^c without braces
        return negated(node) if negative else node

    # --- operands ---

    def primary(self) -> Node:
        kind, text, _, _ = self.token
        if kind in ("number", "repeating", "scientific"):
            return self.numeral()
        if kind == "symbol":
            return self.symbol()
        if kind == "constant":
            self.take()
            return Constant("pi" if text == "pi" else "infinity")
        if kind == "function":
            return self.function()
        if kind == "words":
            raise Unreadable(f"{text!r} is a word")
        if kind == "mark":
            if text in _BARS:
                return Call("abs", (self.group(text),))
            if text in ("_", "^") or (text == "{" and self.peek().text == "}"):
                return self.chosen_before()
            if text in _CLOSING:
                return self.group(_CLOSING[text])
        if kind == "macro":
            return self.macro(text)
        raise self.unexpected()

    def macro(self, name: str) -> Node:
        if name in ("frac", "dfrac", "tfrac"):
            self.take()
            top = self.argument()
            return quotient(top, self.argument())
        if name == "sqrt":
            return self.root()
        if name == "binom":
            self.take()
            if self.sees("("):
                return Call("binomial", self.listed(2))
            top = self.argument()
            return Call("binomial", (top, self.argument()))
        if name in ("sum", "prod"):
            return self.series("sum" if name == "sum" else "product")
        if name in ACCENTS:
            return self.accented()
        if name in _BAR_MACROS:
            mark = _BAR_MACROS[name]
            if mark in _BARS and name != "mid":
                self.tokens[self.at] = self.token._replace(kind="mark", text=mark)
                return self.primary()
        if name in _CLOSING_MACROS:
            inner = self.group(_CLOSING_MACROS[name])
            function = {"lfloor": "floor", "lceil": "ceil"}.get(name, "abs")
            return Call(function, (inner,))
        raise Unreadable(f"\\{name} is no part of an expression")

    def group(self, closer: str) -> Node:
        """The expression between the bracket here and `closer`."""
        self.take()
        self.closers.append(closer)
        listing, self.listing = self.listing, False
        node = self.expression()
        self.listing = listing
        self.closers.pop()
        if self.token.kind == "macro" and _BAR_MACROS.get(self.token.text) == closer:
            self.take()
        else:
            self.expect(closer)
        return node

    def argument(self) -> Node:
        r"""The group or single token behind `\frac` and `\binom`; of a number, its first digit."""
        token = self.token
        if token.kind == "number" and token.text.isdigit():
            if len(token.text) == 1:
                self.take()
            else:
                rest = token._replace(text=token.text[1:], start=token.start + 1)
                self.tokens[self.at] = rest
            return Number(Fraction(int(token.text[0])))
        return self.operand()

    def operand(self) -> Node:
        """A group or one number, letter or macro, without what may be set behind it."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH} levels")
        node = self.primary()
        self.depth -= 1
        return node

    def root(self) -> Node:
        self.take()
        degree = self.group("]") if self.sees("[") else None
        radicand = self.operand()
        return Call("sqrt", (radicand,)) if degree is None else Call("root", (radicand, degree))

    def numeral(self) -> Node:
        token = self.take()
        text = token.text
        if token.kind == "scientific":
            return self.scientific(token)
        if token.kind == "number":
            text = self.with_thousands(token)
            if text.isdigit():
                fraction = self.mixed_fraction()
                if fraction is not None:
                    return Number(read_numeral(text) + fraction)
            elif text.endswith(".") and self.sees("(") and self.token.start == token.end:
                raise Unreadable("a period in brackets has two readings")
        return Number(read_numeral(text))

    def with_thousands(self, token: Token) -> str:
        """The numeral that begins with `token`: groups of three behind commas belong to it."""
        text, end = token.text, token.end
        while not self.listing and self.sees(",") and text.isdigit() and len(token.text) <= 3:
            comma, group = self.token, self.peek()
            whole = group.text.partition(".")[0]
            adjacent = comma.start == end and group.start == comma.end
            if group.kind != "number" or len(whole) != 3 or not adjacent:
                break
            text, end = text + group.text, group.end
            self.at += 2
        return text

    def mixed_fraction(self) -> Fraction | None:
        r"""The proper fraction here, as `\frac{1}{2}` or `1/2`, of the mixed number being read."""
        if self.sees_macro("frac"):
            at, marks = self.at, "{0}{0}"
        elif self.token.kind == "number" and self.peek().text == "/":
            at, marks = self.at - 1, "0/0"
        else:
            return None
        pattern = self.tokens[at + 1 : at + 1 + len(marks)]
        if len(pattern) < len(marks):
            return None
        numbers: list[int] = []
        for token, mark in zip(pattern, marks, strict=True):
            if mark == "0" and token.kind == "number" and token.text.isdigit():
                numbers.append(int(read_numeral(token.text)))
            elif token.text != mark:
                return None
        numerator, denominator = numbers
        if not 0 < numerator < denominator:
            return None
        self.at = at + 1 + len(marks)
        return Fraction(numerator, denominator)

    def scientific(self, token: Token) -> Node:
        """`1.5e-4`, `3e8`, `2E-3`; inside a longer text `2e-3` is 2e - 3."""
        mantissa, mark, exponent = token.text.partition("E" if "E" in token.text else "e")
        number = Number(read_numeral(mantissa))
        if mark == "e" and exponent[0] in "+-" and "." not in mantissa and len(self.tokens) > 2:
            rest: Node = Number(read_numeral(exponent[1:]))
            following = self.token
            if following.text in ("!", "^", "**", "%") or self.starts_factor():
                raise Unreadable(f"{token.text!r} has two readings")
            rest = negated(rest) if exponent[0] == "-" else rest
            return total([product([number, Constant("e")]), rest])
        return Product((number, Power(Number(Fraction(10)), Number(Fraction(int(exponent[:9]))))))

    # --- symbols ---

    def symbol(self) -> Node:
        token = self.take()
        name = token.text
        if name in self.bound and not self.sees("_"):
            return Symbol(BOUND + name)
        choosing = self.chosen(token)
        if choosing is not None:
            return choosing
        name = self.with_marks(name)
        if name == "e" or name == "i":
            return Constant("e" if name == "e" else "i")
        if (
            name[0] in _UNDEFINED_FUNCTIONS
            and self.sees("(")
            and name.rstrip("'")[1:2] in ("", "_")
        ):
            return Call(name + APPLIED, self.listed())
        if name[0] in _UNDEFINED_FUNCTIONS and self.sees("^") and self.is_inverse():
            raise Unreadable("an inverse function has no definition")
        return Symbol(name)

    def is_inverse(self) -> bool:
        """True at the exponent of `f^{-1}(x)`."""
        texts = [token.text for token in self.tokens[self.at : self.at + 6]]
        return texts[1:6] == ["{", "-", "1", "}", "("]

    def with_marks(self, name: str) -> str:
        """`name` with the subscript and primes that stand here."""
        while True:
            if self.sees("_"):
                self.take()
                name = f"{name}_{self.raw()}"
            elif self.sees("'"):
                self.take()
                name += "'"
            elif self.sees("^") and self.primes():
                name += "'" * self.primes()
                braced = self.peek().text == "{"
                self.at += 1 + self.primes() + 2 * braced
            else:
                return name

    def primes(self) -> int:
        r"""How many primes the exponent here consists of; 0 where it is another exponent."""
        braced = self.peek().text == "{"
        count, at = 0, 2 if braced else 1
        while self.peek(at).text in ("prime", "'"):
            count, at = count + 1, at + 1
        return count if not braced or self.peek(at).text == "}" else 0

    def raw(self) -> str:
        """The text of the group or token here, for use in a name."""
        token = self.take()
        if token.kind in ("symbol", "number", "constant", "function", "words"):
            return token.text
        if token.kind == "macro":
            return "\\" + token.text
        if token.text != "{":
            raise Unreadable(f"{token.text or 'the end'!r} is no subscript")
        pieces: list[str] = []
        depth = 1
        while True:
            token = self.take()
            depth += (token.text == "{") - (token.text == "}")
            if token.kind == "end" or (depth == 0 and not pieces):
                raise Unreadable("a subscript has no end or nothing in it")
            if depth == 0:
                return "".join(pieces)
            if token.text not in "{}":
                pieces.append(token.text)

    def accented(self) -> Node:
        accent = self.take().text
        start = self.at
        content = self.raw()
        between = self.tokens[start : self.at]
        if not any(token.kind == "symbol" for token in between) or any(
            (token.kind == "mark" and token.text not in "{}_',")
            or token.kind in ("function", "words")
            for token in between
        ):
            raise Unreadable(f"\\{accent} stands over no name")
        return Symbol(self.with_marks(f"{accent} {content}"))

    # --- combinations ---

    def chosen(self, token: Token) -> Node | None:
        r"""The binomial or arrangement that begins with C, P or A here; None where none does."""
        function = _CHOOSING.get(token.text)
        if function is None:
            return None
        before = self.tokens[self.at - 2] if self.at > 1 else None
        if self.sees("(") and self.holds_one_comma():
            return Call(function, self.listed(2))
        if (
            token.text != "A"
            and before is not None
            and before.kind == self.token.kind == "number"
            and before.end == token.start == self.token.start - 1
        ):
            raise Unreadable("a number of choices without subscripts has two readings")
        if not self.sees("_", "^"):
            return None
        start = self.at
        first = self.take().text
        lower_or_upper = self.index()
        if lower_or_upper is not None and self.sees("^" if first == "_" else "_"):
            self.take()
            other = self.index()
            if other is not None:
                pair = (lower_or_upper, other) if first == "_" else (other, lower_or_upper)
                if _is_choice(*pair):
                    return Call(function, pair)
        self.at = start
        return None

    def index(self) -> Node | None:
        """The integer, letter or short expression in an index position; None for anything else."""
        try:
            return self.argument() if not self.sees("{") else self.group("}")
        except Unreadable:
            return None

    def chosen_before(self) -> Node:
        r"""`{}_nC_k`, `^nC_k` and the like, at their first mark."""
        if self.sees("{"):
            self.at += 2
        if not self.sees("_", "^"):
            raise self.unexpected()
        self.take()
        upper = self.operand()
        function = _CHOOSING.get(self.take().text)
        if function is None or not self.sees("_"):
            raise Unreadable("an index stands before no name")
        self.take()
        return Call(function, (upper, self.operand()))

    def holds_one_comma(self) -> bool:
        depth = commas = 0
        for token in self.tokens[self.at :]:
            if token.kind == "mark":
                depth += (token.text in _CLOSING) - (token.text in (")", "]", "}", "\\}"))
                commas += token.text == "," and depth == 1
            if depth == 0:
                break
        return commas == 1

    # --- functions ---

    def listed(self, count: int | None = None) -> tuple[Node, ...]:
        """The arguments between the bracket here and its partner."""
        opener = self.take()
        closer = _CLOSING.get(opener.text) if opener.kind == "mark" else None
        if closer is None:
            raise Unreadable("a function without the brackets it needs")
        if opener.text == "{" and self.sees("(", "\\{"):  # \max{(a, b)}
            arguments = self.listed(count)
        else:
            self.closers.append(closer)
            listing, self.listing = self.listing, True
            nodes = [self.expression()]
            while self.sees(","):
                self.take()
                nodes.append(self.expression())
            self.listing = listing
            self.closers.pop()
            arguments = tuple(nodes)
        self.expect(closer)
        if count is not None and len(arguments) != count:
            raise Unreadable(f"{count} arguments expected, found {len(arguments)}")
        return arguments

    def function(self) -> Node:
        token = self.take()
        name = token.text
        if name in LISTING:
            return Call(name, self.listed())
        base, exponent = self.modifiers(token)
        if exponent == Number(Fraction(-1)):
            if name not in INVERSES:
                raise Unreadable(f"{name}^-1 has two readings")
            name, exponent = INVERSES[name], None
        bracketed = self.sees("(", "[", "{", "\\{", *_BARS) or self.sees_macro(*_CLOSING_MACROS)
        if bracketed:
            argument = self.operand()
            if name in LOGARITHMS and self.sees("^", "**", "!"):
                raise Unreadable(f"an exponent behind the argument of {name} has two readings")
        else:
            argument = self.bare_argument()
        node = _applied(name, base, argument)
        return node if exponent is None else Power(node, exponent)

    def modifiers(self, token: Token) -> tuple[Node | None, Node | None]:
        """(base, exponent) between the name of a function, `token`, and its argument."""
        base: Node | None = None
        exponent: Node | None = None
        while self.sees("^", "_"):
            if self.take().text == "^" and exponent is None:
                exponent = self.exponent()
            elif token.text == "log" and base is None and self.tokens[self.at - 1].text == "_":
                base = self.log_base()
            else:
                raise Unreadable(f"an index of {token.text} has no meaning")
        if (
            token.text == "log"
            and base is None
            and self.token.kind == "number"
            and self.token.start == token.end
            and self.peek().text == "("
        ):
            base = self.numeral()  # log2(x)
        return base, exponent

    def log_base(self) -> Node:
        """The base behind `_`: a group, the number 10, or one digit or letter."""
        if self.token.text == "10":
            return self.numeral()
        return self.argument()

    def bare_argument(self) -> Node:
        """The argument of a function that has no brackets."""
        negative = self.signs()
        factors: list[Node] = []
        lettered = False
        while self.continues_argument(lettered, first=not factors):
            token = self.token
            lettered = lettered or (token.kind == "symbol" and token.text not in ("e", "i"))
            compound = (
                token.kind == "function" or self.sees(*_BARS) or token.text in _CLOSING_MACROS
            )
            factors.append(self.factor())
            if compound or _holds_degree(factors[-1]):
                break
        if not factors:
            raise Unreadable("a function without an argument")
        argument = product(factors)
        if self.sees("/"):
            argument = self.divided_argument(argument)
        return negated(argument) if negative else argument

    def continues_argument(self, lettered: bool, first: bool) -> bool:
        kind, text, _, _ = self.token
        if first:
            return kind == "number" or self.starts_factor()
        if lettered:
            return kind == "symbol" and text not in ("e", "i")
        if kind == "macro":
            return text in ("frac", "sqrt") or text in ACCENTS
        return kind in ("symbol", "constant") and self.starts_factor()

    def divided_argument(self, argument: Node) -> Node:
        r"""`argument` or, for `\sin \pi/3`, what it makes with the divisor that follows."""
        divisor = self.peek()
        holds_pi = any(part == Constant("pi") for part, _ in walk(argument))
        if divisor.kind == "number":
            if not holds_pi:
                raise Unreadable("a division behind an argument without brackets has two readings")
            self.take()
            return quotient(argument, self.factor())
        return argument

    def series(self, kind: Literal["sum", "product"]) -> Node:
        self.take()
        index: str | None = None
        low: Node | None = None
        high: Node | None = None
        while self.sees("_", "^"):
            if self.take().text == "^" and high is None:
                high = self.exponent()
            elif low is None and self.sees("{"):
                self.take()
                index = self.take().text
                self.expect("=")
                low = self.expression()
                self.expect("}")
            else:
                raise self.unexpected()
        if index is None or low is None or high is None or not index.isalpha():
            raise Unreadable(f"a {kind} without both bounds")
        if any(isinstance(part, Constant) for end in (low, high) for part, _ in walk(end)):
            raise Unreadable(f"a {kind} without end")
        self.bound.append(index)
        negative = self.signs()
        body = self.term()
        self.bound.pop()
        return Series(kind, BOUND + index, low, high, negated(body) if negative else body)


def _ratio(numerators: list[Node], denominators: list[Node]) -> Node:
    if not denominators:
        return product(numerators)
    return quotient(product(numerators), product(denominators))


def _power(base: Node, exponent: Node) -> Node:
    return Power(base, exponent)


def _applied(name: str, base: Node | None, argument: Node) -> Node:
    if name == "exp":
        return Power(Constant("e"), argument)
    if name == "cis":
        return Power(Constant("e"), product([Constant("i"), argument]))
    if name == "lg":
        base, name = Number(Fraction(10)), "log"
    return Call(name, (argument,) if base is None else (argument, base))


def _is_choice(lower: Node, upper: Node) -> bool:
    """True where C with these indices is a binomial rather than a power of a constant."""
    if isinstance(lower, Number) and isinstance(upper, Number):
        whole = lower.value.denominator == upper.value.denominator == 1
        return whole and lower.value >= upper.value >= 0
    return isinstance(lower, Symbol) and lower.name in ("n", "m", "N", "M", "#n", "#m")


def _holds_degree(node: Node) -> bool:
    return isinstance(node, Product) and node.factors[-1] is _DEGREE
