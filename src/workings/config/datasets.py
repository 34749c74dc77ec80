"""Data sets given by name: `datasets: [gsm8k, math500]` stands for the shipped benchmark files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workings.config.keys import PHASES
from workings.config.sources import BENCHMARKS, choices_of, read_yaml
from workings.config.trees import Tree, look_up, put
from workings.errors import ConfigError, unknown_name

# Names that earlier programs gave to the same files.
BENCHMARK_NAMES = {"competition_math": "math", "math_500": "math500", "minerva": "minerva_math"}


def expand_datasets(values: Tree, kind: str, folders: Sequence[Path]) -> None:
    """Put a section in the place of every data set that is given as text, in place.

    A benchmark's name stands for its file; any other text is a path. Training rows are always a
    path: a benchmark is nothing to train on.
    """
    if kind == "pipeline":
        for phase in PHASES:
            if isinstance(values.get(phase), dict):
                expand_datasets(values[phase], phase, folders)
        if isinstance(values.get("test"), str):
            values["test"] = named_dataset(values["test"], folders)
        return
    if kind == "eval":
        given = values.get("datasets")
        entries = [given] if isinstance(given, str) else given
        if isinstance(entries, list):
            values["datasets"] = [
                named_dataset(entry, folders) if isinstance(entry, str) else entry
                for entry in entries
            ]
        return
    train = look_up(values, "data.train")
    if isinstance(train, str):
        put(values, "data.train", {"path": train})
    validation = look_up(values, "data.validation")
    if isinstance(validation, str):
        put(values, "data.validation", named_dataset(validation, folders))


def named_dataset(name: str, folders: Sequence[Path]) -> dict[str, Any]:
    """The section that a benchmark's name, or a path, stands for."""
    known = BENCHMARK_NAMES.get(name, name)
    for folder in folders:
        file = folder / BENCHMARKS / f"{known}.yaml"
        if file.is_file():
            return read_yaml(file)
    if _may_be_a_path(name):
        return {"path": name}
    raise ConfigError(
        unknown_name("benchmark", name, choices_of(BENCHMARKS, folders)),
        hint="a file, a folder or a hub id (owner/name) may stand here as well",
    )


def _may_be_a_path(name: str) -> bool:
    bare = "/" not in name and "." not in name
    return not bare or Path(name).exists() or bool(os.environ.get("WORKINGS_DATA_DIR"))
