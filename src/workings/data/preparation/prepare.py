"""One preparation from source to finished folder: stream, make, write, check, describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from workings.data.contamination import ContaminationIndex
from workings.data.contamination_report import ContaminationReport
from workings.data.preparation.card import CARD, CONTAMINATION, RECORD, card_text, record_text
from workings.data.preparation.entries import (
    asked_check,
    excluded_source,
    prompt_entry,
    shown_settings,
    tokenizer_entries,
)
from workings.data.preparation.questions import question_key
from workings.data.preparation.recipe import CountTokens, Making, Recipe, Settings
from workings.data.preparation.source import (
    Source,
    SourceFile,
    input_entry,
    stream_source,
)
from workings.data.preparation.written import WrittenFolder, new_folder
from workings.data.training_texts import training_text
from workings.errors import DataError

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be prepared.

    Attributes:
        recipe, settings: what is done; `settings` are the effective ones.
        source: where the rows come from.
        target: the folder to make.
        limit: the first so many rows of the source; None takes all.
        system_text: content of the file `settings.system_prompt`.
        contamination: what the rows are compared with; None for no check.
        drop_contaminated: leave out the rows that overlap.
        replace: take the place of a folder that exists.
        command: for the card.
        versions: name to version, for the card.
    """

    recipe: Recipe
    settings: Settings
    source: Source
    target: Path
    limit: int | None = None
    system_text: str | None = None
    contamination: ContaminationIndex | None = None
    drop_contaminated: bool = False
    replace: bool = False
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


def prepare(
    request: Request, *, count_tokens: CountTokens | None = None, log: Log
) -> dict[str, object]:
    """Make the folder, and give the record that stands in its `preparation.json`.

    The folder holds the rows, `README.md` (the card), `preparation.json` (the same for programs)
    and, where it was asked for, `contamination.json`. The same inputs, settings and versions give
    the same bytes.
    """
    recipe = request.recipe
    excluded, exclusion = _excluded(request.settings, log)
    making = Making(
        settings=request.settings,
        count_tokens=count_tokens,
        excluded=excluded,
        system_text=request.system_text,
    )
    report = None if request.contamination is None else ContaminationReport(request.contamination)
    if report is not None and request.drop_contaminated:
        making.is_contaminated = lambda question, row_id: bool(report.add(row_id, question))
    inputs: list[dict[str, object]] = []

    def opened(file: SourceFile, path: Path) -> None:
        inputs.append(input_entry(file, path))
        log(f"reading {file.name}")

    rows = stream_source(request.source, columns=recipe.columns, limit=request.limit, opened=opened)
    with new_folder(request.target, schemas=recipe.schemas, replace=request.replace) as folder:
        for file, record in recipe.make(rows, making):
            folder.write(file, record)
            making.tally.written[file] += 1
            if report is not None and not request.drop_contaminated:
                row_id = str(record.get("id", making.tally.written[file] - 1))
                report.add(f"{file}/{row_id}", recipe.question(record))
        making.tally.check()
        if not making.tally.written:
            raise DataError(f"no row is left ({making.tally.describe()})")
        for line in [making.tally.describe(), *(report.lines() if report is not None else ())]:
            log(line)
        read = {
            "inputs": inputs,
            "excluded": exclusion,
            "system_prompt": prompt_entry(request.system_text),
            "tokenizer": tokenizer_entries(request.settings),
        }
        return _finish(request, folder, making, read, report)


def _finish(
    request: Request,
    folder: WrittenFolder,
    making: Making,
    read: Mapping[str, object],
    report: ContaminationReport | None,
) -> dict[str, object]:
    recipe, settings = request.recipe, request.settings
    record: dict[str, object] = {
        "recipe": recipe.name,
        "about": recipe.about,
        "source": {
            "origin": request.source.origin,
            "published": recipe.source,
            "revision": request.source.revision,
            "licence": recipe.licence,
            "hub_licence": request.source.licence,
            "limit": request.limit,
        },
        "settings": shown_settings(settings),
        "steps": [step.format(**asdict(settings)) for step in recipe.steps],
        "rows": making.tally.as_dict(),
        **{name: entry for name, entry in read.items() if entry is not None},
        "outputs": folder.finish_rows(),
        "command": request.command,
        "versions": dict(request.versions),
    }
    if report is not None:
        found = report.as_dict()
        record["contamination"] = {
            "asked": asked_check(request.contamination, dropped=request.drop_contaminated),
            "rows_overlapping": found["rows_overlapping"],
            "table": report.lines(),
        }
        folder.write_text(CONTAMINATION, record_text(found))
    folder.write_text(RECORD, record_text(record))
    folder.write_text(CARD, card_text(record))
    return record


def _excluded(settings: Settings, log: Log) -> tuple[frozenset[bytes], dict[str, object] | None]:
    """The keys of the questions of the data set `settings.exclude`, and its entry in the record."""
    if settings.exclude is None:
        return frozenset(), None
    keys: set[bytes] = set()
    inputs: list[dict[str, object]] = []
    source = excluded_source(settings.exclude)
    for row in stream_source(
        source, opened=lambda file, path: inputs.append(input_entry(file, path))
    ):
        if row.values is not None:
            question = training_text(row.values).question
            if question is not None:
                keys.add(question_key(question))
    if not keys:
        raise DataError(f"--exclude {settings.exclude} has no questions")
    log(f"{len(keys):,} distinct questions of {settings.exclude} are excluded")
    return frozenset(keys), {"revision": source.revision, "inputs": inputs}
