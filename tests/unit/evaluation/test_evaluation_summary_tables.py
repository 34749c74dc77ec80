"""metrics_summary.csv and its pivot."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from workings.errors import DataError
from workings.evaluation.reports import write_results
from workings.evaluation.summary_tables import summary_rows, write_metrics_summary


def settings(model: str, temperature: float) -> dict[str, object]:
    sampling = {"temperature": temperature, "top_p": 1.0, "max_tokens": 64}
    return {"model": model, "template": "r1_zero", "sampling": sampling, "seed": 0}


def test_a_tree_becomes_one_table_and_one_pivot(tmp_path: Path, make_result) -> None:
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
    write_metrics_summary(tmp_path)
    assert len(summary_rows(tmp_path)) == 8


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


def test_an_empty_tree_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no summary\.json anywhere below"):
        summary_rows(tmp_path)
