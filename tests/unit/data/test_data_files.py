"""Reading single files: every kind, and what is said about a damaged one."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from workings.data.files import read_file
from workings.errors import DataError

ROWS: list[dict[str, object]] = [
    {"prompt": "2+2?", "response": "4"},
    {"prompt": "é", "response": ""},
]


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".csv"])
def test_every_kind_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    if suffix == ".jsonl":
        write(path, "\n".join(json.dumps(row) for row in ROWS))
    elif suffix == ".json":
        write(path, json.dumps(ROWS, indent=1))
    elif suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        write(path, "prompt,response\n2+2?,4\né,\n")
    assert read_file(path) == ROWS


@given(st.text())
def test_jsonl_is_cut_at_newlines_only(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        row = json.dumps({"response": text}, ensure_ascii=False)
        path.write_bytes((row + "\n" + row + "\n").encode("utf-8", "surrogatepass"))
        if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
            return
        assert read_file(path) == [{"response": text}] * 2


def test_jsonl_keeps_line_separators_inside_a_response(tmp_path: Path) -> None:
    text = "one\u2028two\x85three\x0cfour\x1cfive"
    path = write(tmp_path / "a.jsonl", json.dumps({"r": text}, ensure_ascii=False) + "\r\n\n")
    assert read_file(path) == [{"r": text}]


def test_a_byte_order_mark_is_not_data(tmp_path: Path) -> None:
    assert read_file(write(tmp_path / "a.jsonl", '\ufeff{"a": 1}\n')) == [{"a": 1}]
    assert read_file(write(tmp_path / "a.json", '\ufeff[{"a": 1}]')) == [{"a": 1}]


def test_a_json_file_of_lines_is_read_as_lines(tmp_path: Path) -> None:
    assert read_file(write(tmp_path / "a.json", '{"a": 1}\n{"a": 2}\n')) == [{"a": 1}, {"a": 2}]


def test_csv_keeps_text_as_text_and_long_values(tmp_path: Path) -> None:
    long = "x" * 200_000
    limit = csv.field_size_limit()
    path = write(tmp_path / "a.csv", f'id,text\n007,"a,\nb"\n8,{long}\n')
    assert read_file(path) == [{"id": "007", "text": "a,\nb"}, {"id": "8", "text": long}]
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', r"line 2, column \d+: not JSON"),
        ("a.jsonl", "[1]\n", "line 1: a list; expected a JSON object"),
        ("a.json", "[1, 2]", "row 0: a int; expected a JSON object"),
        ("a.json", "3", "holds a int; expected an array of objects"),
        ("a.csv", "a,b\n1,2,3\n", r"row 0: 3 values for 2 columns \(a, b\)"),
        ("a.csv", 'a\n"x"y\n', "line 2"),
        ("a.parquet", "no", "not a readable parquet file"),
        ("a.txt", "no", r"not a kind of file that can be read; known: \.jsonl"),
    ],
)
def test_a_damaged_file_says_where(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_file(write(tmp_path / name, content))


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(DataError, match="not UTF-8 text"):
        read_file(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_file(tmp_path / "none.jsonl")
