"""results.jsonl and summary.json, by the schema that earlier readers know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.errors import DataError
from workings.evaluation.intervals import mean_interval, wilson_interval
from workings.evaluation.reports import read_results, read_summary, summarise_results, write_results
from workings.evaluation.result import summarise, with_entropies

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
    subjects, levels = summary["subject_breakdown"], summary["level_breakdown"]
    counts = {name: (one["correct"], one["total"]) for name, one in (subjects | levels).items()}
    assert counts == {"Algebra": (1, 2), "Geometry": (0, 2), "Level 1": (1, 4)}
    assert [one["accuracy"] for one in subjects.values()] == [0.5, 0.0]
    assert (subjects["Geometry"]["low"], subjects["Geometry"]["high"]) == wilson_interval(0, 1)
    assert summary["subject_average"]["value"] == 0.25
    level = levels["Level 1"]
    assert (level["accuracy"], level["num_problems"]) == (0.25, 2)
    assert (level["low"], level["high"]) == mean_interval([0.5, 0.0])
    estimate = summary["estimates"]["avg@2"]
    assert (estimate["value"], estimate["num_problems"], estimate["num_samples"]) == (0.25, 2, 2)
    assert estimate["low"] <= 0.25 <= estimate["high"]
    assert {"avg@2", "pass@1", "pass@2", "maj@2"} == set(summary["estimates"])
    assert summary["settings"] == SETTINGS
    assert summary["metrics"]["num_unusable"] == 1.0
    assert (summary["dataset"], summary["seconds"]) == ("math", 1.5)


def test_strict_and_lenient_stand_apart(result) -> None:
    four_class = summarise_results(result, settings={"grader": {"mode": "four_class"}})
    assert four_class["estimates"]["avg@2"]["value"] == 0.25
    assert four_class["lenient_estimates"]["avg@2"]["value"] == 0.5
    assert four_class["lenient_estimates"].keys() == four_class["estimates"].keys()
    strict = summarise_results(result, settings={"grader": {"mode": "strict"}})
    assert strict["lenient_estimates"] is None
    assert strict["estimates"] == four_class["estimates"]


def test_shares_and_finish_reasons_are_apart_from_accuracy(make_group) -> None:
    groups = [
        make_group("a", "11", "00", extracted=["4", None], finish_reasons=["eos", "length"]),
        make_group("b", "10", "00", extracted=["5", None], finish_reasons=["stop", "length"]),
    ]
    summary = summarise_results(summarise(groups, dataset="p", seed=0), settings={})
    assert summary["finish_reasons"] == {
        "eos": {"count": 1, "percentage": 25.0},
        "stop": {"count": 1, "percentage": 25.0},
        "length": {"count": 2, "percentage": 50.0},
    }
    shares = summary["shares"]
    assert {name: one["value"] for name, one in shares.items()} == {
        "format": 0.5,
        "truncated": 0.5,
        "no_answer": 0.5,
        "undecided": 0.0,
        "refused": 0.0,
        "timeout": 0.0,
        "internal_error": 0.0,
    }
    assert (shares["format"]["low"], shares["format"]["high"]) == mean_interval([0.5, 0.5])
    assert (shares["timeout"]["low"], shares["timeout"]["high"]) == wilson_interval(0, 2)


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
    assert summary["subject_average"] is None


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


def test_rows_have_an_entropy_where_it_was_measured(tmp_path: Path, make_result) -> None:
    result = with_entropies(make_result(1, 2), [[0.25], [float("nan")]])
    folder = write_results(tmp_path, result, settings={})
    assert [row["token_entropy"] for row in read_results(folder)] == [0.25, None]
    assert read_summary(folder)["metrics"]["avg_token_entropy"] == 0.25


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
    (tmp_path / "results.jsonl").write_bytes(b'{"id": 1}\n{"id": "\xff"}\n')
    with pytest.raises(DataError, match=r"line 2 is not JSON: .* can't decode byte 0xff"):
        read_results(tmp_path)
