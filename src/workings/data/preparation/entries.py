"""What a preparation is made from besides its rows, as its record tells it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from workings.data.contamination import ContaminationIndex
from workings.data.preparation.checksums import sha256_of
from workings.data.preparation.recipe import Settings
from workings.data.preparation.source import Source, find_source

TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "merges.txt"),
)


def asked_check(index: ContaminationIndex | None, *, dropped: bool) -> dict[str, object] | None:
    """The contamination check as it was asked for; None for none."""
    if index is None:
        return None
    return {
        "benchmarks": {b.name: len(b.ids) for b in index.benchmarks},
        "sha256": {
            b.name: _text_sha256(json.dumps([b.ids, b.questions])) for b in index.benchmarks
        },
        "rule": asdict(index.rule),
        "dropped": dropped,
    }


def shown_settings(settings: Settings) -> dict[str, object]:
    """The settings that apply."""
    return {name: value for name, value in asdict(settings).items() if value is not None}


def prompt_entry(text: str | None) -> dict[str, object] | None:
    """The system prompt in the record: its checksum without white space at its ends."""
    if text is None:
        return None
    return {"text_sha256": _text_sha256(text)}


def tokenizer_entries(settings: Settings) -> list[dict[str, object]] | None:
    """The files of a local tokenizer in the record; None for one of the hub, or none at all."""
    if settings.tokenizer is None or not (folder := Path(settings.tokenizer).expanduser()).is_dir():
        return None
    found = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
    return [{"file": path.name, "sha256": sha256_of(path)} for path in found]


def excluded_source(where: str) -> Source:
    """The data set whose questions are left out."""
    return find_source(where, patterns=("*",), split="train")


def _text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
