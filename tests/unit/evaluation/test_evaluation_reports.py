"""results.jsonl and summary.json, by the schema that earlier readers know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.errors import DataError
from workings.evaluation.reports import read_results, read_summary, summarise_results, write_results
from workings.evaluation.result import summarise

SETTINGS = {"model": "tiny", "template": "r1_zero", "sampling": {"temperature": 0.0}, "seed": 3}


@pytest.fixture
def result(make_group):
    groups = [
        make_group("math/1", "11", "10", subject="Algebra", level="Level 1"),
        make_group("math/2", "00", "01", subject="Geometry", level="Level 1"),
        make_group("math/3", "bad gold", "bad gold", subject="Geometry"),
    ]
    return summarise(groups, dataset="math", seed=0, seconds=1.5)


def test_rows_hold_every_field_of_the_schema(tmp_path: Path, result) -> None:
    folder = write_results(tmp_path, result, settings=SETTINGS)
    assert folder == tmp_path / "math"
    rows = read_results(folder)
    assert len(rows) == 6
    assert rows[1] == {
        "prompt": "Q: 2 + 2?",
        "ground_truth": "4",
        "response": "math/1 says 10",
        "metrics": {"format_reward": 1.0, "answer_reward": 0.0, "reward": 0.0},
        "id": "math/1",
        "sample": 1,
        "subject": "Algebra",
        "level": "Level 1",
        "components": {"format": 1.0, "answer": 0.0},
        "correct": False,
        "extracted": "5",
        "verdict": "different",
        "response_tokens": 4,
        "finish_reason": "eos",
    }
    unusable = rows[4]
    assert unusable["metrics"] == {"format_reward": None, "answer_reward": None, "reward": None}
    assert (unusable["correct"], unusable["verdict"]) == (None, "bad_gold")


def test_the_summary_holds_every_field_of_the_schema(tmp_path: Path, result) -> None:
    summary = read_summary(write_results(tmp_path, result, settings=SETTINGS))
    assert summary == json.loads((tmp_path / "math" / "summary.json").read_text())
    assert summary["total_examples"] == 6
    assert summary["aggregate_metrics"] == {
        "format_reward": 0.5,
        "answer_reward": 0.5,
        "reward": 0.25,
    }
    assert summary["category_breakdown"] == {
        "category_1_format1_answer1": {"count": 1, "percentage": 25.0},
        "category_2_format1_answer0": {"count": 1, "percentage": 25.0},
        "category_3_format0_answer0": {"count": 1, "percentage": 25.0},
        "category_4_format0_answer1": {"count": 1, "percentage": 25.0},
    }
    assert summary["subject_breakdown"] == {
        "Algebra": {"correct": 1, "total": 2, "accuracy": 0.5},
        "Geometry": {"correct": 0, "total": 2, "accuracy": 0.0},
    }
    assert summary["level_breakdown"] == {"Level 1": {"correct": 1, "total": 4, "accuracy": 0.25}}
    estimate = summary["estimates"]["avg@2"]
    assert (estimate["value"], estimate["num_problems"], estimate["num_samples"]) == (0.25, 2, 2)
    assert estimate["low"] <= 0.25 <= estimate["high"]
    assert {"avg@2", "pass@1", "pass@2", "maj@2"} == set(summary["estimates"])
    assert summary["settings"] == SETTINGS
    assert summary["metrics"]["num_unusable"] == 1.0
    assert (summary["dataset"], summary["seconds"]) == ("math", 1.5)


@given(st.lists(st.sampled_from(["11", "10", "00", "01"]), min_size=1, max_size=40))
def test_percentages_sum_to_100(make_group, classes: list[str]) -> None:
    groups = [make_group(f"p/{index}", name) for index, name in enumerate(classes)]
    summary = summarise_results(summarise(groups, dataset="p", seed=0), settings={})
    cells = summary["category_breakdown"].values()
    assert sum(cell["percentage"] for cell in cells) == pytest.approx(100, abs=1e-9)
    assert sum(cell["count"] for cell in cells) == len(classes)


def test_problems_without_subject_make_no_breakdown(tmp_path: Path, make_result) -> None:
    summary = read_summary(write_results(tmp_path, make_result(3, 4), settings={}))
    assert summary["subject_breakdown"] == {}
    assert summary["level_breakdown"] == {}


def test_writing_again_replaces_both_files(tmp_path: Path, make_result) -> None:
    write_results(tmp_path, make_result(1, 4), settings={})
    folder = write_results(tmp_path, make_result(3, 3), settings={})
    assert len(read_results(folder)) == 3
    assert read_summary(folder / "summary.json")["aggregate_metrics"]["reward"] == 1.0
    assert sorted(path.name for path in folder.iterdir()) == ["results.jsonl", "summary.json"]


def test_files_of_earlier_programs_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(
        '{"total_examples": 2, "aggregate_metrics": {"reward": 0.5}, "category_breakdown": {}}'
    )
    assert read_summary(tmp_path)["total_examples"] == 2


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no evaluation summary at .*summary\.json"):
        read_summary(tmp_path)
    with pytest.raises(DataError, match=r"no evaluation results at .*results\.jsonl"):
        read_results(tmp_path)
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(DataError, match="it has no total_examples and no aggregate_metrics"):
        read_summary(tmp_path)
    (tmp_path / "results.jsonl").write_text('{"id": 1}\n[1]\n')
    with pytest.raises(DataError, match="line 2 holds list; expected a JSON object"):
        read_results(tmp_path)
    (tmp_path / "results.jsonl").write_text("{\n")
    with pytest.raises(DataError, match="line 1 is not JSON"):
        read_results(tmp_path)
