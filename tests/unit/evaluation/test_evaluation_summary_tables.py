"""metrics_summary.csv and its pivot."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from workings.errors import DataError
from workings.evaluation.headlines import MATHEMATICS
from workings.evaluation.reports import write_results
from workings.evaluation.result import summarise
from workings.evaluation.summary_tables import pivot, summary_rows, write_metrics_summary


def settings(
    model: str, temperature: float, cuts: dict[str, float] | None = None, **more: object
) -> dict[str, object]:
    sampling = {"temperature": temperature, "top_p": 1.0, "max_tokens": 64, **(cuts or {})}
    return {"model": model, "template": "r1_zero", "sampling": sampling, "seed": 0, **more}


def test_a_tree_becomes_one_table_and_its_pivots(tmp_path: Path, make_result) -> None:
    for model, right in [("base", 2), ("trained", 7)]:
        for temperature in (0.0, 1.0):
            folder = tmp_path / model / f"T{temperature}"
            for dataset in ("gsm8k", "math500"):
                result = make_result(right, 8, dataset=dataset)
                write_results(folder, result, settings=settings(model, temperature))
    table, pivoted = write_metrics_summary(tmp_path)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert rows[0]["folder"] == "base/T0.0/gsm8k"
    assert rows[0]["setting"] == "template=r1_zero temperature=0.0 top_p=1.0 max_tokens=64 seed=0"
    assert (rows[0]["estimate"], rows[0]["accuracy"], rows[0]["num_problems"]) == (
        "pass@1",
        "0.25",
        "8",
    )
    assert float(rows[0]["low"]) < 0.25 < float(rows[0]["high"])
    with pivoted.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["model"], line["gsm8k"], line["math500"]) for line in lines] == [
        ("base", "0.25", "0.25"),
        ("base", "0.25", "0.25"),
        ("trained", "0.875", "0.875"),
        ("trained", "0.875", "0.875"),
    ]
    assert float(lines[0]["gsm8k_low"]) < 0.25
    assert lines[0]["avg"] == "0.25"
    assert float(lines[0]["gsm8k_low"]) < float(lines[0]["avg_low"]) < 0.25
    with (tmp_path / "metrics_summary_by_setting.csv").open(newline="") as file:
        by_setting = list(csv.DictReader(file))
    assert [(line["dataset"], line["base"], line["trained"]) for line in by_setting] == [
        ("gsm8k", "0.25", "0.875"),
        ("gsm8k", "0.25", "0.875"),
        ("math500", "0.25", "0.875"),
        ("math500", "0.25", "0.875"),
    ]
    assert float(by_setting[0]["trained_high"]) > 0.875
    write_metrics_summary(tmp_path)
    assert len(summary_rows(tmp_path)) == 8


def test_strict_and_lenient_have_columns_of_their_own(tmp_path: Path, make_group) -> None:
    result = summarise([make_group("a", "11"), make_group("b", "01")], dataset="sums", seed=0)
    write_results(tmp_path, result, settings={"grader": {"mode": "four_class"}})
    (row,) = summary_rows(tmp_path)
    assert (row["accuracy"], row["lenient_accuracy"]) == (0.5, 1.0)
    assert row["lenient_low"] < 1.0 == row["lenient_high"]
    assert (row["format_accuracy"], row["no_answer_rate"], row["timeout_rate"]) == (0.5, 0.0, 0.0)
    write_results(tmp_path, result, settings={"grader": {"mode": "strict"}})
    (row,) = summary_rows(tmp_path)
    assert (row["accuracy"], row["lenient_accuracy"]) == (0.5, "")


def test_averages_stand_in_complete_lines_only(tmp_path: Path, make_result) -> None:
    for name in MATHEMATICS:
        write_results(tmp_path / "whole", make_result(1, 4, dataset=name), settings={"model": "w"})
    for name in MATHEMATICS[:2]:
        write_results(tmp_path / "part", make_result(1, 4, dataset=name), settings={"model": "p"})
    headers, (part, whole) = pivot(summary_rows(tmp_path))
    assert headers[-3:] == [
        *("mathematics avg", "mathematics avg_low", "mathematics avg_high"),
    ]
    assert whole["mathematics avg"] == 0.25
    assert "mathematics avg" not in part
    assert "avg" not in headers


def test_earlier_files_take_model_and_setting_from_their_folders(tmp_path: Path) -> None:
    folder = tmp_path / "qwen" / "T0.6_p0.95" / "gsm8k"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(
        '{"total_examples": 4, "aggregate_metrics": {"reward": 0.5, "format_reward": 1.0}}'
    )
    (row,) = summary_rows(tmp_path)
    assert (row["model"], row["setting"], row["dataset"]) == ("qwen", "T0.6_p0.95", "gsm8k")
    assert (row["accuracy"], row["low"], row["answer_reward"]) == (0.5, "", "")


def test_two_evaluations_do_not_share_a_cell(tmp_path: Path, make_result) -> None:
    for name in ("first", "second"):
        write_results(tmp_path / name, make_result(1, 2), settings=settings("base", 0.0))
    with pytest.raises(DataError, match="two evaluations of 'base' on 'sums' with the setting"):
        write_metrics_summary(tmp_path)


def test_what_a_sampling_differs_in_is_in_its_setting(tmp_path: Path, make_result) -> None:
    different = {
        "a": settings("base", 0.6),
        "b": settings("base", 0.6, {"top_k": 20, "min_p": 0.0}),
        "c": settings("base", 0.6, {"top_k": -1, "min_p": 0.1}),
        "d": settings("base", 0.6, num_samples=4, num_samples_asked=4),
        "e": settings("base", 0.6, num_samples=8, num_samples_asked=8),
    }
    for name, one in different.items():
        write_results(tmp_path / name, make_result(1, 2), settings=one)
    write_metrics_summary(tmp_path)
    first, *rest = [row["setting"] for row in summary_rows(tmp_path)]
    assert first == "template=r1_zero temperature=0.6 top_p=1.0 max_tokens=64 seed=0"
    before, after = first.split(" max_tokens")
    assert rest == [
        f"{before} top_k=20 max_tokens{after}",
        f"{before} min_p=0.1 max_tokens{after}",
        first.replace(" seed", " num_samples=4 seed"),
        first.replace(" seed", " num_samples=8 seed"),
    ]


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"num_samples": 32, "num_samples_asked": None}, False),
        ({"num_samples": 1, "num_samples_asked": 1}, True),
        ({"num_samples": 32, "data": {"counted": "avg@32"}}, False),
        ({"num_samples": 1, "data": {"counted": "pass@1"}}, False),
        ({"num_samples": 4, "data": {"counted": "avg@32"}}, True),
        ({"num_samples": 2, "data": {}}, True),
        ({"num_samples": 2, "step": 10}, True),
    ],
)
def test_numbers_of_samples_by_the_data_sets_own_rules_share_a_line(
    more: dict[str, object], shown: bool, tmp_path: Path, make_result
) -> None:
    """With and without "num_samples_asked", which earlier files lack."""
    write_results(tmp_path, make_result(1, 2), settings=settings("base", 0.6, **more))
    (row,) = summary_rows(tmp_path)
    assert ("num_samples=" in row["setting"]) is shown


def test_an_empty_tree_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no summary\.json anywhere below"):
        summary_rows(tmp_path)
