"""`Table`: rows as they were read, before anything is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workings.errors import DataError

PANDAS_INDEX = "__index_level_0__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of plain Python values.

    Attributes:
        rows: column name to value; a row may lack a column.
        columns: every column name, in the order of the file.
        name: short name of the data set, used in ids and as `source`.
        origin: where the rows came from, for messages.
    """

    rows: Sequence[Mapping[str, object]]
    columns: tuple[str, ...]
    name: str
    origin: str


def table_of(rows: Sequence[Mapping[str, object]], *, name: str, origin: str) -> Table:
    """A `Table` of `rows`, with the columns in the order in which they first occur.

    An index column that pandas wrote beside the data is not data and is left out. No rows at all
    raise DataError.
    """
    if not rows:
        raise DataError(f"{origin} has no rows", hint="check the path, the split and the file")
    columns = tuple(dict.fromkeys(column for row in rows for column in row))
    if PANDAS_INDEX in columns:
        columns = tuple(column for column in columns if column != PANDAS_INDEX)
        rows = [{key: row[key] for key in row if key != PANDAS_INDEX} for row in rows]
    return Table(rows=rows, columns=columns, name=name, origin=origin)
