"""A data set's settings as the loaders' arguments, and the benchmarks by name.

`load_benchmark("gsm8k")` is what `datasets=[gsm8k]` evaluates on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workings.config.dataset import DatasetConfig, SourceConfig
from workings.config.datasets import benchmark_names, named_dataset
from workings.config.sources import shipped_folder
from workings.data.arithmetic import ARITHMETIC
from workings.data.loaded import Loaded
from workings.data.loading import load_problems
from workings.data.places import Place, find_copy
from workings.data.problems import BadGold, CheckGold, Form
from workings.data.reasoning_gym import PREFIX as REASONING_GYM
from workings.errors import ConfigError
from workings.types import Problem

OF_ROWS = (
    *("path", "name", "subset", "split", "columns", "where", "more", "local", "options"),
    *("shuffle_seed", "limit", "limit_order"),
)
"""Settings of a data set that say which rows are read; the others are about problems."""


def problem_arguments(config: DatasetConfig) -> dict[str, Any]:
    """What `load_problems` takes, of a data set's settings; its `bad_gold` where it has one."""
    form = Form(answers=config.answers, distractors=config.distractors, wording=config.wording)
    arguments = {
        **_row_arguments(config),
        "form": None if form == Form() else form,
        "repeats": config.repeats,
        "problems": config.problems,
    }
    return arguments if config.bad_gold is None else {**arguments, "bad_gold": config.bad_gold}


def row_arguments(config: DatasetConfig) -> dict[str, Any]:
    """What the loaders of demonstrations and pairs take; ConfigError for a setting of problems."""
    for name, field in DatasetConfig.model_fields.items():
        value = getattr(config, name)
        if name not in OF_ROWS and name != "note" and value != field.default:
            raise ConfigError(
                f"{name}={value} of the data set {config.name or config.path!r} is about problems, "
                "and has no effect on rows to imitate",
                hint="leave it out",
            )
    return _row_arguments(config)


def load_benchmark(
    name: str,
    *,
    check_gold: CheckGold | None = None,
    bad_gold: BadGold = "error",
    worded: bool = True,
    data_dir: str | Path | None = None,
) -> Loaded[Problem]:
    """The problems of the shipped benchmark of that name, from a local copy or the hub.

    `worded=False` leaves out the text that asks for a certain form of answer, for a comparison
    with other texts. `data_dir` stands for $WORKINGS_DATA_DIR.
    """
    config = benchmark_config(name)
    if not worded:
        config = config.model_copy(update={"wording": None})
    arguments = {"bad_gold": bad_gold, **problem_arguments(config)}
    return load_problems(**arguments, check_gold=check_gold, data_dir=data_dir)


def benchmark_config(name: str) -> DatasetConfig:
    """The settings of the shipped benchmark of that name; ConfigError for any other."""
    return DatasetConfig.model_validate(named_dataset(name, [shipped_folder()]))


def shipped_benchmarks() -> list[DatasetConfig]:
    """The settings of every shipped benchmark, sorted by name."""
    return [benchmark_config(name) for name in benchmark_names([shipped_folder()])]


def copy_of(config: DatasetConfig, data_dir: str | Path | None = None) -> tuple[Path, ...] | None:
    """The files of the local copy that would be read, `()` if none is needed; None without one."""
    if config.path == ARITHMETIC or config.path.startswith(REASONING_GYM):
        return ()
    found = find_copy([_place(copy) for copy in config.local], data_dir)
    return None if found is None else found[1]


def _row_arguments(config: DatasetConfig) -> dict[str, Any]:
    arguments = {name: getattr(config, name) for name in OF_ROWS}
    places = {name: tuple(_place(one) for one in arguments[name]) for name in ("more", "local")}
    return arguments | places


def _place(source: SourceConfig) -> Place:
    return Place(
        path=source.path,
        subset=source.subset,
        split=source.split,
        columns=source.columns,
        where=source.where,
    )
