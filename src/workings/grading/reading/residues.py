r"""Residue classes: "x \equiv 3 \pmod 7", and 3 mod 7 beside one."""

from __future__ import annotations

import re

from workings.grading.reading.answers import Residues

_CONGRUENCE = re.compile(
    r"(?:(?P<name>[a-zA-Z](?:_\{?\w\}?)?)\s*(?P<sign>\\equiv|=)\s*)?"
    r"(?P<values>(?:-|\\pm\s*)?\d+"
    r"(?:\s*(?:,|\\text\{ ?or ?\}|or|and|\\text\{ ?and ?\})\s*-?\d+)*)\s*"
    r"(?P<open>\()?\s*\\?(?P<mod>pmod|bmod|mod|text\{ ?mod ?\})\s*"
    r"\{?\s*(?P<modulus>\d+)\s*\}?\s*\)?"
)
_MAX_DIGITS = 50


def read_residues(text: str) -> Residues | None:
    r"""The classes that `text` names; None for any other text.

    `17 \bmod 5` alone is the number 2 and no class: a congruence has a sign or a bracket.

    >>> read_residues(r"n \equiv 1, 5 \pmod{6}")
    Residues(values=(1, 5), modulus=6)
    >>> read_residues(r"17 \bmod 5") is None
    True
    """
    return _read(text, needs_sign=True)


def read_residues_leniently(text: str) -> Residues | None:
    r"""As `read_residues`, with "3 mod 7" too: for the side across from a congruence.

    >>> read_residues_leniently(r"3 \bmod 7")
    Residues(values=(3,), modulus=7)
    """
    return _read(text, needs_sign=False)


def _read(text: str, *, needs_sign: bool) -> Residues | None:
    if "mod" not in text or len(text) > 200:
        return None
    match = _CONGRUENCE.fullmatch(text)
    if match is None or (match["sign"] == "=" and match["mod"] == "bmod"):
        return None
    is_congruence = match["sign"] == r"\equiv" or match["mod"] == "pmod" or match["open"]
    if needs_sign and not is_congruence:
        return None
    modulus = int(match["modulus"][:_MAX_DIGITS])
    values = [int(value) for value in re.findall(r"-?\d+", match["values"])]
    values += [-int(value) for value in re.findall(r"\\pm\s*(\d+)", match["values"])]
    return Residues(tuple(values), modulus) if modulus > 1 else None
