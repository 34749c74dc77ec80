"""Grids of evaluations: every combination of the values of `--grid KEY=A,B`, one folder each.

    OUTPUT_DIR/NAME/{model}/{setting}/{dataset}/
    eval_results/{model}/{setting}/{dataset}/           under layout=classic

The setting names temperature and top-p, and every other key of the grid that is no model's.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workings.cli.evaluation.settings import compose_evaluation
from workings.config.evaluation import EvalConfig
from workings.errors import ConfigError
from workings.evaluation.metrics import Estimate
from workings.evaluation.tables import format_estimate, text_table
from workings.launch.sweep_axes import read_grid, read_values

OF_A_MODEL = ("model", "model.name_or_path", "model.adapter", "model_path", "model_name_or_path")
IN_THE_NAME = ("sampling.temperature", "temperature", "sampling.top_p", "top_p")
"""Keys that every setting's name has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One evaluation of a grid.

    Attributes:
        config: its name is that of its folder below output_dir.
        model, setting: names of the two folders.
        root: the folder of the grid.
        notes: what earlier names in the settings were read as.
    """

    config: EvalConfig
    model: str
    setting: str
    root: Path
    notes: tuple[str, ...]


def grid_values(texts: Sequence[str]) -> dict[str, list[str]]:
    """Key to its values, of "KEY=A,B" texts in Hydra's grammar: A,B or choice(A,B) or range(1,4).

    >>> grid_values(["sampling.temperature=0.0,0.6", "model=smollm2"])
    {'sampling.temperature': ['0.0', '0.6'], 'model': ['smollm2']}
    """
    spelled = [text.removeprefix("--") for text in texts]
    for text in spelled:
        key, equals, raw = text.partition("=")
        if not (key and equals and raw):
            raise ConfigError(f"--grid {text}; expected KEY=A,B, such as sampling.temperature=0,1")
    varied = [text for text in spelled if read_values(text) is not None]
    values = {axis.key: list(axis.values) for axis in (read_grid(varied).axes if varied else ())}
    for text in spelled:
        key, _, raw = text.partition("=")
        if text not in varied:
            if key in values:
                raise ConfigError(f"--grid gives {key} twice", hint="write its values as one list")
            values[key] = [raw]
    return {text.partition("=")[0]: values[text.partition("=")[0]] for text in spelled}


def compose_cells(
    names_or_files: Sequence[str], overrides: Sequence[str], grid: Mapping[str, Sequence[str]]
) -> list[Cell]:
    """Every combination as a configuration, in the order of the keys: the first changes slowest.

    Keys of models are taken first, so that a model is loaded once. ConfigError where two cells
    would write into one folder.
    """
    keys = sorted(grid, key=lambda key: key not in OF_A_MODEL)
    cells = []
    for chosen in itertools.product(*(grid[key] for key in keys)):
        values = dict(zip(keys, chosen, strict=True))
        settings = [f"{key}={value}" for key, value in values.items()]
        composition = compose_evaluation(names_or_files, [*overrides, *settings])
        run = composition.run
        assert isinstance(run, EvalConfig)
        cells.append(_cell(run, values, composition.notes))
    folders = Counter(cell.config.name for cell in cells)
    twice = [name for name, count in folders.items() if count > 1]
    if twice:
        raise ConfigError(
            f"two cells of the grid would write into {twice[0]!r}",
            hint="two models end in the same name, or a value stands twice; evaluate them apart, "
            "under names of their own",
        )
    return cells


def grid_table(found: Sequence[tuple[Cell, Sequence[Mapping[str, Any]]]]) -> str:
    """A row for every cell, a column for every data set: the strict accuracy with its interval."""
    names = list(dict.fromkeys(one["dataset"] for _, summaries in found for one in summaries))
    rows = []
    for cell, summaries in found:
        row = {one["dataset"]: next(iter(one["estimates"].items())) for one in summaries}
        rows.append(
            [
                cell.model,
                cell.setting,
                *(
                    f"{row[name][0]} {format_estimate(Estimate(**row[name][1]))}"
                    if name in row
                    else "-"
                    for name in names
                ),
            ]
        )
    return text_table(["model", "setting", *names], rows)


def _cell(run: EvalConfig, values: Mapping[str, str], notes: tuple[str, ...]) -> Cell:
    model = Path(run.model.adapter or run.model.name_or_path).name or "model"
    if model in ("final", "best", "best_model") or model.startswith(("step_", "checkpoint-")):
        parts = Path(run.model.adapter or run.model.name_or_path).parts
        model = "_".join(part for part in parts[-3:] if part not in ("checkpoints", "/", "runs"))
    setting = f"T{run.sampling.temperature:g}_top_p{run.sampling.top_p:g}"
    for key, value in values.items():
        if key not in IN_THE_NAME and key not in OF_A_MODEL:
            setting += f"_{key.rpartition('.')[2]}{_plain(value)}"
    classic = run.layout == "classic"
    root = Path(run.output_dir).expanduser()
    name = f"{model}/{setting}" if classic else f"{run.name}/{model}/{setting}"
    return Cell(
        config=run.model_copy(update={"name": name}),
        model=model,
        setting=setting,
        root=root if classic else root / run.name,
        notes=notes,
    )


def _plain(value: str) -> str:
    """A value as a part of a folder's name."""
    kept = "".join(letter if letter.isalnum() or letter in ".-_" else "_" for letter in value)
    return kept.strip("_") or "none"
