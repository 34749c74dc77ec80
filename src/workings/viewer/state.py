"""What is on the page, as query parameters: a link to a view is the address of the page.

A value that is the default is left out. Names of files are checked where they are opened
(`files.inside`), everything else here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from workings.errors import DataError
from workings.viewer.filters import MOST_ROWS, Filters

VIEWS = ("curves", "benchmarks", "responses", "compare")
COLOURINGS = ("none", "logprob", "advantage", "mask")
OUTCOMES = ("all", "first", "second", "differ")
TRUNCATED = ("any", "yes", "no")
_LISTS = ("runs", "metrics", "against", "verdicts", "kinds", "sources", "subjects", "levels")
_CHOICES = {"view": VIEWS, "colour": COLOURINGS, "outcome": OUTCOMES, "truncated": TRUNCATED}
_RANGES = {
    "smoothing": (1, 501),
    "page": (1, 10**9),
    "rows": (1, MOST_ROWS),
    "min_length": (-1, 10**9),
    "max_length": (-1, 10**9),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """Everything that a link says.

    Attributes:
        view: which of the pages.
        runs, metrics, smoothing: of the curves; the window of a centred mean, 1 for none.
        reference, against: evaluations that are compared, by their labels.
        file: responses that are read; problem: whose samples are shown, "" for all rows.
        verdicts ... text: as in `Filters`; lengths of -1 ask for nothing.
        page, rows: which page of rows, and how many rows it has.
        other, outcome: side by side, the second file, and which problems: all, those that the
            first or the second alone has right, or those on which they differ.
        markdown, latex, unfolded: how text is shown; colour: of tokens, instead of text.
    """

    view: str = "curves"
    runs: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    smoothing: int = 1
    reference: str = ""
    against: tuple[str, ...] = ()
    file: str = ""
    problem: str = ""
    verdicts: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    min_length: int = -1
    max_length: int = -1
    truncated: str = "any"
    text: str = ""
    page: int = 1
    rows: int = 10
    other: str = ""
    outcome: str = "all"
    markdown: bool = False
    latex: bool = True
    unfolded: bool = False
    colour: str = "none"

    @property
    def filters(self) -> Filters:
        """The part that says which rows are shown."""
        return Filters(
            verdicts=self.verdicts,
            kinds=self.kinds,
            sources=self.sources,
            subjects=self.subjects,
            levels=self.levels,
            min_length=None if self.min_length < 0 else self.min_length,
            max_length=None if self.max_length < 0 else self.max_length,
            truncated=None if self.truncated == "any" else self.truncated == "yes",
            text=self.text,
        )


def parse_query(query: Mapping[str, Sequence[str]]) -> ViewState:
    """The state that query parameters describe, each with all of its values.

    DataError for an unknown parameter and for a value that it cannot have.
    """
    known = {field.name: field.default for field in fields(ViewState)}
    values: dict[str, Any] = {}
    for name, given in query.items():
        if name not in known:
            raise DataError(f"the address has an unknown parameter {name!r}")
        values[name] = _value(name, known[name], given)
    return ViewState(**values)


def query_of(state: ViewState) -> dict[str, list[str]]:
    """The query parameters that `parse_query` reads as `state`."""
    query: dict[str, list[str]] = {}
    for field in fields(ViewState):
        value = getattr(state, field.name)
        if value == field.default:
            continue
        if field.name in _LISTS:
            query[field.name] = list(value)
        elif isinstance(value, bool):
            query[field.name] = ["yes" if value else "no"]
        else:
            query[field.name] = [str(value)]
    return query


def _value(name: str, default: object, given: Sequence[str]) -> Any:
    if name in _LISTS:
        return tuple(given)
    if len(given) != 1:
        raise DataError(f"the address has {len(given)} values of {name}; expected one")
    text = given[0]
    if isinstance(default, bool):
        if text not in ("yes", "no"):
            raise DataError(f"the address has {name}={text}; expected yes or no")
        return text == "yes"
    if isinstance(default, int):
        low, high = _RANGES[name]
        number = int(text) if text.removeprefix("-").isdecimal() and len(text) < 12 else low - 1
        if not low <= number <= high:
            raise DataError(f"the address has {name}={text}; expected {low} to {high}")
        return number
    if name in _CHOICES and text not in _CHOICES[name]:
        raise DataError(
            f"the address has {name}={text}; expected one of {', '.join(_CHOICES[name])}"
        )
    return text
