"""Rows by their number, from JSONL and parquet, with tokens and search."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from viewer_files import results_row, write_jsonl, write_rollouts

from workings.errors import DataError
from workings.tracking.rollouts import read_rows as read_all
from workings.viewer.rows import matching_rows, open_rows, read_rows


def test_rows_of_jsonl_in_the_order_asked_for(tmp_path: Path) -> None:
    rows = [results_row(f"p/{n}", response="x" * n + "\u00e9") for n in range(50)]
    path = write_jsonl(tmp_path / "results.jsonl", rows)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n\n", 7).rstrip(b"\n"))  # empty lines
    file = open_rows(path)
    assert file.num_rows == 50
    found = read_rows(file, [49, 0, 7, 8])
    assert [row["completion"] for row in found] == ["x" * n + "\u00e9" for n in (49, 0, 7, 8)]
    assert found[0]["answer"] == "4"
    with pytest.raises(DataError, match="rows 0 to 49"):
        read_rows(file, [50])


def test_an_empty_file_and_a_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text("")
    assert open_rows(path).num_rows == 0
    path.write_text('{"id": 1}\n[1, 2]\n{"id": \n')
    file = open_rows(path)
    assert read_rows(file, [0])[0]["problem_id"] == "1"
    for number, message in ((1, "list"), (2, "not JSON")):
        with pytest.raises(DataError, match=message):
            read_rows(file, [number])


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "results.jsonl", [results_row("a")])
    assert open_rows(path).num_rows == 1
    write_jsonl(path, [results_row("a"), results_row("b")])
    assert open_rows(path).num_rows == 2


@pytest.mark.parametrize("group_size", [3, 7, 1000])
def test_rows_of_parquet_whatever_its_row_groups(tmp_path: Path, group_size: int) -> None:
    path = write_rollouts(tmp_path / "step_000001.parquet", [[1.0, 0.0]] * 10)
    pq.write_table(pq.read_table(path), path, row_group_size=group_size)
    stored = read_all(path)
    file = open_rows(path)
    found = read_rows(file, [19, 0, 6, 7, 13], tokens=True)
    for number, row in zip([19, 0, 6, 7, 13], found, strict=True):
        for name in ("problem_id", "sample", "completion", "advantage", "components", "ids"):
            assert row[name] == stored[number][name]
    assert "ids" not in read_rows(file, [0])[0]


def test_parquet_that_is_none_or_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"no parquet")
    with pytest.raises(DataError, match="damaged"):
        open_rows(path)
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(DataError, match="no file of rollouts"):
        open_rows(path)


def test_results_get_the_tokens_of_the_responses_beside_them(tmp_path: Path) -> None:
    stored = read_all(write_rollouts(tmp_path / "responses.parquet", [[1.0, 0.0], [0.0, 1.0]]))
    rows = [
        results_row(row["problem_id"], row["sample"], response=row["completion"])
        for row in reversed(stored)
    ]
    rows[1]["response"] = "sampled again since"
    file = open_rows(write_jsonl(tmp_path / "results.jsonl", rows))
    found = read_rows(file, [0, 1], tokens=True)
    assert found[0]["ids"] == [5, 6, 7]
    assert found[0]["mask"] == [True, True, False]
    assert "ids" not in found[1]


@pytest.mark.parametrize(
    "needle", ["Needle", "NEEDLE 7", "\\frac{1}", "é", '"quoted"', "line\nbreak"]
)
def test_search_finds_what_a_plain_search_finds(tmp_path: Path, needle: str) -> None:
    texts = ["a needle 7", r"\frac{1}{2}", "caf\u00c9", 'so "quoted"', "line\nbreak", "nothing"] * 3
    rows = [results_row(f"p/{n}", response=text) for n, text in enumerate(texts)]
    rows[5] |= {"prompt": "NEEDLE 7", "subject": "needle"}  # the subject is not searched
    rows[11] |= {"subject": "needle 7 é"}
    expected = [
        any(needle.lower() in str(row[name]).lower() for name in ("prompt", "response"))
        for row in rows
    ]
    assert any(expected)
    assert not all(expected)
    for ascii_only in (True, False):
        path = tmp_path / f"{ascii_only}.jsonl"
        lines = (json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows)
        path.write_text("".join(lines), encoding="utf-8")
        assert matching_rows(open_rows(path), needle).tolist() == expected


def test_search_in_parquet(tmp_path: Path) -> None:
    file = open_rows(write_rollouts(tmp_path / "a.parquet", [[1.0, 0.0], [1.0, 0.0]]))
    assert matching_rows(file, "1+1").tolist() == [False, False, True, True]
    assert matching_rows(file, "SO</THINK> 2").tolist() == [False, False, True, True]
