"""A copy of a file without some rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from preparation_files import dapo_row, write_parquet
from pyarrow import parquet

from workings.data.preparation.without_rows import check_copy, copy_without
from workings.data.streaming import stream_file
from workings.errors import DataError


def test_lines_are_copied_byte_for_byte(tmp_path: Path) -> None:
    source, target = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    source.write_bytes(b'{"a":1}\n\n{"b" : 2}\r\n{broken\n{"c":"\xe2\x80\xa8"}')
    assert copy_without(source, target, {1}) == 3
    assert target.read_bytes() == b'{"a":1}\n{broken\n{"c":"\xe2\x80\xa8"}\n'


def test_parquet_keeps_schema_and_values(tmp_path: Path) -> None:
    rows = [dapo_row(n) for n in range(2500)]
    source = write_parquet(tmp_path / "a.parquet", rows, row_group_size=600)
    dropped = {0, 599, 600, 1024, 2499}
    assert copy_without(source, tmp_path / "b.parquet", dropped) == 2495
    copied = parquet.read_table(tmp_path / "b.parquet")
    assert copied.schema == parquet.read_schema(source)
    assert copied.to_pylist() == [row for n, row in enumerate(rows) if n not in dropped]


def test_nothing_is_overwritten_or_left_half(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text("{}\n")
    with pytest.raises(DataError, match="exists"):
        copy_without(source, source, set())
    with pytest.raises(DataError, match="cannot be written") as raised:
        copy_without(source, tmp_path / "b.parquet", set())
    assert "both must end alike" in str(raised.value.hint)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(
        write_parquet(tmp_path / "c.parquet", [{"a": "x" * 99}] * 9).read_bytes()[:-9]
    )
    with pytest.raises(Exception, match=r"[Pp]arquet"):
        copy_without(broken, tmp_path / "d.parquet", set())
    assert not list(tmp_path.glob("*d.parquet*"))


@pytest.mark.parametrize("content", ['[{"a": 1}, {"a": 2}]', '\ufeff\n[\n  {"a": 1}\n]\n', "[]"])
def test_an_array_has_no_lines_to_leave_out(content: str, tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match="holds one JSON array") as raised:
        check_copy(source, tmp_path / "b.jsonl")
    assert "one JSON object on each line" in str(raised.value.hint)
    with pytest.raises(DataError, match="holds one JSON array"):
        copy_without(source, tmp_path / "b.jsonl", set())
    assert list(tmp_path.iterdir()) == [source]


def test_rows_have_the_numbers_that_reading_gives_them(tmp_path: Path) -> None:
    """A mark of byte order is blank at the beginning of the file, and a broken row elsewhere."""
    source, target = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    mark = b"\xef\xbb\xbf"
    source.write_bytes(mark + b'\n{"a":0}\n' + mark + b'\n{"a":2}\n{"a":3}\n')
    rows = list(stream_file(source))
    assert [row.values for row in rows] == [{"a": 0}, None, {"a": 2}, {"a": 3}]
    copy_without(source, target, {2})
    assert target.read_bytes() == b'{"a":0}\n' + mark + b'\n{"a":3}\n'
