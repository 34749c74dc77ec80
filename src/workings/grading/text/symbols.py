"""Unicode to LaTeX: one table for every sign that models write instead of a macro."""

from __future__ import annotations

import re
import unicodedata

_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ϵ": "epsilon",
    "ζ": "zeta", "η": "eta", "θ": "theta", "ϑ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu",
    "µ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi",
    "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta",
    "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_MACROS = {
    "×": "times", "·": "cdot", "⋅": "cdot", "∙": "cdot", "≤": "le", "⩽": "le", "≦": "le",
    "≥": "ge", "⩾": "ge", "≧": "ge", "≠": "ne", "≈": "approx", "≡": "equiv", "∞": "infty",
    "∪": "cup", "∩": "cap", "∈": "in", "∉": "notin", "⊂": "subset", "⊆": "subseteq",
    "∅": "emptyset",
    "±": "pm", "∓": "mp", "→": "to", "∖": "setminus",
}  # fmt: skip
THIN_SPACE = "\x03"
"""What separates thousands, or nothing at all."""
CIRCLED = 0xE001
"""① to ⑳ are kept in this private range: NFKC would make them digits, and ①③ thirteen."""
_PLAIN = {
    **dict.fromkeys("−–—‒―﹣－‐‑", "-"),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f\u061c\x00", ""),
    **dict.fromkeys("\u2002\u2003\u200a\u205f\u3000", " "),
    **dict.fromkeys("⁄∕÷／", "/"),
    "或": " or ", "且": " and ",
    "。": ".", "、": ",", "′": "'", "’": "'", "°": r"^\circ ", "∘": r"\circ ",
    **dict.fromkeys("\u00a0\u2009\u202f", THIN_SPACE),
    "∛": r"\sqrt[3] ", "△": r"\triangle ", "∽": r"\sim ", "¬": r"\neg ", "∨": r"\lor ",
    "∧": r"\land ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
    "∂": r"\partial ", "∇": r"\nabla ", "∥": r"\parallel ", "⊥": r"\perp ", "…": r"\ldots ",
    "∶": ":",
    "¢": r"\text{ cents}", "ı": "i",
    **{chr(0x2460 + place): chr(CIRCLED + place) for place in range(20)},
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}", "⟨": r"\langle ", "⟩": r"\rangle ",
}  # fmt: skip
_TABLE = str.maketrans({sign: f"\\{name} " for sign, name in (_GREEK | _MACROS).items()} | _PLAIN)

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ", "0123456789+-ni")
_SUPERSCRIPT_RUN = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ]+")
_VULGAR_FRACTION = re.compile(r"[\u00bc-\u00be\u2150-\u215e\u2189]")
_ROOT = re.compile(r"√\s*(?P<number>\d+(?:\.\d+)?|[A-Za-z])?")


def to_latex(text: str) -> str:
    """`text` with Unicode signs as LaTeX or ASCII, and everything else in NFKC.

    >>> to_latex("x²+½ ≤ −√3·π")
    'x^{2}+\\\\frac{1}{2} \\\\le  -\\\\sqrt{3}\\\\cdot \\\\pi '
    """
    if text.isascii():
        return text.replace("\x00", "")
    text = _SUPERSCRIPT_RUN.sub(lambda run: f"^{{{run[0].translate(_SUPERSCRIPTS)}}}", text)
    text = _VULGAR_FRACTION.sub(_spell_fraction, text)
    text = _ROOT.sub(_spell_root, text)
    return unicodedata.normalize("NFKC", text.translate(_TABLE)).translate(_TABLE)


def _spell_fraction(match: re.Match[str]) -> str:
    numerator, _, denominator = unicodedata.normalize("NFKC", match[0]).partition("⁄")
    return rf"\frac{{{numerator}}}{{{denominator}}}"


def _spell_root(match: re.Match[str]) -> str:
    radicand = match["number"]
    return rf"\sqrt{{{radicand}}}" if radicand else r"\sqrt "
