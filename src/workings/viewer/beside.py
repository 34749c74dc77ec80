"""What the sampled responses beside a JSONL file know of the same rows.

DATASET/results.jsonl    DATASET/responses.parquet
NAME.jsonl               NAME.responses/NAME/responses.parquet, of `workings eval-luffy`

Rows of results.jsonl have neither source nor tokens, those of `eval-luffy` no length.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from workings.evaluation.reports import RESULTS_FILE
from workings.evaluation.responses import RESPONSES_FILE
from workings.viewer.parquet_rows import TOKEN_COLUMNS, Row, parquet_file, parquet_rows
from workings.viewer.versions import Version, version_of

FLAT, DECODED = ".jsonl", ".decoded.jsonl"
STORE = ".responses"
"""Ending of the folder in which `workings eval-luffy` keeps what it samples."""


def is_store(folder: PurePosixPath) -> bool:
    """Whether a folder holds the responses of a flat file, which shows them with their grades.

    >>> is_store(PurePosixPath("results/luffy.responses/luffy"))
    True
    """
    return folder.parent.name == folder.name + STORE


def responses_beside(path: Path) -> Path | None:
    """The sampled responses that belong to a JSONL file; None where there are none."""
    if path.name == RESULTS_FILE:
        beside = path.with_name(RESPONSES_FILE)
    else:
        stem = path.name.removesuffix(DECODED).removesuffix(FLAT)
        beside = path.parent / (stem + STORE) / stem / RESPONSES_FILE
    # Behind a link may be anything; the folder of the file itself is known to be shown.
    linked = beside.resolve() != path.parent.resolve() / beside.relative_to(path.parent)
    return None if linked or not beside.is_file() else beside


def stored_sources(path: Path) -> Mapping[str, str]:
    """{problem: its source} for a JSONL file; empty where there are not two sources."""
    beside = responses_beside(path)
    return {} if beside is None else _sources(version_of(beside))


def stored_lengths(path: Path) -> Mapping[tuple[str, int], int]:
    """{(problem, sample): tokens of the response} for a JSONL file; empty where unknown."""
    beside = responses_beside(path)
    return {} if beside is None else _lengths(version_of(beside))


def add_tokens(path: Path, rows: Mapping[int, Row]) -> None:
    """Give rows of a JSONL file the tokens that were stored for the same problem and sample."""
    beside = responses_beside(path)
    if beside is None:
        return
    ids = parquet_file(beside).read(columns=["problem_id", "sample"]).to_pydict()
    places = {key: n for n, key in enumerate(zip(ids["problem_id"], ids["sample"], strict=True))}
    keys = {number: (row["problem_id"], row["sample"]) for number, row in rows.items()}
    wanted = {number: places[key] for number, key in keys.items() if key in places}
    found = parquet_rows(beside, sorted(wanted.values()), tokens=True) if wanted else {}
    for number, place in wanted.items():
        # Responses that were sampled again since these were graded are other responses.
        if found[place]["completion"] == rows[number]["completion"]:
            rows[number].update({name: found[place].get(name) for name in TOKEN_COLUMNS})


@functools.lru_cache(maxsize=8)
def _sources(version: Version) -> dict[str, str]:
    file = parquet_file(Path(version[0]))
    if "source" not in file.schema_arrow.names:
        return {}
    sources = file.read(columns=["source"]).column("source")
    if len([one for one in sources.unique().to_pylist() if one]) < 2:
        return {}
    problems = file.read(columns=["problem_id"]).column("problem_id")
    pairs = zip(problems.to_pylist(), sources.to_pylist(), strict=True)
    return {problem: source for problem, source in pairs if source}


@functools.lru_cache(maxsize=8)
def _lengths(version: Version) -> dict[tuple[str, int], int]:
    names = ["problem_id", "sample", "num_tokens"]
    columns = parquet_file(Path(version[0])).read(columns=names).to_pydict()
    keys = zip(columns["problem_id"], columns["sample"], strict=True)
    return dict(zip(keys, columns["num_tokens"], strict=True))
