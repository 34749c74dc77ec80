"""Whether a folder holds what a preparation would make, told from its record and checksums."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workings.data.preparation.card import RECORD
from workings.data.preparation.checksums import sha256_of
from workings.data.preparation.entries import (
    asked_check,
    excluded_source,
    prompt_entry,
    shown_settings,
    tokenizer_entries,
)
from workings.data.preparation.prepare import Request
from workings.data.preparation.recipe import option_name
from workings.data.preparation.source import Source

SHOWN_FILES = 3


def is_made(request: Request) -> bool:
    """True where the folder already holds what this request would make, every byte of it."""
    return difference(request) is None


def difference(request: Request) -> str | None:
    """Why the folder is not what this request would make; None where it is, every byte of it.

    Recipe, settings, source and contamination check must be those of the record, the files that
    were read and the files that were written must have the checksums that stand there, and no other
    file may be there to read. What an older record does not say counts as different. Another
    version of this package does not.
    """
    try:
        record = json.loads((request.target / RECORD).read_text(encoding="utf-8"))
        return next(_differences(request, record), None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"it has no whole {RECORD} ({type(error).__name__}: {error})"


def _differences(request: Request, record: Mapping[str, Any]) -> Iterator[str]:
    source, settings, now = request.source, request.settings, shown_settings(request.settings)
    before = record["settings"]
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    for what, was, wanted in (
        ("recipe", record["recipe"], request.recipe.name),
        ("source", record["source"]["origin"], source.origin),
        ("revision", record["source"]["revision"], source.revision),
        ("limit", record["source"]["limit"], request.limit),
        *((option_name(name), before.get(name), now.get(name)) for name in changed),
    ):
        if was != wanted:
            yield f"its {what} is {was}, not {wanted}"
    check = asked_check(request.contamination, dropped=request.drop_contaminated)
    for about, recorded, wanted in (
        ("the contamination check", record.get("contamination", {}).get("asked"), check),
        ("--system-prompt", record.get("system_prompt"), prompt_entry(request.system_text)),
        ("--tokenizer", record.get("tokenizer"), tokenizer_entries(settings)),
    ):
        if recorded != wanted:
            yield f"{about} is not the one in its record, or not recorded at all"
    for entry in record["outputs"]:
        path = request.target / entry["file"]
        if not path.is_file() or sha256_of(path) != entry["sha256"]:
            yield f"{entry['file']} is not as it was written"
    limit = request.limit
    whole = limit is None or record["rows"]["read"] < limit
    yield from _changed_inputs(source, record["inputs"], whole=whole)
    if settings.exclude is not None:
        yield from _changed_exclusion(excluded_source(settings.exclude), record.get("excluded"))


def _changed_exclusion(source: Source, recorded: Mapping[str, Any] | None) -> Iterator[str]:
    if recorded is None:
        yield "its record does not say what the files of --exclude held"
    elif recorded["revision"] != source.revision:
        yield f"--exclude is at revision {source.revision}, not {recorded['revision']}"
    else:
        for change in _changed_inputs(source, recorded["inputs"], whole=True):
            yield f"--exclude: {change}"


def _changed_inputs(
    source: Source, inputs: Sequence[Mapping[str, Any]], *, whole: bool
) -> Iterator[str]:
    """How the files of a source differ from those that were read, all of them if `whole`."""
    before = [entry["file"] for entry in inputs]
    files = source.files if whole else source.files[: len(before)]
    names = [file.name for file in files]
    if names != before:
        new = [f"{name} is new" for name in names if name not in before]
        gone = [f"{name} is gone" for name in before if name not in names]
        shown = ", ".join([*new, *gone][:SHOWN_FILES]) or "in another order"
        yield f"other files would be read ({shown})"
    elif source.revision is None:
        for file, entry in zip(files, inputs, strict=True):
            if sha256_of(file.locate()) != entry["sha256"]:
                yield f"{file.name} has changed since it was read"
