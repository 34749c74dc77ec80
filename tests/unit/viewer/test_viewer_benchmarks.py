"""The table of evaluations, and paired differences as `workings compare` has them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from viewer_files import write_evaluation

from workings.errors import DataError
from workings.evaluation.compare import compare_folders
from workings.viewer.benchmarks import (
    compare,
    comparisons_table,
    evaluations,
    first_compared,
    lines_table,
    read_lines,
)
from workings.viewer.discovery import discover


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_evaluation(tmp_path / "base/sums", ["11"] * 3 + ["10"] * 37)
    write_evaluation(tmp_path / "new/sums", ["11"] * 30 + ["00"] * 10)
    write_evaluation(tmp_path / "other/words", ["11", "10"], model="<b>evil</b>")
    return tmp_path


def test_lines_of_summaries(root: Path) -> None:
    lines, problems = read_lines(root, discover(root))
    assert problems == []
    found = {line.file.evaluation: line for line in lines}
    assert found["base"].value == 3 / 40
    assert (found["base"].estimate, found["base"].num_problems) == ("pass@1", 40)
    assert found["base"].truncated == 0.25
    html = lines_table(lines)
    assert "75.0 % [65.0, 85.0] pass@1" in html
    assert "Lenient" not in html  # nobody has it
    assert "<b>evil" not in html
    assert "&lt;b&gt;evil" in html
    assert '<a href="?view=responses&amp;file=base%2Fsums%2Fresults.jsonl"' in html


def test_lines_of_a_run_stand_together_and_the_newest_of_each_run_are_compared(
    tmp_path: Path,
) -> None:
    stored = [("a", 0), ("b", 0), ("a", 4), ("b", 4)]
    for age, (run, step) in enumerate(stored):
        folder = tmp_path / run / f"eval/step_{step:06d}/sums"
        write_evaluation(folder, ["11", "10"])
        os.utime(folder / "summary.json", (1e9 + age, 1e9 + age))
    found = discover(tmp_path)
    lines, _ = read_lines(tmp_path, found)
    assert [line.file.evaluation for line in lines] == [
        *("b · step 4", "b · step 0", "a · step 4", "a · step 0")
    ]
    sets = evaluations(found)
    assert first_compared(lines, sets) == ["b · step 4", "a · step 4"]
    assert first_compared(lines[:2], sets) == ["b · step 4", "b · step 0"]
    assert first_compared(lines[:1], sets) == []
    assert first_compared([], sets) == []


def test_a_damaged_summary_is_named_and_left_out(root: Path) -> None:
    (root / "base/sums/summary.json").write_text("{")
    (root / "other/words/summary.json").write_text(
        json.dumps({"total_examples": 1, "aggregate_metrics": [], "estimates": {"x": None}})
    )
    lines, problems = read_lines(root, discover(root))
    assert [line.file.evaluation for line in lines] == ["new"]
    assert sorted(problem.split("/")[0] for problem in problems) == ["base", "other"]


def test_paired_differences_are_those_of_compare(root: Path) -> None:
    sets = evaluations(discover(root))
    comparisons, remarks = compare(root, sets, "base", ["new"])
    assert remarks == []
    expected = compare_folders([root / "base/sums"], [root / "new/sums"])
    assert comparisons[0].difference == expected
    html = comparisons_table(comparisons)
    points = (100 * x for x in (expected.difference, expected.low, expected.high))
    assert "{:+.1f} [{:+.1f}, {:+.1f}]".format(*points) in html
    assert "clearly better" in html
    assert re.search(r"<td class=\"n\">27</td><td class=\"n\">0</td>", html)


def test_other_settings_are_remarked(root: Path) -> None:
    write_evaluation(root / "warm/sums", ["11"] * 40, sampling={"temperature": 1.0})
    _, remarks = compare(root, evaluations(discover(root)), "base", ["warm"])
    assert len(remarks) == 1
    assert "sampling.temperature 0.5 and 1.0" in remarks[0]


def test_what_cannot_be_compared(root: Path) -> None:
    sets = evaluations(discover(root))
    with pytest.raises(DataError, match="no data set in common"):
        compare(root, sets, "base", ["other"])
    with pytest.raises(DataError, match="no evaluation"):
        compare(root, sets, "base", ["../x"])
    write_evaluation(root / "short/sums", ["11"])
    with pytest.raises(DataError, match="other problems"):
        compare(root, evaluations(discover(root)), "base", ["short"])
