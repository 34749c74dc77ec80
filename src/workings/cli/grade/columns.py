"""Where a row's responses, gold and labels stand: named columns, or the usual names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workings.data.streaming import StreamedRow
from workings.errors import DataError, unknown_name

RESPONSES = (
    *("response", "completion", "output", "prediction", "generated_text", "generation"),
    *("full_response", "model_output", "responses", "completions", "outputs", "predictions"),
    *("generations", "samples"),
)
GOLDS = (
    *("answer", "gold", "target", "ground_truth", "expected_answer", "final_answer"),
    *("gold_answer", "reference_answer", "reward_model.ground_truth", "solution"),
)
KINDS = ("kind", "subject", "type", "source", "data_source")
IDS = ("id", "problem_id", "unique_id")
DEBATABLE = "debatable"
NO_BREAKDOWN = "none"
MISSING = object()

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Paths of the columns that are read; a dot enters an object or a list.

    Attributes:
        response, gold: of every row.
        by: what accuracies are broken down by.
        problem: says which rows are samples of one problem; None where each row is its own.
        expected: whether a response is right; None where nobody said.
        debatable: marks rows whose label is not counted; None where there is no such column.
        kept: what goes into the output besides, `by` and `problem` included.
    """

    response: str
    gold: str
    by: tuple[str, ...] = ()
    problem: str | None = None
    expected: str | None = None
    debatable: str | None = None
    kept: tuple[str, ...] = ()

    @property
    def roots(self) -> frozenset[str]:
        """The outermost columns that have to be read."""
        named = (self.response, self.gold, self.expected, self.debatable, "response_parts")
        paths = [path for path in (*named, *self.kept) if path is not None]
        return frozenset([*paths, *(path.split(".")[0] for path in paths)])


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedFor:
    """The columns that the user named; None and () leave the choice to the usual names."""

    response: str | None = None
    gold: str | None = None
    by: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    expected: str | None = None


def choose_columns(rows: Sequence[StreamedRow], asked: AskedFor, *, origin: str) -> Columns:
    """The columns of a file, from its first rows; DataError for one that is not there."""
    values = [row.values for row in rows if row.values is not None]
    if not values:
        raise _nothing_to_read(rows, origin)
    chosen = _Choice(values, origin)
    response = chosen.named("response", asked.response) or chosen.usual("response", RESPONSES)
    gold = chosen.named("gold", asked.gold) or chosen.usual("gold", GOLDS)
    by: tuple[str, ...] = ()
    if asked.by:
        by = tuple(chosen.must_exist("by", path) for path in asked.by if path != NO_BREAKDOWN)
    elif usual := chosen.first_of(KINDS):
        by = (usual,)
    problem = chosen.first_of(IDS)
    kept = [chosen.must_exist("keep", path) for path in asked.keep]
    return Columns(
        response=response,
        gold=gold,
        by=by,
        problem=problem,
        expected=chosen.named("expected", asked.expected),
        debatable=DEBATABLE if asked.expected and chosen.exists(DEBATABLE) else None,
        kept=tuple(dict.fromkeys([*([problem] if problem else []), *by, *kept])),
    )


def look_up(row: Row, path: str) -> object:
    """The value at `path`, `MISSING` where there is none.

    A part of the path is a key, a number in a list, or a key of every object in a list.

    >>> look_up({"reward_model": {"ground_truth": "18"}}, "reward_model.ground_truth")
    '18'
    >>> look_up({"choices": [{"text": "a"}, {"text": "b"}]}, "choices.text")
    ['a', 'b']
    >>> look_up({"choices": [{"text": "a"}, {"text": "b"}]}, "choices.-1.text")
    'b'
    """
    return row[path] if path in row else _inside(row, path.split("."))


def _inside(value: object, parts: Sequence[str]) -> object:
    for number, part in enumerate(parts):
        if isinstance(value, Mapping):
            if part not in value:
                return MISSING
            value = value[part]
        elif isinstance(value, list):
            if part.removeprefix("-").isdecimal():
                if not -len(value) <= int(part) < len(value):
                    return MISSING
                value = value[int(part)]
            else:
                found = [_inside(element, parts[number:]) for element in value]
                return MISSING if MISSING in found or not found else found
        else:
            return MISSING
    return value


class _Choice:
    """Looks for columns in the first rows of a file."""

    def __init__(self, rows: Sequence[Row], origin: str) -> None:
        self._rows = rows
        self._origin = origin
        self._names = list(dict.fromkeys(name for row in rows for name in row))

    def exists(self, path: str) -> bool:
        return any(look_up(row, path) is not MISSING for row in self._rows)

    def first_of(self, paths: Sequence[str]) -> str | None:
        """The first of `paths` under which some row has a value."""
        for path in paths:
            if any(look_up(row, path) not in (MISSING, None) for row in self._rows):
                return path
        return None

    def named(self, option: str, path: str | None) -> str | None:
        return None if path is None else self.must_exist(option, path)

    def must_exist(self, option: str, path: str) -> str:
        if self.exists(path):
            return path
        raise DataError(
            f"{self._origin}: --{option}: {unknown_name('column', path, self._names)}",
            hint="a dot enters an object: reward_model.ground_truth",
        )

    def usual(self, option: str, paths: Sequence[str]) -> str:
        found = [path for path in paths if self.exists(path)]
        if not found:
            raise DataError(
                f"{self._origin} has no column of a usual name for the {option}; found: "
                f"{', '.join(self._names)}; known: {', '.join(paths)}",
                hint=f"say which column it is: --{option} NAME",
            )
        return found[0]


def _nothing_to_read(rows: Sequence[StreamedRow], origin: str) -> DataError:
    if not rows:
        return DataError(f"{origin} has no rows")
    first = rows[0]
    return DataError(
        f"{origin}: none of its first {len(rows)} rows can be read; {first.place}: {first.fault}"
    )
