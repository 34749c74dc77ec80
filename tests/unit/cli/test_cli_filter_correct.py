"""`workings data filter-correct` as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workings.cli.main import main

Captured = pytest.CaptureFixture[str]
ROWS = [
    ("4", "so </think> <answer>4</answer>"),
    ("4", "so </think> <answer>5</answer>"),
    (None, "so </think> <answer>4</answer>"),
    ("7", "<think>so </think> <answer>7</answer>"),
    ("7", r"so \boxed{7}"),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "traces.jsonl"
    lines = [
        json.dumps({"problem": f"q{n}", "answer": gold, "response": text})
        for n, (gold, text) in enumerate(ROWS)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_rows_graded_right_are_written_with_a_card(source: Path, capsys: Captured) -> None:
    output = source.with_name("correct.jsonl")
    assert main(["data", "filter-correct", str(source), str(output)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{output}\n"
    assert "of 5 rows: kept 2, wrong 2, unusable gold 0, no gold 1" in captured.err
    kept = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["problem"] for row in kept] == ["q0", "q3"]
    assert [row["response"] for row in kept] == [ROWS[0][1], ROWS[3][1]]
    card = json.loads(output.with_name("correct.card.json").read_text())
    assert card["rows"] == {"kept": 2, "wrong": 2, "unusable_gold": 0, "no_gold": 1}
    assert (card["template"], card["reward"]["reward"]) == ("r1_zero", "r1_zero")
    assert card["data"]["rows_read"] == 5


def test_settings_choose_reward_and_rows(source: Path, capsys: Captured) -> None:
    output = source.with_name("correct.parquet")
    arguments = ["data", "filter-correct", str(source), str(output), "reward=question_only"]
    assert main([*arguments, "data.template=own", "data.train.limit=5"]) == 0
    assert "kept 1, wrong 3" in capsys.readouterr().err
    assert main([*arguments, "data.template=own"]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err


def test_no_right_response_is_an_error_that_says_what_to_check(
    source: Path, capsys: Captured
) -> None:
    output = source.with_name("correct.jsonl")
    assert main(["data", "filter-correct", str(source), str(output), "reward=tags"]) == 2
    error = capsys.readouterr().err
    assert "none of the 5 responses is right under tags" in error
    assert "reward.name and data.template" in error
    assert not output.exists()


def test_another_ending_is_refused_before_anything_is_graded(
    source: Path, capsys: Captured
) -> None:
    assert main(["data", "filter-correct", str(source), "out.csv"]) == 2
    error = capsys.readouterr().err
    assert "expected .jsonl or .parquet" in error
    assert "kept" not in error
