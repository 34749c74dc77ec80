"""Rows one after another: the same as those of the whole file, and broken ones in their place."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from workings.data.files import read_file
from workings.data.streaming import StreamedRow, count_rows, stream_file, stream_jsonl
from workings.errors import DataError

ROWS = [{"a": "1", "b": "x,\n\u2028é"}, {"a": "2", "b": ""}, {"a": "3", "b": '"'}]


def _write(path: Path, rows: list[dict[str, str]]) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    elif path.suffix == ".csv":
        quoted = [
            '"' + '","'.join(v.replace('"', '""') for v in row.values()) + '"' for row in rows
        ]
        path.write_bytes("\r\n".join(["a,b", *quoted]).encode())
    else:
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        path.write_text("\n\n".join(lines), encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".json", ".parquet", ".csv"])
def test_streamed_rows_are_those_of_the_whole_file(tmp_path: Path, suffix: str) -> None:
    path = _write(tmp_path / f"rows{suffix}", ROWS)
    rows = list(stream_file(path))
    assert [row.values for row in rows] == read_file(path) == ROWS
    assert [row.index for row in rows] == [0, 1, 2]
    assert all(row.fault is None for row in rows)


def test_lines_are_where_the_rows_begin(tmp_path: Path) -> None:
    jsonl = _write(tmp_path / "rows.jsonl", ROWS)
    assert [row.line for row in stream_file(jsonl)] == [1, 3, 5]
    csv = _write(tmp_path / "rows.csv", ROWS)
    assert [row.line for row in stream_file(csv)] == [2, 4, 5]
    array = _write(tmp_path / "rows.json", ROWS)
    assert [row.place for row in stream_file(array)] == ["row 0", "row 1", "row 2"]


def test_a_broken_line_is_told_and_the_next_is_read() -> None:
    nested = "[" * 100_000
    lines = [b'\xef\xbb\xbf{"a": 1}', b'{"a": ', b"[1]", b'"\xff"', nested.encode(), b"9" * 5000]
    lines += [b"  ", b'{"a": 2}']
    rows = list(stream_jsonl(io.BytesIO(b"\r\n".join(lines))))
    assert [row.values for row in rows] == [{"a": 1}, None, None, None, None, None, {"a": 2}]
    assert [row.line for row in rows] == [1, 2, 3, 4, 5, 6, 8]
    faults = [row.fault or "" for row in rows[1:-1]]
    assert faults[0] == "not JSON: Expecting value at column 6"
    assert faults[1] == "a list; expected a JSON object"
    assert faults[2].startswith("not UTF-8 text")
    assert all(fault.startswith("JSON that cannot be read") for fault in faults[3:])


def test_broken_rows_of_other_kinds(tmp_path: Path) -> None:
    array = tmp_path / "rows.json"
    array.write_text('[{"a": 1}, 5]')
    assert [row.fault for row in stream_file(array)] == [None, "a int; expected a JSON object"]
    lines = tmp_path / "lines.json"
    lines.write_text('{"a": 1}\n{"a"\n{"a": 2}\n')
    assert [row.values for row in stream_file(lines)] == [{"a": 1}, None, {"a": 2}]
    table = tmp_path / "rows.csv"
    table.write_text('a,b\n1,2\n1,2,3\n"1"x,2\n4,5\n')
    rows = list(stream_file(table))
    assert [row.values for row in rows] == [{"a": "1", "b": "2"}, None, None, {"a": "4", "b": "5"}]
    assert rows[1].fault == "3 values for 2 columns; values that hold commas need quotes"
    assert (rows[2].fault or "").startswith("not CSV: ")
    assert rows[2].place == "line 4"


def test_a_long_csv_value_is_read_and_the_module_left_as_it_was(tmp_path: Path) -> None:
    import csv

    before = csv.field_size_limit()
    path = tmp_path / "rows.csv"
    path.write_text(f"a,b\n{'x' * 200_000},2\n")
    (row,) = stream_file(path)
    assert row.values == {"a": "x" * 200_000, "b": "2"}
    assert csv.field_size_limit() == before


def test_only_wanted_columns_of_parquet_are_read(tmp_path: Path) -> None:
    path = _write(tmp_path / "rows.parquet", ROWS)
    assert [row.values for row in stream_file(path, columns=["b", "c"])] == [
        {"b": row["b"]} for row in ROWS
    ]


@pytest.mark.parametrize(("suffix", "count"), [(".jsonl", 5), (".parquet", 3), (".csv", None)])
def test_rows_are_counted_where_that_is_cheap(
    tmp_path: Path, suffix: str, count: int | None
) -> None:
    """A blank line of JSONL counts: the number is for a progress bar."""
    assert count_rows(_write(tmp_path / f"rows{suffix}", ROWS)) == count


def test_lines_are_counted_with_and_without_a_last_newline(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for text, count in (("", 0), ("{}", 1), ("{}\n", 1), ("{}\n{}", 2)):
        path.write_text(text)
        assert count_rows(path) == count


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.txt", b"", "rows.txt is not a kind of file that can be read; known: .jsonl"),
        ("rows.json", b"5", "rows.json holds a int; expected an array of objects"),
        ("rows.json", b"[1,", "rows.json is not JSON: "),
        ("rows.csv", b"a\n\xff\n", "rows.csv is not UTF-8 text: "),
        ("rows.csv", b'"a"b\n1\n', "rows.csv, line 1: "),
        ("rows.parquet", b"PAR1", "rows.parquet is not a readable parquet file: "),
    ],
)
def test_a_file_that_cannot_be_read(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as raised:
        list(stream_file(tmp_path / name))
    assert message in raised.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for read in (lambda path: list(stream_file(path)), count_rows):
        with pytest.raises(DataError, match=r"gone.jsonl cannot be read: No such file"):
            read(tmp_path / "gone.jsonl")


@given(st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=9), min_size=1), max_size=9))
def test_any_objects_survive_jsonl(rows: list[dict[str, str]]) -> None:
    lines = "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in rows)
    streamed = list(stream_jsonl(io.BytesIO(lines.encode())))
    assert streamed == [
        StreamedRow(index=index, line=index + 1, values=row) for index, row in enumerate(rows)
    ]
