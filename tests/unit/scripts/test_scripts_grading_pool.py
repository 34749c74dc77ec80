"""The benchmark of the grader's processes: what it measures is what it says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_a_row_of_times_names_median_and_tail() -> None:
    from grading_pool import _times

    row = _times("wait", [3.0, 1.0, 2.0, 10.0], unit="s")
    assert row == {
        "name": "wait",
        "value": 2.5,
        "unit": "s",
        "n": 4,
        "note": "median; 99th percentile 9.79, longest 10",
    }


def test_the_file_has_the_fields_of_a_results_file(tmp_path: Path) -> None:
    from grading_pool import _times, collect
    from report import describe, read_results

    content = collect([_times("wait", [1.0, 2.0], unit="s")])
    (tmp_path / "grading_pool.json").write_text(json.dumps(content))
    (read,) = read_results(tmp_path)
    assert "| wait | 1.5 s | 2 |" in describe(read, heading="##")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")
def test_kills_waits_threads_and_interruptions_are_measured() -> None:
    import grading_pool

    for one in grading_pool.recoveries(2):
        assert 0 < one.answering <= one.in_reserve < 5
    (wait,) = grading_pool.waits(1)
    assert 1.8 < wait < 3
    num_different, serial, concurrent = grading_pool.from_threads()
    assert num_different == 0
    assert min(serial, concurrent) > 0
    seconds, num_left = grading_pool.interruptions(1)
    assert 0 < seconds[0] < 10
    assert num_left == 0
    private, server = grading_pool.worker_bytes()
    assert 0 < private < server
    assert 0 < grading_pool.task_seconds(100) < 1
