"""Rows of the other files of an evaluation, with the fields that rows of results.jsonl have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workings.errors import DataError

NO_DATA_SET = "unknown"
"""What rows are counted under that name no data set, where others of their file do."""


def data_set_of(row: Mapping[str, Any]) -> str | None:
    """The data set that a row of a file of several says it is of; None where it says nothing.

    >>> data_set_of({"dataset": "gsm8k"}), data_set_of({"data_source": "aime"}), data_set_of({})
    ('gsm8k', 'aime', None)
    """
    name = row.get("dataset") or row.get("data_source")
    return None if name in (None, NO_DATA_SET) else str(name)


def as_result_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of results.jsonl as it is, one of a flat results file by the same names.

    >>> as_result_row({"prompt": "Q", "generated_text": "3", "answer": "3", "correctness": True})
    {'prompt': 'Q', 'response': '3', 'ground_truth': '3', 'correct': True}
    """
    if "generated_text" not in row:
        return dict(row)
    rest = {key: value for key, value in row.items() if key not in _FLAT}
    return {new: row.get(old) for old, new in _FLAT.items()} | rest


def artefact_rows(
    content: Mapping[str, Any], *, where: str, own_ids: bool = False
) -> list[dict[str, Any]]:
    """The rows of a whole-run file; DataError where it is something else.

    Where the file has several data sets, ids have theirs before them. With `own_ids` they are those
    of the problems, and every row says its "dataset".
    """
    results = content.get("results")
    if not isinstance(results, list) or "metadata" not in content:
        raise DataError(
            f"{where} is no evaluation: expected an object with metadata and results",
            hint="workings eval artefact=eval_runs writes one",
        )
    several = not own_ids and len({row.get("dataset") for row in results}) > 1
    return [
        {
            "prompt": row["question"],
            "ground_truth": row["ground_truth"],
            "response": row["full_response"],
            "metrics": row["rewards"],
            "id": f"{row['dataset']}/{row['id']}" if several else row["id"],
            "sample": row.get("sample", 0),
            "subject": row["subject"],
            "level": row["level"],
            "correct": row["correct"],
            "extracted": row["r1_format_extracted"],
        }
        | ({"dataset": row.get("dataset")} if own_ids else {})
        for row in results
    ]


_FLAT = {
    "prompt": "prompt",
    "generated_text": "response",
    "answer": "ground_truth",
    "correctness": "correct",
}
