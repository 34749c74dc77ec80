"""SHA-256 of files, read in blocks."""

from __future__ import annotations

import hashlib
from pathlib import Path

BLOCK_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file as 64 hexadecimal digits, as `sha256sum` prints it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
