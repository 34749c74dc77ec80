"""`workings data list`: the benchmarks, how they are counted, and what of them lies here."""

from __future__ import annotations

import json
import os
from typing import Any

from workings.cli.console import write_data, write_note
from workings.config.dataset import DatasetConfig, SourceConfig
from workings.config.datasets import BENCHMARK_NAMES, SUITES
from workings.config.mmlu import SUBJECTS
from workings.data.arithmetic import ARITHMETIC
from workings.data.benchmarks import copy_of, shipped_benchmarks
from workings.data.sources import DATA_DIR_VARIABLE
from workings.evaluation.tables import Alignment, text_table

GENERATED = "generated"
LOCAL_ONLY = "local files only"
NO_COPY = "-"


def run(*, as_json: bool) -> int:
    """Print every benchmark; names and folders are looked at, no row is read."""
    rows = [_row(config) for config in shipped_benchmarks()]
    if as_json:
        write_data(json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    headers = ["benchmark", "problems", "counted as", "answers", "local copy", "source"]
    sides: list[Alignment] = ["left", "right", "left", "left", "left", "left"]
    write_data(text_table(headers, [_cells(row) for row in rows], alignments=sides))
    notes = [f"{row['name']}: {row['note']}" for row in rows if row["note"]]
    suites = [f"{name}: {', '.join(members)}" for name, members in SUITES.items()]
    aliases = [f"{earlier} is {ours}" for earlier, ours in BENCHMARK_NAMES.items()]
    for text in (
        f"mmlu_SUBJECT is one of the {len(SUBJECTS)} subjects of mmlu, such as mmlu_virology.",
        "Several under one name:\n  " + "\n  ".join(suites),
        "Earlier names: " + ", ".join(aliases) + ".",
        "Notes:\n  " + "\n  ".join(notes),
    ):
        write_data("\n" + text)
    folder = os.environ.get(DATA_DIR_VARIABLE)
    write_note(
        f"local copies are looked for in {folder} ({DATA_DIR_VARIABLE})"
        if folder
        else f"no local copies: {DATA_DIR_VARIABLE} names no folder of data sets"
    )
    return 0


def _row(config: DatasetConfig) -> dict[str, Any]:
    copy = copy_of(config)
    return {
        "name": config.name,
        "problems": config.problems,
        "counted": config.counted or "pass@1",
        "num_samples": config.num_samples,
        "answers": config.answers or "text",
        "sources": [_source(one) for one in (config, *config.more)],
        "local_names": list(dict.fromkeys(one.path for one in config.local)),
        "local_copy": None if copy is None else [str(file) for file in copy],
        "note": config.note,
    }


def _source(source: SourceConfig) -> str:
    """Where the rows are published; a set that is nowhere on the hub has a local name alone."""
    if "/" not in source.path:
        return f"{GENERATED} ({source.split})" if source.path == ARITHMETIC else LOCAL_ONLY
    subset = f" {source.subset}" if source.subset else ""
    return f"{source.path}{subset} ({source.split})"


def _cells(row: dict[str, Any]) -> list[str]:
    copy = row["local_copy"]
    if copy == []:
        files = GENERATED
    else:
        files = NO_COPY if copy is None else ", ".join(file.rpartition(os.sep)[2] for file in copy)
    problems = "-" if row["problems"] is None else f"{row['problems']:,}"
    source = " and ".join(row["sources"])
    return [row["name"], problems, row["counted"], row["answers"], files, source]
