"""Files of responses for the tests of `workings grade`, and a run of it that is stopped.

python grade_files.py kill 2 responses.jsonl ...    killed inside the 2nd write of verdicts
python grade_files.py interrupt 2 responses.jsonl   Ctrl-C before the 2nd write
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from workings.cli.grade import grade_file
from workings.cli.grade.output import GradedFile
from workings.cli.main import main

RIGHT, WRONG, NONE = r"so \boxed{5}", r"so \boxed{6}", "so 5"
ROWS: list[dict[str, Any]] = [
    {"id": "a", "kind": "sums", "answer": "5", "response": RIGHT},
    {"id": "b", "kind": "sums", "answer": "5", "response": WRONG},
    {"id": "c", "kind": "products", "answer": "5", "response": NONE},
    {"id": "d", "kind": "products", "answer": "7", "response": r"\boxed{7}"},
]
VERDICTS = ["equal", "different", "no_answer", "equal"]


def write_rows(path: Path, rows: Sequence[object] = ROWS) -> Path:
    """The rows as JSONL, JSON, parquet or CSV, by the suffix; text is a line as it is."""
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(list(rows)), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(list(rows)))
    elif path.suffix == ".csv":
        names = list(rows[0])  # type: ignore[call-overload]
        lines = [",".join(f'"{row[name]}"' for name in names) for row in rows]  # type: ignore[index]
        path.write_text("\n".join([",".join(names), *lines]) + "\n")
    else:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("".join(f"{line}\n" for line in lines))
    return path


def records(path: Path) -> list[dict[str, Any]]:
    """The verdicts in a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def verdicts(path: Path) -> list[str | None]:
    """The verdicts in a file, without their records."""
    return [record["verdict"] for record in records(path)]


def _stopping(how: str, at: int) -> Any:
    write = GradedFile.write
    calls = 0

    def stop(self: GradedFile, lines: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == at and how == "kill":
            middle = len(lines) // 2
            write(self, lines[: middle - lines[:middle].endswith(b"\n")])  # inside of a line
            os.kill(os.getpid(), signal.SIGKILL)
        if calls == at:
            os.kill(os.getpid(), signal.SIGINT)
        write(self, lines)

    return stop


if __name__ == "__main__":
    GradedFile.write = _stopping(sys.argv[1], int(sys.argv[2]))  # type: ignore[method-assign]
    grade_file.FIRST_CHUNK = grade_file.LARGEST_CHUNK = grade_file.SMALLEST_CHUNK = 8
    sys.exit(main(["grade", *sys.argv[3:]]))
