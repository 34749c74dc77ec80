"""The tables of a data set that lies in several places, or has a copy in the folder of data sets.

local copies, where all files of one are there ──┐
else path, then more ────────────────────────────┴─> tables, filtered by `where`
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from workings.data.schemas import value_at
from workings.data.sources import DATA_DIR_VARIABLE, named_copy, read_rows
from workings.data.table import Table
from workings.errors import DataError, unknown_name

Where = Mapping[str, str | Sequence[str]]
JOINT = "+"
OWN_QUESTION = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place that rows come from; the arguments of `read_rows`, and what is taken of the rows.

    Attributes:
        path, subset, split: as in `read_rows`; a subset a+b is read as two tables.
        columns: role to column, where the usual names are not used.
        where: column to a value, a pattern with * and ?, or several; other rows are left aside.
    """

    path: str | Path
    subset: str | None = None
    split: str = "train"
    columns: Mapping[str, str] = field(default_factory=dict)
    where: Where = field(default_factory=dict)


def read_places(
    places: Sequence[Place],
    *,
    local: Sequence[Place] = (),
    name: str | None = None,
    data_dir: str | Path | None = None,
) -> list[tuple[Table, Mapping[str, str]]]:
    """Every table with its columns by role, in order: those of a local copy, else of `places`.

    The first of `local` whose files are all in the folder of data sets is taken; its path is a
    name, or several as a+b. A copy with a column "problem" is in our own schema and need not have
    the place's columns. `name` is what the data set is called; of several tables each is called
    NAME/PART, so that ids stay unique. `data_dir` stands for $WORKINGS_DATA_DIR.
    """
    copy = find_copy(local, data_dir)
    chosen = list(places)
    if copy is not None:
        place, files = copy
        chosen = [replace(place, path=file) for file in files]
    parts = [part for place in chosen for part in _subsets(place)]
    tables = [_read(part, local, data_dir) for part in parts]
    if name is not None:
        tables = [replace(table, name=name) for table in tables]
    if len(tables) > 1:
        tables = [
            replace(table, name=f"{table.name}/{part}")
            for table, part in zip(tables, _part_names(parts), strict=True)
        ]
    roles = [part.columns for part in parts]
    if copy is not None:
        roles = [_own_names(table, part.columns) for table, part in zip(tables, parts, strict=True)]
    return list(zip(tables, roles, strict=True))


def find_copy(
    local: Sequence[Place], data_dir: str | Path | None = None
) -> tuple[Place, tuple[Path, ...]] | None:
    """The first local copy that is complete, with its files or folders; None without one."""
    given = data_dir if data_dir is not None else os.environ.get(DATA_DIR_VARIABLE)
    if not given:
        return None
    folder = Path(given).expanduser()
    for place in local:
        names = str(place.path).split(JOINT)
        files = [named_copy(name, place.split, folder) for name in names]
        found = tuple(file for file in files if file is not None)
        if len(found) == len(names):
            return place, found
    return None


def _own_names(table: Table, columns: Mapping[str, str]) -> Mapping[str, str]:
    """Column by role, of a copy in our own schema those that it has."""
    if OWN_QUESTION not in table.columns:
        return columns
    return {role: column for role, column in columns.items() if column in table.columns}


def _subsets(place: Place) -> list[Place]:
    if place.subset is None or JOINT not in place.subset:
        return [place]
    return [replace(place, subset=part) for part in place.subset.split(JOINT)]


def _part_names(parts: Sequence[Place]) -> list[str]:
    """A short name of each part; its number where two would share one."""
    names = [part.subset or Path(str(part.path)).stem for part in parts]
    return names if len(set(names)) == len(names) else [str(i) for i in range(len(parts))]


def _read(place: Place, local: Sequence[Place], data_dir: str | Path | None) -> Table:
    try:
        table = read_rows(place.path, subset=place.subset, split=place.split, data_dir=data_dir)
    except DataError as error:
        if not local:
            raise
        names = " or ".join(dict.fromkeys(str(copy.path) for copy in local))
        copies = f"a local copy, {names}, may lie in the folder {DATA_DIR_VARIABLE} names"
        raise DataError(
            error.message, hint="; ".join(part for part in (error.hint, copies) if part)
        ) from error
    return _filtered(table, place.where) if place.where else table


def _filtered(table: Table, where: Where) -> Table:
    """The rows whose columns have the wanted values; DataError for no such column or row."""
    for column in where:
        if column.split(".")[0] not in table.columns:
            raise DataError(
                f"{table.origin}: where: {unknown_name('column', column, table.columns)}"
            )
    wanted = {
        column: (patterns,) if isinstance(patterns, str) else tuple(patterns)
        for column, patterns in where.items()
    }
    rows = [
        row
        for row in table.rows
        if all(
            any(fnmatchcase(str(value_at(row, column)), pattern) for pattern in patterns)
            for column, patterns in wanted.items()
        )
    ]
    said = ", ".join(f"{column}={'|'.join(patterns)}" for column, patterns in wanted.items())
    if not rows:
        raise DataError(f"{table.origin}: none of {len(table.rows)} rows has {said}")
    return replace(table, rows=rows, origin=f"{table.origin}, where {said}")
