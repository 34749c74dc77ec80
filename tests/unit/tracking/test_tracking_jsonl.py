"""metrics.jsonl: what is written is there, what a resume abandons is not."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from workings.errors import ConfigError, DataError
from workings.tracking.jsonl import MetricsFile, read_metrics


def written(path: Path, last_step: int) -> MetricsFile:
    sink = MetricsFile(path)
    for step in range(1, last_step + 1):
        sink.record(step, "train", {"train/loss": 1 / step}, time=float(step))
        if step % 2 == 0:
            sink.record(step, "eval", {"eval/accuracy": step / 10}, time=step + 0.5)
    return sink


def test_a_row_holds_step_kind_time_and_metrics(tmp_path: Path) -> None:
    sink = MetricsFile(tmp_path / "run" / "metrics.jsonl")
    sink.record(3, "train", {"train/loss": 0.5, "train/skipped": True, "train/n": 7}, time=12.3456)
    line = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert line == (
        '{"step": 3, "kind": "train", "time": 12.346, "train/loss": 0.5, '
        '"train/skipped": 1, "train/n": 7}\n'
    )
    sink.close()


def test_each_row_can_be_read_as_soon_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = written(path, 3)
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 2, 3]
    sink.close()


def test_floats_come_back_exactly_and_the_file_is_strict_json(tmp_path: Path) -> None:
    values = {
        "train/a": 0.1 + 0.2,
        "train/b": math.nan,
        "train/c": math.inf,
        "train/d": -math.inf,
        "train/e": 5e-324,
    }
    path = tmp_path / "metrics.jsonl"
    sink = MetricsFile(path)
    sink.record(1, "train", values, time=0.0)
    sink.close()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(path.read_text(), parse_constant=refuse)
    (row,) = read_metrics(path)
    assert math.isnan(row.pop("train/b"))
    assert row == {"step": 1, "kind": "train", "time": 0.0} | {
        name: value for name, value in values.items() if name != "train/b"
    }


@pytest.mark.parametrize("step", [0, 1, 4, 6, 9])
def test_truncation_leaves_the_bytes_of_a_shorter_run(tmp_path: Path, step: int) -> None:
    long, short = tmp_path / "long.jsonl", tmp_path / "short.jsonl"
    written(long, 6).close()
    written(short, min(step, 6)).close()
    resumed = MetricsFile(long)
    resumed.truncate_after(step)
    assert long.read_bytes() == short.read_bytes()
    resumed.record(step + 1, "train", {"train/loss": 0.0}, time=99.0)
    resumed.close()
    assert read_metrics(long)[-1]["step"] == step + 1
    assert not list(tmp_path.glob("*.new"))


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    straight, resumed = tmp_path / "straight.jsonl", tmp_path / "resumed.jsonl"
    written(straight, 8).close()
    written(resumed, 6).close()
    sink = MetricsFile(resumed)
    sink.truncate_after(4)
    for step in range(5, 9):
        sink.record(step, "train", {"train/loss": 1 / step}, time=float(step))
        if step % 2 == 0:
            sink.record(step, "eval", {"eval/accuracy": step / 10}, time=step + 0.5)
    sink.close()
    assert resumed.read_bytes() == straight.read_bytes()


def test_a_line_cut_by_a_kill_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    written(path, 2).close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step": 3, "kind": "tr')
    assert len(read_metrics(path)) == 3
    sink = MetricsFile(path)
    assert path.read_bytes() == whole
    sink.truncate_after(2)
    sink.record(3, "train", {"train/loss": 0.5}, time=0.0)
    sink.close()
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 2, 3]


def test_rows_survive_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from workings.tracking.jsonl import MetricsFile\n"
        "sink = MetricsFile(Path(sys.argv[1]))\n"
        "for step in range(1, 4):\n"
        "    sink.record(step, 'train', {'train/loss': 0.5}, time=0.0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, os.fspath(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 3]


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    written(path, 3).close()
    before = path.read_bytes()
    second = MetricsFile(path)
    with pytest.raises(ConfigError) as caught:
        second.record(0, "eval", {"eval/accuracy": 0.0}, time=0.0)
    second.close()
    assert str(caught.value) == (
        f"{path} already holds rows up to step 3, and this run would write step 0 after them\n\n"
        "hint: go on with that run (--resume), or give this one another name"
    )
    assert path.read_bytes() == before


def test_later_steps_may_be_added_to_a_finished_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    written(path, 3).close()
    sink = MetricsFile(path)
    sink.record(4, "final", {"final/accuracy": 1.0}, time=0.0)
    sink.close()
    assert read_metrics(path)[-1]["final/accuracy"] == 1.0


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\nnot json\n{"step": 2}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl line 2 is not JSON"):
        read_metrics(path)
    path.write_text('{"loss": 1}\n')
    with pytest.raises(DataError, match='line 1 is no row of metrics: it has no integer "step"'):
        read_metrics(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no metrics file"):
        read_metrics(tmp_path / "metrics.jsonl")
