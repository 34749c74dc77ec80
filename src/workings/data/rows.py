"""What all readers of rows share: a unique id per row, and one error for all unusable rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workings.data.schemas import value_at
from workings.data.table import Table
from workings.errors import DataError

SHOWN = 10


@dataclass(slots=True)
class RowReport:
    """What went wrong in the rows of one table, gathered so that it is said all at once.

    Attributes:
        origin: the table's.
        unusable: row number and reason, for rows that are broken and stop the load.
        bad_golds: row number and reason, for golds that the grader cannot use.
        dropped: reason to count, for rows that are left out by rule.
    """

    origin: str
    unusable: list[tuple[int, str]] = field(default_factory=list)
    bad_golds: list[tuple[int, str]] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str) -> None:
        """Count one row left out."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def check(self, total: int, kept: int, *, bad_gold: str = "error") -> None:
        """Raise DataError for broken rows, for bad golds unless dropped, and for nothing left."""
        if self.unusable:
            raise DataError(
                f"{self.origin}: {len(self.unusable)} of {total} rows are not usable"
                f"{_listed(self.unusable)}"
            )
        if self.bad_golds and bad_gold == "error":
            raise DataError(
                f"{self.origin}: {len(self.bad_golds)} of {total} gold answers are not usable"
                f"{_listed(self.bad_golds)}",
                hint="correct them, or set bad_gold=drop to leave these rows out and count them",
            )
        if not kept:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in self.dropped.items())
            raise DataError(f"{self.origin}: none of {total} rows is left ({reasons})")


def row_ids(table: Table, column: str | None) -> list[str]:
    """One unique id per row, "name/value"; the row number where the id column is not unique.

    The number counts from 0 in the file, so that an id stays the same when other rows are dropped.
    """
    if column is not None:
        values = [value_at(row, column) for row in table.rows]
        if None not in values and len({str(value) for value in values}) == len(values):
            return [f"{table.name}/{value}" for value in values]
    return [f"{table.name}/{number}" for number in range(len(table.rows))]


def text_or_none(row: Mapping[str, object], mapping: Mapping[str, str], role: str) -> str | None:
    """The value of an optional role as text; None where it is absent, null, NaN or blank."""
    value = value_at(row, mapping[role]) if role in mapping else None
    if value is None:
        return None
    if isinstance(value, float):
        if math.isnan(value):  # what pandas makes of null in a column of numbers
            return None
        value = int(value) if value.is_integer() else value
    return str(value).strip() or None


def _listed(rows: Sequence[tuple[int, str]]) -> str:
    lines = [f"\n  row {number}: {reason}" for number, reason in rows[:SHOWN]]
    more = f"\n  and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return ":" + "".join(lines) + more
