"""TensorBoard events, read back with TensorBoard's own reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from workings.errors import ConfigError
from workings.tracking.tensorboard import TensorBoardSink

pytest.importorskip("tensorboard")


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def test_scalars_come_back(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path / "tensorboard")
    for step in range(1, 4):
        sink.record(step, "train", {"train/loss": step / 4, "timing/rollout": 2.0}, time=100.0)
    sink.record(3, "eval", {"eval/sums/accuracy": 0.5}, time=101.0)
    sink.close()
    assert scalars(tmp_path / "tensorboard", "train/loss") == [(1, 0.25), (2, 0.5), (3, 0.75)]
    assert scalars(tmp_path / "tensorboard", "eval/sums/accuracy") == [(3, 0.5)]


def test_a_resumed_run_replaces_what_it_repeats(tmp_path: Path) -> None:
    first = TensorBoardSink(tmp_path)
    for step in range(1, 7):
        first.record(step, "train", {"train/loss": 1.0}, time=float(step))
    first.close()
    second = TensorBoardSink(tmp_path)
    second.truncate_after(4)
    for step in range(5, 8):
        second.record(step, "train", {"train/loss": 2.0}, time=10.0 + step)
    second.close()
    assert scalars(tmp_path, "train/loss") == [
        *((step, 1.0) for step in range(1, 5)),
        *((step, 2.0) for step in range(5, 8)),
    ]


def test_writing_needs_neither_torch_nor_tensorflow(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from workings.tracking.tensorboard import TensorBoardSink\n"
        "sink = TensorBoardSink(Path(sys.argv[1]))\n"
        "sink.record(1, 'train', {'train/loss': 0.5}, time=0.0)\n"
        "sink.close()\n"
        "assert not {'torch', 'tensorflow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


def test_a_missing_package_is_an_error_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(ConfigError) as caught:
        TensorBoardSink(tmp_path / "run")
    assert str(caught.value) == (
        "tracking.tensorboard=true needs the tensorboard package, which is not installed\n\n"
        "hint: pip install workings[tensorboard], or set tracking.tensorboard=false"
    )
