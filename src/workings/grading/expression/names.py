"""The vocabulary: macros and plain names that stand for functions, constants and symbols."""

from __future__ import annotations

_TRIGONOMETRIC = ("sin", "cos", "tan", "cot", "sec", "csc")
_HYPERBOLIC = tuple(f"{name}h" for name in _TRIGONOMETRIC)

INVERSES = {name: f"arc{name}" for name in _TRIGONOMETRIC + _HYPERBOLIC}
"""What the exponent -1 turns a function into."""

FUNCTIONS: dict[str, str] = {
    **{name: name for name in (*INVERSES, *INVERSES.values())},
    **{f"a{name}": inverse for name, inverse in INVERSES.items()},
    **{f"ar{name}": INVERSES[name] for name in _HYPERBOLIC},
    "tg": "tan", "ctg": "cot", "cosec": "csc", "arctg": "arctan", "arcctg": "arccot",
    "sh": "sinh", "ch": "cosh", "th": "tanh",
    "ln": "ln", "log": "log", "lg": "lg", "exp": "exp", "cis": "cis", "abs": "abs",
    "floor": "floor", "ceil": "ceil", "sgn": "sign", "sign": "sign", "Re": "re", "Im": "im",
    "re": "re", "im": "im",
    "max": "max", "min": "min", "gcd": "gcd", "lcm": "lcm",
}  # fmt: skip
"""Spelling -> function, as macro, operator name or (unless in `MACRO_ONLY`) plain word."""

LISTING = frozenset({"max", "min", "gcd", "lcm"})
"""Functions of a list of arguments in brackets."""
MACRO_ONLY = frozenset({"sh", "ch", "th", "Re", "Im", "re", "im", "sign"})
LOGARITHMS = frozenset({"ln", "log", "lg"})

CONSTANTS = {
    "pi": "pi", "infty": "infinity", "inf": "infinity", "infinity": "infinity", "oo": "infinity",
}  # fmt: skip
"""Spelling -> constant; the letters e and i are constants unless an index has taken them."""

_GREEK_NAMES = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "mu",
    "nu",
    "xi",
    "rho",
    "sigma",
    "tau",
    "upsilon",
    "phi",
    "chi",
    "psi",
    "omega",
]
SYMBOLS: dict[str, str] = {
    **{name: name for name in _GREEK_NAMES},
    **{name.capitalize(): name.capitalize() for name in _GREEK_NAMES},
    **{f"var{name}": name for name in ("epsilon", "theta", "rho", "sigma", "phi", "kappa")},
    "ell": "l", "hbar": "hbar", "imath": "i", "jmath": "j", "aleph": "aleph", "Pi": "Pi",
}  # fmt: skip
"""Macro -> name of the symbol; variants of one letter are one symbol."""

GREEK_WORDS = frozenset(name for name in _GREEK_NAMES if len(name) > 3) | {"phi", "psi", "rho"}
"""Letters that are also read without a backslash; shorter names are products (xi is x times i)."""

ACCENTS = frozenset(
    [
        "bar",
        "overline",
        "vec",
        "overrightarrow",
        "hat",
        "widehat",
        "tilde",
        "widetilde",
        "dot",
        "ddot",
        "mathcal",
        "mathbb",
        "mathfrak",
        "angle",
        "triangle",
        "overleftrightarrow",
        "underline",
        "measuredangle",
    ]
)
"""Macros that make one symbol of what follows."""

STOP_WORDS = frozenset(
    [
        "or",
        "and",
        "if",
        "is",
        "of",
        "to",
        "for",
        "the",
        "not",
        "yes",
        "no",
        "odd",
        "any",
        "all",
        "are",
        "but",
        "has",
        "nan",
        "nor",
        "with",
        "from",
        "mod",
        "none",
        "both",
        "when",
    ]
)
"""Words that no product of letters is meant to be."""
