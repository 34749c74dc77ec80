"""`workings data contamination` as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workings.cli.main import main

Captured = pytest.CaptureFixture[str]
LONG = "How many different ways are there to put seven red and three blue books on one shelf?"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A training set of five rows, of which two overlap with the benchmark beside it."""
    train, bench = tmp_path / "train.jsonl", tmp_path / "bench.jsonl"
    rows = [
        {"id": "a", "problem": "Find x.", "response": "no"},
        {"id": "b", "problem": f"Think. {LONG}", "response": "120"},
        {"id": "c", "problem": "Find z.", "response": f"Before: {LONG}"},
        {"id": "d", "problem": "Find w.", "response": "no"},
        {"id": "e", "problem": None, "response": "no"},
    ]
    train.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\n")
    tasks = [{"problem": LONG, "answer": "120"}, {"problem": "find $x$", "answer": "1"}]
    bench.write_text("".join(json.dumps(row) + "\n" for row in tasks))
    return train, bench


def test_the_table_the_report_and_the_copy(files: tuple[Path, Path], capsys: Captured) -> None:
    train, bench = files
    report, clean = train.with_name("report.json"), train.with_name("clean.jsonl")
    arguments = ["data", "contamination", str(train), "--against", str(bench)]
    assert main([*arguments, "--out", str(report), "--clean", str(clean)]) == 0
    captured = capsys.readouterr()
    heading, line = captured.out.splitlines()
    assert heading.split() == [
        *("benchmark", "questions", "found", "exact", "whole", "ngram", "share>=0.5", "rows"),
    ]
    assert line.split() == ["bench", "2", "2", "(100.0%)", "1", "0", "1", "2", "2"]
    assert "2 of 5 rows overlap; 1 rows cannot be read; 1 rows have no question" in captured.err
    told = json.loads(report.read_text())
    assert told["train"]["inputs"][0]["file"] == "train.jsonl"
    assert len(told["train"]["inputs"][0]["sha256"]) == 64
    examples = told["benchmarks"]["bench"]["examples"]
    assert examples["exact"] == [{"row": "row 0 (a)", "question": "bench/1", "share": 1.0}]
    assert examples["ngram"] == [{"row": "row 1 (b)", "question": "bench/0", "share": 1.0}]
    assert LONG not in report.read_text()
    lines = train.read_text().splitlines()
    assert clean.read_text().splitlines() == lines[2:]
    assert main([*arguments, "--clean", str(clean)]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err


def test_responses_and_json(files: tuple[Path, Path], capsys: Captured) -> None:
    train, bench = files
    arguments = ["data", "contamination", str(train), "--against", str(bench), "--json"]
    assert main([*arguments, "--responses"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows_overlapping"], told["text"]) == (3, "question and responses")
    assert main([*arguments, "--ngram", "99"]) == 0
    assert json.loads(capsys.readouterr().out)["rows_overlapping"] == 2  # the whole question


def test_wrong_columns_and_names_are_said(files: tuple[Path, Path], capsys: Captured) -> None:
    train, bench = files
    arguments = ["data", "contamination", str(train), "--against", str(bench)]
    assert main([*arguments, "--question", "query"]) == 2
    error = capsys.readouterr().err
    assert "name the column with --question" in error
    assert "its columns: id, problem, response; 1 more cannot be read" in error
    assert main(["data", "contamination", str(train), "--against", "math500,"]) == 2
    assert "a benchmark's name is empty" in capsys.readouterr().err
    assert main([*arguments, "--clean", str(train.with_suffix(".csv"))]) == 2
    assert "both must end alike" in capsys.readouterr().err


def test_a_report_takes_no_place_that_is_taken(files: tuple[Path, Path], capsys: Captured) -> None:
    train, bench = files
    before = train.read_bytes()
    arguments = ["data", "contamination", str(train), "--against", str(bench), "--out"]
    assert main([*arguments, str(train)]) == 2
    assert "is the training set itself" in capsys.readouterr().err
    assert main([*arguments, str(train.parent)]) == 2
    assert "is a folder" in capsys.readouterr().err
    assert main([*arguments, str(bench / "report.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert train.read_bytes() == before


def test_a_copy_of_an_array_is_refused_before_anything_is_written(
    files: tuple[Path, Path], capsys: Captured
) -> None:
    _, bench = files
    array = bench.with_name("array.jsonl")
    array.write_text(json.dumps([{"problem": LONG}, {"problem": "Find w."}], indent=1))
    clean, report = array.with_name("clean.jsonl"), array.with_name("report.json")
    arguments = ["data", "contamination", str(array), "--against", str(bench)]
    assert main([*arguments, "--clean", str(clean), "--out", str(report)]) == 2
    assert "holds one JSON array" in capsys.readouterr().err
    assert not clean.exists()
    assert not report.exists()
    assert main(arguments) == 0
    assert "1 of 2 rows overlap" in capsys.readouterr().err


def test_choices_that_cannot_be_read_are_counted(
    files: tuple[Path, Path], capsys: Captured
) -> None:
    train, bench = files
    rows = [{"problem": LONG, "options": "5 or 6"}, {"problem": "Find w.", "options": ["1", "2"]}]
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["data", "contamination", str(train), "--against", str(bench), "--json"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert (told["rows_choices_unreadable"], told["rows_overlapping"]) == (1, 1)
    assert "1 rows are compared without their choices" in captured.err
    assert "(first: line 1: the options '5 or 6'" in captured.err


@pytest.mark.parametrize(
    ("name", "questions"),
    [("mmlu_math", 1189), ("mmlu_stem", 3005), ("aqua", 254), ("sat_math", 32)],
)
def test_a_benchmark_of_multiple_choice_is_found_in_its_own_rows(
    name: str,
    questions: int,
    shared_data: Path,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As published, with the choices in a column of their own, and with them in the text."""
    monkeypatch.setenv("WORKINGS_DATA_DIR", str(shared_data))
    out = str(tmp_path / "eval")
    assert main(["data", "prepare", "benchmarks", "--sets", name, "--out", out]) == 0
    capsys.readouterr()
    for train in (name, f"{out}/{name}/test.jsonl"):
        assert main(["data", "contamination", train, "--against", name, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["benchmarks"][name]
        assert found["questions"] == questions
        assert found["questions_by_kind"] == {"exact": questions, "whole": 0, "ngram": 0}


def test_questions_of_mmlu_stand_in_the_training_set_of_math(
    shared_data: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MATH asks them without choices."""
    monkeypatch.setenv("WORKINGS_DATA_DIR", str(shared_data))
    arguments = ["data", "contamination", "math_train", "--against", "mmlu_math", "--json"]
    assert main([*arguments, "--min-share", "0.5"]) == 0
    found = json.loads(capsys.readouterr().out)["benchmarks"]["mmlu_math"]
    assert found["questions_by_kind"] == {"exact": 71, "whole": 0, "ngram": 1}


def test_real_sets_by_name(
    shared_data: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIMR is a part of MATH's training problems, and shares none with GSM8K's test."""
    monkeypatch.setenv("WORKINGS_DATA_DIR", str(shared_data))
    assert main(["data", "contamination", "limr_1389", "--against", "gsm8k,math500", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == 1389
    by_kind = {name: found["questions_by_kind"] for name, found in told["benchmarks"].items()}
    assert by_kind["gsm8k"] == {"exact": 0, "whole": 0, "ngram": 0}
    assert by_kind["math500"]["exact"] == 0
