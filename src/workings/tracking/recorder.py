"""The recorder: the one object that a loop tells what happened. It owns the sinks."""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol

from workings.tracking import jsonl, logfile
from workings.tracking.rollouts import prune_steps, write_rollouts
from workings.types import RolloutGroup

Kind = Literal["train", "eval", "timing", "final"]
KINDS: tuple[Kind, ...] = ("train", "eval", "timing", "final")
_logger = logging.getLogger("workings.run")


class Sink(Protocol):
    """Where rows of metrics go."""

    def record(self, step: int, kind: str, metrics: Mapping[str, float], *, time: float) -> None:
        """Take one row; names are complete ("train/loss"), `time` is seconds since the epoch."""
        ...

    def truncate_after(self, step: int) -> None:
        """Forget what was recorded for steps after `step`, where the sink can."""
        ...

    def close(self, *, failed: bool = False) -> None:
        """Write what is pending and release everything."""
        ...


class Recorder:
    """Rows of metrics, messages and rollouts of one run, sent to every sink.

    `folder` gets `metrics.jsonl`, `run.log` and `rollouts/`; `sinks` come on top (console, W&B,
    TensorBoard). With `folder=None` and no sinks it records nothing: the recorder of every rank
    but the first.
    """

    def __init__(
        self,
        folder: Path | None,
        sinks: Sequence[Sink] = (),
        *,
        logging_steps: int = 1,
        save_rollouts_every: int = 1,
    ) -> None:
        self.folder = folder
        self._save_rollouts_every = save_rollouts_every
        self._sinks: list[Sink] = []
        if folder is not None:
            self._sinks += [
                jsonl.MetricsFile(folder / jsonl.FILE_NAME),
                logfile.LogFile(folder / logfile.FILE_NAME, logging_steps=logging_steps),
            ]
        self._sinks += sinks

    def record(self, step: int, metrics: Mapping[str, float], prefix: Kind = "train") -> None:
        """Send one row to every sink.

        A name that does not begin with "train/", "eval/", "timing/" or "final/" gets
        `prefix` in front, so that one row may hold {"loss": ..., "timing/rollout": ...}.
        """
        if not self._sinks:
            return
        named = {_full_name(name, prefix): value for name, value in metrics.items()}
        now = clock.time()
        for sink in self._sinks:
            sink.record(step, prefix, named, time=now)

    def record_rollouts(
        self,
        step: int,
        groups: Sequence[RolloutGroup],
        *,
        advantages: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Store the step's rollouts as parquet, every `save_rollouts_every` steps (0: never)."""
        every = self._save_rollouts_every
        if self.folder is not None and every and step % every == 0:
            write_rollouts(self.folder / "rollouts", step, groups, advantages=advantages)

    def log(self, text: str) -> None:
        """Say something to whoever watches, and to `run.log`."""
        if self._sinks:
            _logger.info(text)

    def warn(self, text: str) -> None:
        """The same, marked as a warning."""
        if self._sinks:
            _logger.warning(text)

    def truncate_after(self, step: int) -> None:
        """Forget every row, rollout and evaluation after `step`: what a resumed run repeats."""
        for sink in self._sinks:
            sink.truncate_after(step)
        if self.folder is not None:
            prune_steps(self.folder / "rollouts", after_step=step)
            prune_steps(self.folder / "eval", after_step=step)

    def close(self, *, failed: bool = False) -> None:
        """Close every sink, also when one of them fails to; the first failure is raised after."""
        errors: list[Exception] = []
        while self._sinks:
            try:
                self._sinks.pop().close(failed=failed)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(failed=kind is not None)


def _full_name(name: str, prefix: Kind) -> str:
    return name if name.partition("/")[0] in KINDS else f"{prefix}/{name}"
