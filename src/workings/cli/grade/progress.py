"""How far the grading of a file is: a bar on a terminal, now and then a line anywhere else."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from workings.cli.terminal_text import on_one_line
from workings.tracking.progress import format_duration

LINE_EVERY_SECONDS = 10.0
_SHOWN = 3


class GradingProgress:
    """Rows done of `total` (None where it is not known), on stderr. Use it with `with`."""

    def __init__(self, name: str, *, total: int | None, console: Console) -> None:
        self._name = on_one_line(name)
        self._total = total
        self._console = console
        self._first: tuple[float, int] | None = None
        self._last_line = time.monotonic()
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> GradingProgress:
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[left]}"),
                TextColumn("{task.fields[verdicts]}"),
                console=self._console,
                auto_refresh=False,
            )
            self._task = self._bar.add_task(self._name, total=self._total, left="", verdicts="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, rows: int, verdicts: Mapping[str, int]) -> None:
        """`rows` are done, with these verdicts; the first call says where this start begins."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, rows)
        left = self._left(now, rows)
        if self._bar is not None:
            self._bar.update(
                self._task, completed=rows, left=left, verdicts=most(verdicts), refresh=True
            )
        elif now - self._last_line >= LINE_EVERY_SECONDS:
            self._last_line = now
            total = "" if self._total is None else f" of {self._total:,}"
            parts = [f"{rows:,}{total} rows", left, most(verdicts)]
            line = f"{self._name}: {'; '.join(part for part in parts if part)}"
            self._console.print(line, markup=False, soft_wrap=True)

    def _left(self, now: float, rows: int) -> str:
        assert self._first is not None
        began, first_rows = self._first
        if self._total is None or rows <= first_rows:
            return ""
        pace = (now - began) / (rows - first_rows)
        return f"{format_duration(max(self._total - rows, 0) * pace)} left"


def most(verdicts: Mapping[str, int]) -> str:
    """The most frequent verdicts, in a few words.

    >>> most({"equal": 1200, "different": 31, "undecided": 2, "refused": 1})
    'equal 1,200, different 31, undecided 2, ...'
    """
    ordered = sorted(verdicts.items(), key=lambda pair: -pair[1])
    shown = ", ".join(f"{name} {count:,}" for name, count in ordered[:_SHOWN])
    return f"{shown}, ..." if len(ordered) > _SHOWN else shown
