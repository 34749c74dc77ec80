"""TensorBoard event files, written with the tensorboard package alone: no torch, no tensorflow."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping
from pathlib import Path

from workings.errors import ConfigError


class TensorBoardSink:
    """The sink that writes scalars to `folder`; `tensorboard --logdir FOLDER` shows them."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise ConfigError(
                "tracking.tensorboard=true needs the tensorboard package, which is not installed",
                hint="pip install workings[tensorboard], or set tracking.tensorboard=false",
            ) from error
        folder.mkdir(parents=True, exist_ok=True)
        self._events = event_pb2
        self._summaries = summary_pb2
        self._writer = EventFileWriter(str(folder), flush_secs=10)

    def record(self, step: int, kind: str, metrics: Mapping[str, float], *, time: float) -> None:
        """Write every metric of the row as a scalar at `step`."""
        values = [
            self._summaries.Summary.Value(tag=name, simple_value=float(value))
            for name, value in metrics.items()
        ]
        summary = self._summaries.Summary(value=values)
        self._writer.add_event(self._events.Event(wall_time=time, step=step, summary=summary))

    def truncate_after(self, step: int) -> None:
        """Tell readers to drop the events after `step` that earlier files of this folder hold."""
        start = self._events.SessionLog(status=self._events.SessionLog.START)
        now = clock.time()
        self._writer.add_event(
            self._events.Event(wall_time=now, step=step + 1, file_version="brain.Event:2")
        )
        self._writer.add_event(self._events.Event(wall_time=now, step=step + 1, session_log=start))
        self._writer.flush()

    def close(self, *, failed: bool = False) -> None:
        """Write what is pending and close the file."""
        self._writer.close()
