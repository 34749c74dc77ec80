"""Progress on stderr: a live bar in a terminal, one plain line per logged step anywhere else."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from workings.tracking.lines import KEY_METRICS, evaluation_lines, select_metrics
from workings.tracking.logfile import attach, detach
from workings.tracking.progress import TimeLeft, format_duration


class ConsoleSink:
    """The sink that a person watches. Nothing depends on colour, and nothing goes to stdout.

    `total_steps` of 0 is a run whose length is not known, such as one that is given a time.
    """

    def __init__(
        self,
        *,
        total_steps: int,
        name: str = "training",
        logging_steps: int = 1,
        stream: TextIO | None = None,
    ) -> None:
        self._total_steps = total_steps
        self._name = name
        self._logging_steps = logging_steps
        self._time_left = TimeLeft(total_steps=total_steps)
        self._console = Console(file=stream or sys.stderr, soft_wrap=True, highlight=False)
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._handler = _ConsoleHandler(self._console)
        attach(self._handler)

    def record(self, step: int, kind: str, metrics: Mapping[str, float], *, time: float) -> None:
        """Show a row: training moves the bar, everything else is a line of its own."""
        if kind == "train":
            self._time_left.update(step, time)
            self._show_step(step, metrics)
            return
        if kind == "eval":
            for line in evaluation_lines(metrics):
                self._print(f"evaluation at step {step}: {line}")
            return
        if kind == "final":
            self._print(f"final: {select_metrics(metrics, metrics)}")

    def truncate_after(self, step: int) -> None:
        """Start the bar at `step` when a run is resumed."""
        self._time_left = TimeLeft(total_steps=self._total_steps)
        if self._progress is not None:
            self._progress.update(self._task, completed=step)

    def close(self, *, failed: bool = False) -> None:
        """Leave the bar as it stands and stop listening to the loggers."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        detach(self._handler)

    def _show_step(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._console.is_terminal:
            self._move_bar(step, metrics)
        elif step % self._logging_steps == 0 or step == self._total_steps:
            of_total = f"/{self._total_steps}" if self._total_steps else ""
            parts = [f"step {step}{of_total}", select_metrics(metrics, KEY_METRICS)]
            pace = self._time_left.seconds_per_step
            if pace is not None:
                parts.append(f"{pace:.3g} s/step")
            self._print("  ".join([*(part for part in parts if part), *self._left()]))

    def _move_bar(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[left]}"),
                TextColumn("{task.fields[metrics]}"),
                console=self._console,
                auto_refresh=False,
            )
            self._task = self._progress.add_task(
                self._name, total=self._total_steps or None, left="", metrics=""
            )
            self._progress.start()
        if step % self._logging_steps == 0 or step == self._total_steps:
            self._progress.update(self._task, metrics=select_metrics(metrics, KEY_METRICS[:4]))
        left = "".join(self._left())
        self._progress.update(self._task, completed=step, left=left, refresh=True)

    def _left(self) -> list[str]:
        seconds = self._time_left.seconds_left if self._total_steps else None
        return [f"{format_duration(seconds)} left"] if seconds else []

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False)


class _ConsoleHandler(logging.Handler):
    """Log records above the bar: information as it is, anything graver with its level in front."""

    def __init__(self, console: Console) -> None:
        super().__init__(level=logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.levelno > logging.INFO:
            text = f"{record.levelname.lower()}: {text}"
        style = "yellow" if record.levelno >= logging.WARNING else None
        self._console.print(text, markup=False, style=style)
