"""The vocabulary: macros and plain names that stand for functions, constants and symbols."""

from __future__ import annotations

_CIRCULAR = ("sin", "cos", "tan", "cot", "sec", "csc")
_HYPERBOLIC = tuple(f"{name}h" for name in _CIRCULAR)

INVERSES = {name: f"arc{name}" for name in _CIRCULAR + _HYPERBOLIC}
"""What the exponent -1 makes of a function."""
LISTING = frozenset({"max", "min", "gcd", "lcm"})
"""Functions of a list of arguments, always in brackets."""
LOGARITHMS = frozenset({"ln", "log", "lg"})

FUNCTIONS = {
    **{name: name for name in (*INVERSES, *INVERSES.values(), *LISTING, *LOGARITHMS)},
    **{f"a{name}": inverse for name, inverse in INVERSES.items()},
    **{f"ar{name}": INVERSES[name] for name in _HYPERBOLIC},
    "tg": "tan", "ctg": "cot", "cosec": "csc", "arctg": "arctan", "arcctg": "arccot",
    "exp": "exp", "cis": "cis", "abs": "abs", "floor": "floor", "ceil": "ceil", "sgn": "sign",
}  # fmt: skip
"""Spelling -> function; as macro, in `\\operatorname` or as a plain word."""
UPRIGHT_FUNCTIONS = {"sh": "sinh", "ch": "cosh", "th": "tanh", "Re": "re", "Im": "im"}
"""The same for spellings that are products when they stand as plain words."""

CONSTANTS = {"pi": "pi", "infty": "infinity", "inf": "infinity", "infinity": "infinity"}
"""Spelling -> constant; the letters e and i are constants unless an index has taken them."""

_GREEK = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
    "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
)  # fmt: skip
SYMBOLS = {
    **{name: name for name in _GREEK},
    **{name.capitalize(): name.capitalize() for name in (*_GREEK, "pi")},
    **{f"var{name}": name for name in ("epsilon", "theta", "rho", "sigma", "phi", "kappa")},
    "ell": "l", "hbar": "hbar",
}  # fmt: skip
"""Macro -> symbol; the variants of one letter are one symbol."""
GREEK_WORDS = frozenset(name for name in _GREEK if len(name) > 3) | {"phi", "psi", "rho"}
"""Letters that need no backslash; shorter names are products (xi is x times i)."""

ACCENTS = frozenset({
    "\\bar", "\\overline", "\\vec", "\\overrightarrow", "\\hat", "\\widehat", "\\tilde", "\\dot",
    "\\ddot", "\\mathcal", "\\mathfrak", "\\angle", "\\triangle", "\\underline",
})  # fmt: skip
"""Macros that make one symbol of the name behind them."""
VECTORS = ("vec ", "overrightarrow ")
"""How the names of vectors begin."""

STOP_WORDS = frozenset({
    "or", "and", "if", "is", "of", "to", "for", "the", "not", "yes", "no", "odd", "any", "all",
    "are", "but", "has", "nan", "nor", "mod", "deg", "rad",
})  # fmt: skip
"""Words of two and three letters that nobody means as a product."""
