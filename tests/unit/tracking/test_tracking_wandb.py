"""W&B in offline mode, for real: the file it leaves is read back."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workings.errors import ConfigError
from workings.tracking.wandb import ID_FILE_NAME, WandbSink

BLOCK = 32768


def records(path: Path) -> Iterator[Any]:
    """The records of a .wandb file: LevelDB's log format after a header of 7 bytes."""
    pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    data, position, pending = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        left = BLOCK - position % BLOCK
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        pending += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            record = pb.Record()
            record.ParseFromString(pending)
            pending = b""
            yield record


def finish_writing() -> None:
    """Wait for wandb's service, which writes on after `finish`; the end of a process does too."""
    import wandb

    wandb.teardown()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No account, no network, no settings of the person who runs the tests."""
    pytest.importorskip("wandb")
    for name in ("WANDB_API_KEY", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")


@pytest.mark.usefixtures("offline")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_offline_run_holds_steps_metrics_and_summary(tmp_path: Path) -> None:
    sink = WandbSink(tmp_path, project="workings-test", name="first", config={"seed": 7})
    sink.record(1, "train", {"train/loss": 0.5, "timing/rollout": 2.0}, time=0.0)
    sink.record(1, "eval", {"eval/sums/accuracy": 0.25}, time=0.0)
    sink.record(2, "train", {"train/loss": 0.125}, time=0.0)
    sink.record(2, "final", {"final/accuracy": 0.75}, time=0.0)
    sink.close()
    finish_writing()

    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    history, summary, step_metrics, config = [], {}, {}, {}
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            history.append(
                {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            )
        elif kind == "metric" and record.metric.glob_name:
            step_metrics[record.metric.glob_name] = record.metric.step_metric
        elif kind == "summary":
            summary |= {item.key: item.value_json for item in record.summary.update if item.key}
        elif kind == "run":
            config = {item.key: item.value_json for item in record.run.config.update}
    shown = [{k: v for k, v in row.items() if not k.startswith("_")} for row in history]
    assert shown == [
        {"train_step": 1, "train/loss": 0.5, "timing/rollout": 2.0},
        {"eval_step": 1, "eval/sums/accuracy": 0.25},
        {"train_step": 2, "train/loss": 0.125},
    ]
    assert step_metrics == {
        "train/*": "train_step",
        "timing/*": "train_step",
        "eval/*": "eval_step",
    }
    assert summary["final/accuracy"] == "0.75"
    assert config["seed"] == "7"


@pytest.mark.usefixtures("offline")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_resumed_run_keeps_its_id_and_no_key_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "0123456789abcdef0123456789abcdef01234567"
    monkeypatch.setenv("WANDB_API_KEY", key)
    ids = []
    for _ in range(2):
        sink = WandbSink(tmp_path, project="workings-test", name="again")
        sink.truncate_after(0)
        sink.record(1, "train", {"train/loss": 0.5}, time=0.0)
        sink.close(failed=True)
        ids.append((tmp_path / ID_FILE_NAME).read_text().strip())
    finish_writing()
    assert ids[0] == ids[1]
    assert list(tmp_path.glob(f"wandb/offline-run-*/run-{ids[0]}.wandb"))
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert key.encode() not in path.read_bytes(), path


def test_a_missing_package_is_an_error_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError) as caught:
        WandbSink(tmp_path / "run", project="p", name="n")
    assert str(caught.value) == (
        "tracking.wandb=true needs the wandb package, which is not installed\n\n"
        "hint: pip install workings[wandb], or set tracking.wandb=false"
    )
    assert not (tmp_path / "run").exists()
