"""Seeds derived from seeds, so that every draw is a function of the run's one seed."""

from __future__ import annotations

import hashlib


def derive_seed(seed: int, *path: str | int) -> int:
    """A 63-bit seed for the place `path`, the same on every machine and Python.

    Draws that are a function of (seed, place) need no stored random state: a resumed step repeats
    exactly what the interrupted one would have drawn.

    >>> derive_seed(0, "rollout", 3) == derive_seed(0, "rollout", 3)
    True
    >>> derive_seed(0, "rollout", 3) == derive_seed(0, "rollout", 4)
    False
    """
    text = "/".join([str(seed), *(f"{type(part).__name__}:{part}" for part in path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
