"""Data sets given by name: `datasets: [gsm8k, math500]` stands for the shipped benchmark files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workings.config.keys import PHASES
from workings.config.mmlu import STEM_SUBJECTS, SUBJECTS
from workings.config.sources import BENCHMARKS, choices_of, read_yaml
from workings.config.trees import Tree, look_up, put
from workings.errors import ConfigError, unknown_name

# Names that earlier programs gave to the same problems.
BENCHMARK_NAMES = {
    "aime_2022": "aime22",
    "aime_2023": "aime23",
    "aime_2024": "aime24",
    "aime_2025": "aime25",
    "aime2024": "aime24",
    "aime2025": "aime25",
    "alpacaeval": "alpaca_eval",
    "amc_2022_23_83": "amc",
    "aqua_rat": "aqua",
    "arc_challenge": "arc_c",
    "competition_math": "math",
    "gaokao_2023_en": "gaokao2023en",
    "gpqa": "gpqa_diamond",
    "luffy_valid_all": "luffy_valid",
    "math_500": "math500",
    "math_qa": "mathqa",
    "minerva": "minerva_math",
    "olympiad_bench": "olympiadbench",
    "sat": "sat_math",
}
# Benchmarks that are reported together, as an unweighted mean over them.
SUITES = {
    "luffy_maths": ("aime24", "aime25", "amc", "math500", "minerva_math", "olympiadbench"),
    "luffy_out_of_distribution": ("arc_c", "gpqa_diamond", "mmlu_pro"),
}
MMLU = "mmlu"


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
        _expand_list(values, "datasets", folders)
        return
    train = look_up(values, "data.train")
    if isinstance(train, str):
        put(values, "data.train", {"path": train})
    validation = look_up(values, "data.validation")
    if isinstance(validation, str):
        put(values, "data.validation", named_dataset(validation, folders))
    _expand_list(values, "evaluation.datasets", folders)


def _expand_list(values: Tree, path: str, folders: Sequence[Path]) -> None:
    """Sections in the place of the names in the list at `path`, or of one name alone."""
    given = look_up(values, path)
    entries = [given] if isinstance(given, str) else given
    if isinstance(entries, list):
        expanded = [
            dataset
            for entry in entries
            for dataset in (named_datasets(entry, folders) if isinstance(entry, str) else [entry])
        ]
        put(values, path, expanded)


def named_datasets(name: str, folders: Sequence[Path]) -> list[dict[str, Any]]:
    """The sections that a suite's or a benchmark's name, or a path, stands for."""
    return [named_dataset(member, folders) for member in SUITES.get(name, (name,))]


def named_dataset(name: str, folders: Sequence[Path]) -> dict[str, Any]:
    """The section that a benchmark's name, or a path, stands for."""
    if name in SUITES:
        raise ConfigError(
            f"{name} is {len(SUITES[name])} data sets, and one is expected here",
            hint=f"name one of {', '.join(SUITES[name])}",
        )
    known = BENCHMARK_NAMES.get(name, name)
    for folder in folders:
        file = folder / BENCHMARKS / f"{known}.yaml"
        if file.is_file():
            return read_yaml(file)
    subject = known.removeprefix(f"{MMLU}_")
    if subject != known and subject in SUBJECTS:
        return _mmlu_subject(subject, named_dataset(MMLU, folders))
    if _may_be_a_path(name):
        return {"path": name}
    raise ConfigError(
        unknown_name("benchmark", name, benchmark_names(folders)),
        hint="a file, a folder or a hub id (owner/name) may stand here as well",
    )


def benchmark_names(folders: Sequence[Path]) -> list[str]:
    """Every benchmark's name, sorted; subjects of MMLU, suites and earlier names are none here."""
    return choices_of(BENCHMARKS, folders)


def _mmlu_subject(subject: str, whole: dict[str, Any]) -> dict[str, Any]:
    """One subject of MMLU: its rows of the whole, or of a local copy of a part."""
    chosen = {"subject": subject}
    parts = [{**copy, "where": chosen} for copy in whole.get("local", ())]
    parts += [{"path": f"{MMLU}_stem", "where": chosen}] if subject in STEM_SUBJECTS else []
    return {
        **whole,
        "name": f"{MMLU}_{subject}",
        "where": chosen,
        "local": parts,
        "problems": SUBJECTS[subject],
    }


def _may_be_a_path(name: str) -> bool:
    bare = "/" not in name and "." not in name
    return not bare or Path(name).exists() or bool(os.environ.get("WORKINGS_DATA_DIR"))
