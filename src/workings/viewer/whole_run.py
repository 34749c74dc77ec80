"""Rows of a whole-run file, `..._eval_DATE_TIME.json`, in which earlier programs kept evaluations.

It is one JSON object, so it is read as a whole, unlike every other file of the viewer.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from workings.errors import DataError
from workings.evaluation.other_rows import artefact_rows
from workings.viewer.versions import Version, version_of

WHOLE_RUN = re.compile(r".*_eval_(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(\d\d)\.json")
"""The name of such a file."""


def whole_run_rows(path: Path) -> tuple[dict[str, Any], ...]:
    """Its rows as those of results.jsonl, with the data set as source; kept until it changes."""
    return _rows(version_of(path))


def time_of(name: str) -> str:
    """When the evaluation was made, by the name of its file.

    >>> time_of("grpo_step_100_eval_20250601_123005.json")
    '2025-06-01 12:30:05'
    """
    match = WHOLE_RUN.fullmatch(name)
    assert match is not None
    return "{}-{}-{} {}:{}:{}".format(*match.groups())


@functools.lru_cache(maxsize=4)
def _rows(version: Version) -> tuple[dict[str, Any], ...]:
    path = Path(version[0])
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(f"{path.name} is not JSON: {error}") from error
    try:
        rows = artefact_rows(content if isinstance(content, dict) else {}, where=path.name)
        data_sets = [one.get("dataset") for one in content["results"]]
    except (KeyError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path.name} is no evaluation of earlier programs: a row is without {error}"
        ) from error
    return tuple(row | {"source": name} for row, name in zip(rows, data_sets, strict=True))
