"""Benchmarks as files in one schema."""

from __future__ import annotations

from pathlib import Path

import pytest
from preparation_files import read_jsonl, write_jsonl
from pyarrow import parquet

from workings.data.loading import load_problems
from workings.data.preparation.benchmarks import (
    Benchmark,
    every_benchmark,
    find_benchmarks,
    prepare_benchmark,
    questions_of,
    select_benchmarks,
)
from workings.data.preparation.checksums import sha256_of
from workings.errors import ConfigError, DataError


def write(benchmark: Benchmark, target: Path) -> dict[str, object]:
    return prepare_benchmark(benchmark, target, command="c", versions={}, log=lambda _: None)


@pytest.mark.parametrize(
    ("name", "file", "problems"),
    [
        ("gsm8k", "gsm8k_test", 1319),
        ("math500", "math500", 500),
        ("aime24", "aime24", 30),
        ("amc", "amc_2022_23_83", 83),
        ("svamp", "svamp", 1000),
        ("aqua", "aqua", 254),
    ],
)
def test_a_real_benchmark_in_one_schema(
    name: str, file: str, problems: int, shared_data: Path, tmp_path: Path
) -> None:
    """M-035: data/eval/{set}/test.jsonl; golds are those of the file, reduced."""
    (benchmark,) = find_benchmarks(name, folder=shared_data)
    record = write(benchmark, tmp_path / name)
    rows = read_jsonl(tmp_path / name / "test.jsonl")
    source = parquet.read_table(shared_data / f"{file}.parquet").to_pylist()
    assert len(rows) == problems == len(source)
    assert record["inputs"] == [
        {
            "file": f"{file}.parquet",
            "bytes": (shared_data / f"{file}.parquet").stat().st_size,
            "sha256": sha256_of(shared_data / f"{file}.parquet"),
        }
    ]
    assert list(rows[0])[:6] == ["id", "problem", "answer", "subject", "level", "source"]
    assert len({row["id"] for row in rows}) == problems
    for row, original in zip(rows, source, strict=True):
        assert row["problem"].startswith(original["problem"])
        if name != "aqua":
            assert row["problem"] == original["problem"]
    again = load_problems(tmp_path / name, split="test")
    assert [p.question for p in again.items] == [row["problem"] for row in rows]
    assert [p.answer for p in again.items] == [row["answer"] for row in rows]


def test_rows_that_repeat_a_problem_are_written_once(shared_data: Path, tmp_path: Path) -> None:
    """6,023 rows for avg@32 are 1,590 problems."""
    (benchmark,) = find_benchmarks("luffy_valid", folder=shared_data)
    record = write(benchmark, tmp_path / "luffy_valid")
    assert record["rows"] == {
        "read": 6023,
        "written": {"test.jsonl": 1590},
        "dropped": {"repeated": 4433},
        "changed": {},
    }


def test_names_suites_paths_and_wrong_names(shared_data: Path, tmp_path: Path) -> None:
    suite = [b.name for b in select_benchmarks(["luffy_maths", "math500"], folder=shared_data)]
    assert suite == ["aime24", "aime25", "amc", "math500", "minerva_math", "olympiadbench"]
    names = [benchmark.name for benchmark in every_benchmark(folder=shared_data)]
    assert len(names) > 20
    assert "arithmetic" not in names
    path = write_jsonl(tmp_path / "mine/test.jsonl", [{"problem": "1+1?", "answer": "2"}])
    (mine,) = find_benchmarks(str(path))
    assert (mine.name, mine.files) == ("mine", (path,))
    with pytest.raises(ConfigError, match="a benchmark's name is empty"):
        select_benchmarks(["math500", ""])
    with pytest.raises(DataError, match="is not a folder"):
        find_benchmarks("math500", folder=tmp_path / "none")


def test_an_unknown_benchmark_names_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKINGS_DATA_DIR", raising=False)
    with pytest.raises(ConfigError, match="did you mean 'math500'"):
        find_benchmarks("math50")


def test_an_unknown_name_beside_a_folder_of_data_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKINGS_DATA_DIR", str(tmp_path))
    write_jsonl(tmp_path / "mine.jsonl", [{"problem": "1+1?", "answer": "2"}])
    (mine,) = find_benchmarks("mine")
    assert mine.load().items[0].question == "1+1?"
    for name, nearest in (("gsm", "gsm8k"), ("luffy_math", "luffy_maths")):
        with pytest.raises(ConfigError, match=f"did you mean '{nearest}'") as raised:
            find_benchmarks(name)
        assert str(tmp_path) in str(raised.value.hint)


def test_questions_without_golds_count_for_contamination(shared_data: Path) -> None:
    notes: list[str] = []
    (found,) = questions_of(["simple_safety_tests"], folder=shared_data, log=notes.append)
    assert len(found.ids) == 100
    assert notes[0].startswith("simple_safety_tests: 100 distinct questions from ")
