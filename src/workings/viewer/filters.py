"""Which rows of a file are shown: filters, search, and the page of what is left."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workings.viewer.facets import read_facets
from workings.viewer.rows import RowFile, matching_rows, open_rows
from workings.viewer.versions import Version

MOST_ROWS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What a row must be to be shown. An empty tuple, None and "" ask for nothing.

    Attributes:
        verdicts, kinds, sources, subjects, levels: the row has one of these; kinds are "11" ...
        min_length, max_length: tokens of the response, both included.
        truncated: whether it ran into the limit of tokens.
        text: prompt, response or gold holds it, in any case.
    """

    verdicts: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    min_length: int | None = None
    max_length: int | None = None
    truncated: bool | None = None
    text: str = ""

    @property
    def need_facets(self) -> bool:
        """Whether a row's own values are asked for, and not its text alone."""
        lists = (self.verdicts, self.kinds, self.sources, self.subjects, self.levels)
        limits = (self.min_length, self.max_length, self.truncated)
        return any(lists) or any(one is not None for one in limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of rows.

    Attributes:
        number, count: of this page, from 1 on, and of all; there is always a first one.
        rows: the numbers of its rows in the file.
        total: rows on all pages together.
    """

    number: int
    count: int
    rows: tuple[int, ...]
    total: int


def select(file: RowFile, filters: Filters) -> Sequence[int]:
    """The numbers of the rows that pass, in order; kept in memory until the file changes."""
    if filters == Filters():
        return range(file.num_rows)
    return _select(file.version, filters)


def page_of(rows: Sequence[int], number: int, size: int) -> Page:
    """Page `number` of `rows`; a number outside of 1 to the last is moved to the nearest of them.

    >>> page_of(range(25), 3, 10)
    Page(number=3, count=3, rows=(20, 21, 22, 23, 24), total=25)
    """
    size = min(max(size, 1), MOST_ROWS)
    count = max(1, math.ceil(len(rows) / size))
    number = min(max(number, 1), count)
    shown = rows[(number - 1) * size : number * size]
    return Page(number=number, count=count, rows=tuple(int(row) for row in shown), total=len(rows))


@functools.lru_cache(maxsize=64)
def _select(version: Version, filters: Filters) -> tuple[int, ...]:
    file = open_rows(Path(version[0]))
    kept = np.ones(file.num_rows, dtype=bool)
    if filters.need_facets:
        kept &= _by_facets(file, filters)
    if filters.text:
        kept &= matching_rows(file, filters.text)
    return tuple(np.flatnonzero(kept).tolist())


def _by_facets(file: RowFile, filters: Filters) -> np.ndarray[Any, np.dtype[np.bool_]]:
    facets = read_facets(file)
    kept = np.ones(file.num_rows, dtype=bool)
    for values, column in (
        (filters.verdicts, facets.verdict),
        (filters.kinds, facets.kind),
        (filters.sources, facets.source),
        (filters.subjects, facets.subject),
        (filters.levels, facets.level),
    ):
        if values:
            kept &= np.isin(column, np.array(values, dtype=object))
    if filters.min_length is not None:
        kept &= facets.length >= filters.min_length
    if filters.max_length is not None:
        kept &= facets.length <= filters.max_length
    if filters.truncated is not None:
        kept &= facets.truncated == filters.truncated
    return kept
