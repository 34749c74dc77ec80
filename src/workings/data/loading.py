"""One call from a data set's path to its usable rows: read or generate, map, check, take a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from workings.data.order import shuffled_as_datasets
from workings.data.places import OWN_QUESTION, Place, Where, read_places
from workings.data.preferences import preferences_from_table
from workings.data.problems import BadGold, CheckGold, Form, group_repeats, problems_from_table
from workings.data.reasoning_gym import PREFIX as REASONING_GYM
from workings.data.reasoning_gym import reasoning_gym_problems
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
    where: Where | None = None,
    more: Sequence[Place] = (),
    local: Sequence[Place] = (),
    options: Mapping[str, object] | None = None,
    form: Form | None = None,
    repeats: Literal["keep", "group"] = "keep",
    shuffle_seed: int | None = None,
    limit: int | None = None,
    limit_order: Order = "shuffled",
    problems: int | None = None,
    seed: int = 0,
    check_gold: CheckGold | None = None,
    bad_gold: BadGold = "error",
    data_dir: str | Path | None = None,
) -> Loaded[Problem]:
    """The problems at `path`: a data set, "arithmetic", or "reasoning_gym/TASK".

    Args:
        path: see `sources.read_rows`.
        name: what to call the data set; its file's or folder's name otherwise.
        subset, split: which configuration and split.
        columns: role to column, where the usual names are not used.
        where, more, local: see `places`.
        options: settings of a generated task, with `num_problems`.
        form: see `problems.Form`.
        repeats: group makes one problem of the rows that repeat a question of one source.
        shuffle_seed: the order of `Dataset.shuffle(seed)` over all rows, before the limit.
        limit, limit_order: at most so many rows, a seeded subset or the first.
        problems: how many there should be, unusable ones included; a note says if there are not.
        seed: of the subset and of generated tasks.
        check_gold: gives the reason why a gold answer cannot be graded against, or None.
        bad_gold: raise for such a gold, or leave the row out and count it.
        data_dir: stands for $WORKINGS_DATA_DIR.
    """
    text = str(path)
    place = Place(path=path, subset=subset, split=split, columns=columns or {}, where=where or {})
    if text == ARITHMETIC or text.startswith(REASONING_GYM):
        _refuse_for_generated(
            text, subset=subset, columns=columns, where=where, more=more, local=local, form=form
        )
        settings = dict(options or {})
        count = _num_problems(text, settings)
        if text == ARITHMETIC:
            task = arithmetic_task(settings)
            generated = arithmetic_problems(task, count, seed=seed, split=cast(SplitName, split))
        else:
            generated = reasoning_gym_problems(
                text, count, seed=seed, split=cast(SplitName, split), options=settings
            )
        loaded = _generated(generated, name or text, text)
    else:
        _refuse_options(text, options)
        tables = read_places([place, *more], local=local, name=name, data_dir=data_dir)
        loaded = _merged(
            [
                problems_from_table(
                    table,
                    columns=roles,
                    form=_form_for(table, form),
                    check_gold=check_gold,
                    bad_gold=bad_gold,
                )
                for table, roles in tables
            ],
            name,
        )
    if shuffle_seed is not None:
        loaded = _shuffled(loaded, shuffle_seed)
    if repeats == "group":
        loaded = _grouped(loaded)
    limited = _limited(loaded, limit, limit_order, seed)
    return _counted(limited, limit, problems)


def load_demonstrations(
    path: str | Path,
    *,
    name: str | None = None,
    subset: str | None = None,
    split: str = "train",
    columns: Mapping[str, str] | None = None,
    where: Where | None = None,
    more: Sequence[Place] = (),
    local: Sequence[Place] = (),
    options: Mapping[str, object] | None = None,
    shuffle_seed: int | None = None,
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
        _refuse_for_generated(
            text, subset=subset, columns=columns, where=where, more=more, local=local
        )
        settings = dict(options or {})
        count = _num_problems(text, settings)
        rows = arithmetic_demonstrations(
            arithmetic_task(settings), count, seed=seed, split=cast(SplitName, split)
        )
        loaded = _generated(rows, name or text, text)
    else:
        _refuse_options(text, options)
        place = Place(
            path=path, subset=subset, split=split, columns=columns or {}, where=where or {}
        )
        loaded = _merged(
            [
                demonstrations_from_table(table, columns=roles)
                for table, roles in read_places([place, *more], local=local, name=name)
            ],
            name,
        )
    if shuffle_seed is not None:
        loaded = _shuffled(loaded, shuffle_seed)
    return _limited(loaded, limit, limit_order, seed)


def load_preferences(
    path: str | Path,
    *,
    name: str | None = None,
    subset: str | None = None,
    split: str = "train",
    columns: Mapping[str, str] | None = None,
    where: Where | None = None,
    more: Sequence[Place] = (),
    local: Sequence[Place] = (),
    options: Mapping[str, object] | None = None,
    shuffle_seed: int | None = None,
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
    _refuse_options(text, options)
    place = Place(path=path, subset=subset, split=split, columns=columns or {}, where=where or {})
    loaded = _merged(
        [
            preferences_from_table(table, columns=roles)
            for table, roles in read_places([place, *more], local=local, name=name)
        ],
        name,
    )
    if shuffle_seed is not None:
        loaded = _shuffled(loaded, shuffle_seed)
    return _limited(loaded, limit, limit_order, seed)


def _form_for(table: Table, form: Form | None) -> Form | None:
    """The form; a table in our own schema has its choices in the question already."""
    if form is None or OWN_QUESTION not in table.columns:
        return form
    return replace(form, distractors=())


def _refuse_options(path: str, options: Mapping[str, object] | None) -> None:
    if options:
        raise DataError(
            f"options ({', '.join(options)}) are settings of a generated task, and {path} is none",
            hint=f"generated tasks are {ARITHMETIC} and {REASONING_GYM}TASK",
        )


def _refuse_for_generated(path: str, **arguments: object) -> None:
    given = [key for key, value in arguments.items() if value]
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


def _merged(parts: Sequence[Loaded[Row]], name: str | None) -> Loaded[Row]:
    """The rows of all tables, one after the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    dropped: dict[str, int] = {}
    positions: list[int] = []
    before = 0
    for part in parts:
        for reason, count in part.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
        positions += [before + position for position in _positions(part)]
        before += part.total
    return replace(
        first,
        items=tuple(item for part in parts for item in part.items),
        name=name or first.name.rpartition("/")[0],
        origin=" and ".join(part.origin for part in parts),
        total=before,
        dropped=dropped,
        positions=tuple(positions),
    )


def _positions(loaded: Loaded[Row]) -> Sequence[int]:
    if loaded.positions:
        return loaded.positions
    if loaded.num_dropped:
        raise DataError(
            f"{loaded.origin}: {loaded.num_dropped} rows are left out, and then neither "
            "shuffle_seed nor more can be used",
            hint="write the usable rows to a file of their own first",
        )
    return range(len(loaded.items))


def _shuffled(loaded: Loaded[Row], seed: int) -> Loaded[Row]:
    """The rows as `Dataset.shuffle(seed)` orders all of them, unusable ones included."""
    at = {position: index for index, position in enumerate(_positions(loaded))}
    order = [
        at[position] for position in shuffled_as_datasets(loaded.total, seed) if position in at
    ]
    return replace(loaded, items=tuple(loaded.items[index] for index in order), positions=())


def _grouped(loaded: Loaded[Problem]) -> Loaded[Problem]:
    grouped = group_repeats(loaded.items)
    repeated = len(loaded.items) - len(grouped)
    items = tuple(group.problem for group in grouped)
    dropped = {**loaded.dropped, "repeated": repeated} if repeated else loaded.dropped
    return replace(loaded, items=items, dropped=dropped, positions=())


def _counted(loaded: Loaded[Problem], limit: int | None, expected: int | None) -> Loaded[Problem]:
    """The same, with a note where the number of problems is not the expected one."""
    found = len(loaded.items) + loaded.dropped.get("bad_gold", 0)
    is_subset = limit is not None and loaded.dropped.get("over_limit", 0) > 0
    if expected is None or found == expected or (is_subset and found < expected):
        return loaded
    note = f"{loaded.origin} has {found:,} problems, and {expected:,} are expected"
    return replace(loaded, notes=(*loaded.notes, note))


def _limited(loaded: Loaded[Row], limit: int | None, order: Order, seed: int) -> Loaded[Row]:
    rows = tuple(take(loaded.items, limit, seed=seed, order=order))
    left_out = len(loaded.items) - len(rows)
    if not left_out:
        return loaded
    return replace(loaded, items=rows, dropped={**loaded.dropped, "over_limit": left_out})
