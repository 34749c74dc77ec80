"""Files of replies for judges."""

from __future__ import annotations

import json
from pathlib import Path

from workings.evaluation.judged import write_judged


def test_a_single_reply_has_the_fields_of_the_formats_alone(tmp_path: Path, make_group) -> None:
    array, lines = write_judged(tmp_path, [make_group("a", "11")], generator="m", dataset="d")
    assert json.loads(array.read_text()) == [
        {"instruction": "2 + 2?", "output": "a says 11", "generator": "m", "dataset": "d"}
    ]
    assert json.loads(lines.read_text()) == {"prompts_final": "2 + 2?", "output": "a says 11"}


def test_every_reply_of_several_is_written(tmp_path: Path, make_group) -> None:
    groups = [make_group("a", "11", "00"), make_group("b", "10", "01")]
    array, lines = write_judged(tmp_path, groups, generator="m", dataset="d")
    wanted = [("a says 11", 0), ("a says 00", 1), ("b says 10", 0), ("b says 01", 1)]
    rows = json.loads(array.read_text())
    assert [(row["output"], row["sample"]) for row in rows] == wanted
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(row["output"], row["sample"]) for row in rows] == wanted
