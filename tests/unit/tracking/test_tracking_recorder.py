"""The recorder sends what it is told to every sink, and keeps the run's folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from workings.tracking.jsonl import read_metrics
from workings.tracking.recorder import Recorder, Sink


class Memory:
    """A sink that remembers."""

    def __init__(self, broken: bool = False) -> None:
        self.rows: list[tuple[int, str, dict[str, float]]] = []
        self.closed: list[bool] = []
        self._broken = broken

    def record(self, step: int, kind: str, metrics: Mapping[str, float], *, time: float) -> None:
        self.rows.append((step, kind, dict(metrics)))

    def truncate_after(self, step: int) -> None:
        self.rows = [row for row in self.rows if row[0] <= step]

    def close(self, *, failed: bool = False) -> None:
        self.closed.append(failed)
        if self._broken:
            raise OSError("the disk is full")


def test_names_get_the_prefix_unless_they_have_one(tmp_path: Path) -> None:
    memory: Sink = Memory()
    with Recorder(tmp_path, [memory]) as recorder:
        recorder.record(1, {"loss": 0.5, "rewards/format/mean": 1.0, "timing/rollout": 2.0})
        recorder.record(1, {"sums/accuracy": 0.25}, prefix="eval")
    assert memory.rows == [
        (1, "train", {"train/loss": 0.5, "train/rewards/format/mean": 1.0, "timing/rollout": 2.0}),
        (1, "eval", {"eval/sums/accuracy": 0.25}),
    ]
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [(row["step"], row["kind"]) for row in rows] == [(1, "train"), (1, "eval")]
    assert rows[0]["train/loss"] == 0.5


def test_messages_land_in_the_log_file(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.log("the base model is right in 38 %")
        recorder.warn("two prompts were dropped")
    text = (tmp_path / "run.log").read_text()
    assert "INFO workings.run: the base model is right in 38 %" in text
    assert "WARNING workings.run: two prompts were dropped" in text


def test_truncation_reaches_sinks_rollouts_and_evaluations(tmp_path: Path, make_group) -> None:
    memory = Memory()
    recorder = Recorder(tmp_path, [memory])
    for step in range(1, 5):
        recorder.record(step, {"loss": 1.0})
        recorder.record_rollouts(step, [make_group()])
        (tmp_path / "eval" / f"step_{step}").mkdir(parents=True)
    recorder.truncate_after(2)
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2]
    assert [row[0] for row in memory.rows] == [1, 2]
    names = sorted(path.name for path in (tmp_path / "rollouts").iterdir())
    assert names == ["step_000001.parquet", "step_000002.parquet"]
    assert sorted(path.name for path in (tmp_path / "eval").iterdir()) == ["step_1", "step_2"]
    recorder.close()


@pytest.mark.parametrize(("every", "kept"), [(0, []), (1, [1, 2, 3, 4]), (2, [2, 4])])
def test_rollouts_are_stored_as_often_as_asked(
    tmp_path: Path, make_group, every: int, kept: list[int]
) -> None:
    with Recorder(tmp_path, save_rollouts_every=every) as recorder:
        for step in range(1, 5):
            recorder.record_rollouts(step, [make_group()])
    found = sorted(path.name for path in tmp_path.glob("rollouts/*"))
    assert found == [f"step_{step:06d}.parquet" for step in kept]


def test_the_recorder_of_another_rank_does_nothing(tmp_path: Path, make_group, caplog) -> None:
    with Recorder(None) as recorder:
        recorder.record(1, {"loss": 1.0})
        recorder.record_rollouts(1, [make_group()])
        recorder.log("nothing")
        recorder.warn("nothing")
        recorder.truncate_after(0)
    assert list(tmp_path.iterdir()) == []
    assert caplog.records == []


def test_every_sink_is_closed_even_when_one_fails(tmp_path: Path) -> None:
    first, broken, last = Memory(), Memory(broken=True), Memory()
    recorder = Recorder(tmp_path, [first, broken, last])
    with pytest.raises(OSError, match="the disk is full"):
        recorder.close()
    assert first.closed == broken.closed == last.closed == [False]
    recorder.close()
    assert first.closed == [False]


def test_sinks_learn_that_the_run_failed(tmp_path: Path) -> None:
    memory = Memory()
    with pytest.raises(RuntimeError, match="out of memory"), Recorder(tmp_path, [memory]):
        raise RuntimeError("out of memory")
    assert memory.closed == [True]


def test_the_room_imports_no_torch() -> None:
    program = (
        "import sys\n"
        "import workings.tracking.console, workings.tracking.environment\n"
        "import workings.tracking.flat_rewards, workings.tracking.recorder\n"
        "import workings.tracking.tensorboard, workings.tracking.wandb\n"
        "heavy = {'torch', 'transformers', 'wandb', 'tensorboard', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
