"""`metrics.jsonl`: every recorded row, one JSON object a line, flushed as it is written.

A row is {"step": 12, "kind": "train", "time": 1764230400.0, "train/loss": 0.5, ...}; `time` is in
seconds since the epoch. JSON has no NaN, so a value that is not finite is written as the string
"nan", "inf" or "-inf", which `float()` reads; `read_metrics` gives floats back.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workings.errors import ConfigError, DataError

FILE_NAME = "metrics.jsonl"
_FIELDS = ("step", "kind", "time")


class MetricsFile:
    """The sink behind `metrics.jsonl`.

    A file that already holds rows is continued after `truncate_after` has said from which step; a
    second run that would write into the rows of a first one is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = _complete_lines(path)
        self._foreign_step = _step_of(path, len(rows), rows[-1]) if rows else None
        if path.exists():
            _replace(path, rows)
        self._file = path.open("a", encoding="utf-8")

    def record(self, step: int, kind: str, metrics: Mapping[str, float], *, time: float) -> None:
        """Append one row."""
        if self._foreign_step is not None and step <= self._foreign_step:
            raise ConfigError(
                f"{self.path} already holds rows up to step {self._foreign_step}, and this run "
                f"would write step {step} after them",
                hint="go on with that run (--resume), or give this one another name",
            )
        row = {"step": step, "kind": kind, "time": round(time, 3)}
        row |= {name: _plain(value) for name, value in metrics.items()}
        self._file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()

    def truncate_after(self, step: int) -> None:
        """Drop the rows of steps after `step`; those kept stay byte for byte."""
        self._file.close()
        lines = _complete_lines(self.path)
        kept = [
            line
            for number, line in enumerate(lines, start=1)
            if _step_of(self.path, number, line) <= step
        ]
        _replace(self.path, kept)
        self._foreign_step = None
        self._file = self.path.open("a", encoding="utf-8")

    def close(self, *, failed: bool = False) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file, in order; a last line cut off by a kill is left out."""
    if not path.is_file():
        raise DataError(f"no metrics file {path}", hint="a run writes it from its first step on")
    rows = []
    for number, line in enumerate(_complete_lines(path), start=1):
        row = _parse(path, number, line)
        for name, value in row.items():
            if name not in _FIELDS:
                row[name] = _number(value)
            if "/" in name and not isinstance(row[name], int | float):
                raise DataError(
                    f"{path} line {number}: {name} is {json.dumps(value)[:40]}; expected a number",
                    hint="remove the line, or restore the file from a copy",
                )
        rows.append(row)
    return rows


def _complete_lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _replace(path: Path, lines: list[bytes]) -> None:
    beside = path.with_name(path.name + ".new")
    with beside.open("wb") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(
            f"{path} line {number} is not JSON ({error}): {line[:80]!r}",
            hint="remove the line, or restore the file from a copy",
        ) from error
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise DataError(f'{path} line {number} is no row of metrics: it has no integer "step"')
    return row


def _step_of(path: Path, number: int, line: bytes) -> int:
    step: int = _parse(path, number, line)["step"]
    return step


def _plain(value: float) -> float | int | str:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _number(value: Any) -> Any:
    return float(value) if value in ("nan", "inf", "-inf") else value
