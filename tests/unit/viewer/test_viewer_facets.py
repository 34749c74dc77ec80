"""Facets by Arrow and line by line agree; filters and pages pick the rows that a loop picks."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from viewer_files import results_row, write_jsonl, write_rollouts

from workings.rewards.four_classes import category
from workings.tracking.rollouts import read_groups
from workings.viewer import facets as facets_module
from workings.viewer.facets import Facets, kind_of, read_facets
from workings.viewer.filters import Filters, page_of, select
from workings.viewer.rows import open_rows, read_rows


def _rows(count: int) -> list[dict]:
    draw = random.Random(0)
    rows = []
    for number in range(count):
        row = results_row(
            f"p/{number // 3}", number % 3, kind=draw.choice(["11", "10", "01", "00"])
        )
        row |= {
            "subject": draw.choice(["Algebra", "Geometry", None]),
            "level": draw.choice(["1", "2", "10"]),
            "data_source": draw.choice(["amc", "aime", "math"]),
            "response_tokens": draw.randrange(100),
            "finish_reason": draw.choice(["stop", "length"]),
            "response": draw.choice(["yes", "no"]),
        }
        if number % 11 == 0:  # an unusable gold
            row |= {
                "metrics": dict.fromkeys(row["metrics"]),
                "correct": None,
                "verdict": "bad_gold",
            }
        rows.append(row)
    return rows


def _equal(first: Facets, second: Facets) -> None:
    for field in fields(Facets):
        np.testing.assert_array_equal(getattr(first, field.name), getattr(second, field.name))


def test_arrow_and_line_by_line_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = open_rows(write_jsonl(tmp_path / "results.jsonl", _rows(200)))
    _equal(read_facets(file), facets_module._from_lines(file.path))
    assert facets_module._arrow_jsonl(file.path) is not None


def test_a_column_of_two_types_is_read_too(tmp_path: Path) -> None:
    rows = [
        results_row("a", level=1),
        results_row("b", level="Level 2"),
        results_row("c", level=None),
    ]
    del rows[2]["id"]
    file = open_rows(write_jsonl(tmp_path / "results.jsonl", rows))
    assert facets_module._arrow_jsonl(file.path) is None
    found = read_facets(file)
    assert found.level.tolist() == ["1", "Level 2", ""]
    assert found.problem.tolist() == ["a", "b", "row 2"]
    assert found.rows_of("row 2") == [2]


def test_facets_of_rollouts(tmp_path: Path) -> None:
    path = write_rollouts(tmp_path / "step_000001.parquet", [[1.0, 0.0], [0.0, 0.0]])
    found = read_facets(open_rows(path))
    expected = [category(r) for group in read_groups(path) for r in group.rollouts]
    names = {"11": "category_1_format1_answer1", "10": "category_2_format1_answer0"}
    assert [names[kind] for kind in found.kind] == expected
    assert found.truncated.tolist() == [False, True, True, True]
    assert found.rows_of("p/1") == [2, 3]
    assert found.choices("subject") == ["+"]


def test_the_class_of_a_row_is_that_of_the_facets(tmp_path: Path) -> None:
    rollouts = write_rollouts(tmp_path / "a.parquet", [[1.0, 0.0]])
    for path in (write_jsonl(tmp_path / "results.jsonl", _rows(60)), rollouts):
        file = open_rows(path)
        rows = read_rows(file, range(file.num_rows))
        assert [kind_of(row) for row in rows] == read_facets(file).kind.tolist()


def test_choices_come_in_order(tmp_path: Path) -> None:
    file = open_rows(write_jsonl(tmp_path / "results.jsonl", _rows(60)))
    assert read_facets(file).choices("level") == ["1", "2", "10"]
    assert read_facets(file).choices("subject") == ["Algebra", "Geometry"]


def test_choices_of_a_long_file_come_from_some_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_jsonl(tmp_path / "results.jsonl", _rows(60))
    every = facets_module.Choices(
        sources=["aime", "amc", "math"],
        subjects=["Algebra", "Geometry"],
        levels=["1", "2", "10"],
        kinds=facets_module.CLASSES,
        complete=True,
    )
    assert facets_module.choices_of(open_rows(path)) == every
    monkeypatch.setattr(facets_module, "LONG", 50)
    facets_module._choices.cache_clear()
    monkeypatch.setattr(facets_module, "_facets", None)  # it would fail if it were asked
    assert facets_module.choices_of(open_rows(path)) == replace(every, complete=False)


@pytest.mark.parametrize(
    ("filters", "keep"),
    [
        (Filters(), lambda row: True),
        (Filters(kinds=("10", "01")), lambda row: row["kind"] in ("10", "01")),
        (Filters(verdicts=("bad_gold",)), lambda row: row["verdict"] == "bad_gold"),
        (Filters(subjects=("Geometry",)), lambda row: row["subject"] == "Geometry"),
        (Filters(sources=("amc", "math")), lambda row: row["data_source"] != "aime"),
        (Filters(levels=("10",)), lambda row: row["level"] == "10"),
        (Filters(min_length=40), lambda row: row["response_tokens"] >= 40),
        (Filters(max_length=40), lambda row: row["response_tokens"] <= 40),
        (Filters(truncated=True), lambda row: row["finish_reason"] == "length"),
        (Filters(truncated=False), lambda row: row["finish_reason"] == "stop"),
        (Filters(text="YES"), lambda row: row["response"] == "yes"),
        (
            Filters(text="no", kinds=("11",), max_length=50),
            lambda row: (
                row["response"] == "no" and row["kind"] == "11" and row["response_tokens"] <= 50
            ),
        ),
    ],
)
def test_filters_keep_what_a_loop_keeps(tmp_path: Path, filters: Filters, keep) -> None:
    rows = _rows(150)
    file = open_rows(write_jsonl(tmp_path / "results.jsonl", rows))
    for row in rows:
        rewards = row["metrics"]
        graded = rewards["reward"] is not None
        row["kind"] = (
            f"{rewards['format_reward']:.0f}{rewards['answer_reward']:.0f}" if graded else ""
        )
    expected = [number for number, row in enumerate(rows) if keep(row)]
    assert list(select(file, filters)) == expected
    assert expected


def test_pages() -> None:
    pages = [page_of(range(25), number, 10) for number in (-1, 1, 2, 3, 99)]
    assert [page.number for page in pages] == [1, 1, 2, 3, 3]
    assert page_of(range(0), 1, 10).rows == ()
    assert len(page_of(range(500), 1, 1000).rows) == 100
    assert page_of(range(3), 1, 0).count == 3
