"""`Loaded`: the rows that came out of a data set, with how they were read and what was left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[Row]):
    """The usable rows of one data set.

    Attributes:
        items: the rows, in the order of the file.
        name: what the data set is called in ids and metrics.
        origin: where it came from, for messages ("data/train.parquet").
        total: rows that were read.
        mapping: role to column, e.g. {"question": "problem", "answer": "solution"}.
        dropped: reason to number of rows left out.
        positions: the row of each item, from 0 in the file; empty where nobody needs them.
        notes: what a user should know about these rows, one sentence each.
    """

    items: tuple[Row, ...]
    name: str
    origin: str
    total: int
    mapping: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    positions: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def num_dropped(self) -> int:
        """Rows left out, for whatever reason."""
        return sum(self.dropped.values())
