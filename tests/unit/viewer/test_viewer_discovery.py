"""Runs and evaluations are found by themselves, with names that tell them apart."""

from __future__ import annotations

import os
from pathlib import Path

from viewer_files import write_evaluation, write_jsonl, write_rollouts

from workings.viewer.discovery import discover, newest_together

ROW = {"step": 1, "kind": "train", "time": 0.0, "train/loss": 1.0}


def test_everything_is_found_newest_first(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    write_jsonl(root / "sft/metrics.jsonl", [ROW])
    write_jsonl(root / "grpo/metrics.jsonl", [ROW])
    write_jsonl(root / ".old/metrics.jsonl", [ROW])
    files = {
        "grpo/eval/step_000020/sums/results.jsonl": "grpo · step 20 · sums",
        "grpo/rollouts/step_000007.parquet": "grpo · rollouts · step 7",
        "test/base/sums/results.jsonl": "test/base · sums",
        "test/new/sums/responses.parquet": "test/new · sums · not graded",
    }
    for age, name in enumerate(files):
        path = root / name
        if path.suffix == ".parquet":
            write_rollouts(path, [[1.0]])
        else:
            write_evaluation(path.parent, ["11", "10"])
        os.utime(path, (1e9 - age, 1e9 - age))
    os.utime(root / "grpo/metrics.jsonl", (1e9, 1e9))
    os.utime(root / "sft/metrics.jsonl", (1e9 - 5, 1e9 - 5))
    found = discover(root)
    assert [run.name for run in found.runs] == ["grpo", "sft"]
    assert {file.name: file.label for file in found.responses} == files
    assert [file.name for file in found.responses] == list(files)
    assert {file.evaluation for file in found.summaries} == {"grpo · step 20", "test/base"}
    assert [file.dataset for file in newest_together(found.responses, 5)] == ["sums"] * 3
    assert found.run("sft") is not None
    assert found.response_file("../x") is None


def test_the_folder_may_be_a_run_or_an_evaluation_itself(tmp_path: Path) -> None:
    run = tmp_path / "mine"
    write_jsonl(run / "metrics.jsonl", [ROW])
    write_evaluation(run / "sums", ["11"])
    found = discover(run)
    assert [(one.name, one.label) for one in found.runs] == [(".", "mine")]
    assert [one.label for one in found.responses] == ["mine · sums"]
    assert [one.label for one in discover(run / "sums").responses] == ["sums · sums"]


def test_an_empty_folder(tmp_path: Path) -> None:
    found = discover(tmp_path)
    assert (found.runs, found.responses, found.summaries) == ((), (), ())
    assert newest_together((), 3) == ()
