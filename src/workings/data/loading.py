"""One call from a data set's path to its usable rows: read or generate, map, check, take a part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar, cast

from workings.data.arithmetic import (
    ARITHMETIC,
    arithmetic_demonstrations,
    arithmetic_problems,
    arithmetic_task,
)
from workings.data.demonstrations import demonstrations_from_table
from workings.data.loaded import Loaded
from workings.data.preferences import preferences_from_table
from workings.data.problems import BadGold, CheckGold, problems_from_table
from workings.data.reasoning_gym import PREFIX as REASONING_GYM
from workings.data.reasoning_gym import reasoning_gym_problems
from workings.data.sources import read_rows
from workings.data.split import SplitName, take
from workings.data.table import Table
from workings.errors import DataError
from workings.types import Demonstration, PreferencePair, Problem

Row = TypeVar("Row")
Order = Literal["shuffled", "first"]
DEFAULT_NUM_PROBLEMS = 1000


def load_problems(
    path: str | Path,
    *,
    name: str | None = None,
    subset: str | None = None,
    split: str = "train",
    columns: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    limit: int | None = None,
    limit_order: Order = "shuffled",
    seed: int = 0,
    check_gold: CheckGold | None = None,
    bad_gold: BadGold = "error",
) -> Loaded[Problem]:
    """The problems at `path`: a data set, "arithmetic", or "reasoning_gym/TASK".

    Args:
        path: see `sources.read_rows`.
        name: what to call the data set; its file's or folder's name otherwise.
        subset, split: which configuration and split.
        columns: role to column, where the usual names are not used.
        options: settings of a generated task, with `num_problems`.
        limit, limit_order: at most so many rows, a seeded subset or the first.
        seed: of the subset and of generated tasks.
        check_gold: gives the reason why a gold answer cannot be graded against, or None.
        bad_gold: raise for such a gold, or leave the row out and count it.
    """
    text = str(path)
    if text == ARITHMETIC or text.startswith(REASONING_GYM):
        _refuse_for_generated(text, subset=subset, columns=columns)
        settings = dict(options or {})
        count = _num_problems(text, settings)
        if text == ARITHMETIC:
            task = arithmetic_task(settings)
            problems = arithmetic_problems(task, count, seed=seed, split=cast(SplitName, split))
        else:
            problems = reasoning_gym_problems(
                text, count, seed=seed, split=cast(SplitName, split), options=settings
            )
        loaded = _generated(problems, name or text, text)
    else:
        table = _read(path, name=name, subset=subset, split=split, options=options)
        loaded = problems_from_table(
            table, columns=columns, check_gold=check_gold, bad_gold=bad_gold
        )
    return _limited(loaded, limit, limit_order, seed)


def load_demonstrations(
    path: str | Path,
    *,
    name: str | None = None,
    subset: str | None = None,
    split: str = "train",
    columns: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    limit: int | None = None,
    limit_order: Order = "shuffled",
    seed: int = 0,
) -> Loaded[Demonstration]:
    """The demonstrations at `path`, a data set or "arithmetic"; arguments as in `load_problems`."""
    text = str(path)
    if text.startswith(REASONING_GYM):
        raise DataError(
            f"{text} has problems but no responses to imitate",
            hint="use it for RL or evaluation; arithmetic comes with worked steps",
        )
    if text == ARITHMETIC:
        _refuse_for_generated(text, subset=subset, columns=columns)
        settings = dict(options or {})
        count = _num_problems(text, settings)
        rows = arithmetic_demonstrations(
            arithmetic_task(settings), count, seed=seed, split=cast(SplitName, split)
        )
        loaded = _generated(rows, name or text, text)
    else:
        table = _read(path, name=name, subset=subset, split=split, options=options)
        loaded = demonstrations_from_table(table, columns=columns)
    return _limited(loaded, limit, limit_order, seed)


def load_preferences(
    path: str | Path,
    *,
    name: str | None = None,
    subset: str | None = None,
    split: str = "train",
    columns: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    limit: int | None = None,
    limit_order: Order = "shuffled",
    seed: int = 0,
) -> Loaded[PreferencePair]:
    """The preference pairs at `path`, a data set; arguments as in `load_problems`."""
    text = str(path)
    if text == ARITHMETIC or text.startswith(REASONING_GYM):
        raise DataError(
            f"{text} has problems but no pairs of responses",
            hint="give a data set with chosen and rejected",
        )
    table = _read(path, name=name, subset=subset, split=split, options=options)
    loaded = preferences_from_table(table, columns=columns)
    return _limited(loaded, limit, limit_order, seed)


def _read(
    path: str | Path,
    *,
    name: str | None,
    subset: str | None,
    split: str,
    options: Mapping[str, object] | None,
) -> Table:
    if options:
        raise DataError(
            f"options ({', '.join(options)}) are settings of a generated task, and {path} is none",
            hint=f"generated tasks are {ARITHMETIC} and {REASONING_GYM}TASK",
        )
    table = read_rows(path, subset=subset, split=split)
    return table if name is None else replace(table, name=name)


def _refuse_for_generated(
    path: str, *, subset: str | None, columns: Mapping[str, str] | None
) -> None:
    given = [key for key, value in (("subset", subset), ("columns", columns)) if value]
    if given:
        raise DataError(
            f"{' and '.join(given)} have no effect on {path}, whose problems are generated",
            hint="leave them out; settings of a generated task go into options",
        )


def _num_problems(path: str, settings: dict[str, object]) -> int:
    count = settings.pop("num_problems", DEFAULT_NUM_PROBLEMS)
    if type(count) is not int:
        raise DataError(f"option num_problems={count!r} of {path}; expected an integer")
    return count


def _generated(rows: list[Row], name: str, origin: str) -> Loaded[Row]:
    return Loaded(items=tuple(rows), name=name, origin=f"{origin} (generated)", total=len(rows))


def _limited(loaded: Loaded[Row], limit: int | None, order: Order, seed: int) -> Loaded[Row]:
    rows = tuple(take(loaded.items, limit, seed=seed, order=order))
    left_out = len(loaded.items) - len(rows)
    if not left_out:
        return loaded
    return replace(loaded, items=rows, dropped={**loaded.dropped, "over_limit": left_out})
