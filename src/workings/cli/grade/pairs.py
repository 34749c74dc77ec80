"""From rows to pairs of a response and a gold; what cannot become one says why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from workings.cli.grade.columns import MISSING, Columns, Row, look_up
from workings.data.golds import reduce_gold
from workings.data.streaming import StreamedRow
from workings.errors import DataError

PARTS = "response_parts"
_TRUTHS: Mapping[object, bool] = {"true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One response to grade.

    Attributes:
        index: number of the row in its file, from 0.
        line: line of the row, None in files without lines.
        sample: number of the response within the row, from 0.
        response, gold: None where `fault` or `gold_fault` says why.
        fault: why the row cannot be graded.
        gold_fault: why its gold cannot be graded against.
        expected: the label; None where the row has none.
        debatable: True where the label is not to be counted.
        kept: columns that go into the output.
    """

    index: int
    line: int | None = None
    sample: int = 0
    response: str | None = None
    gold: str | None = None
    fault: str | None = None
    gold_fault: str | None = None
    expected: bool | None = None
    debatable: bool = False
    kept: Mapping[str, object]


def pairs_of(rows: Iterable[StreamedRow], columns: Columns) -> Iterator[Pair]:
    """One pair per response, in order; exactly one for a row that holds none."""
    for row in rows:
        if row.values is None:
            yield Pair(index=row.index, line=row.line, fault=row.fault, kept={})
            continue
        kept = _kept(row.values, columns.kept)
        try:
            responses = _responses(row.values, columns.response)
            labels = _labels(row.values, columns.expected, len(responses))
        except DataError as error:
            yield Pair(index=row.index, line=row.line, fault=error.message, kept=kept)
            continue
        gold, gold_fault = _gold(row.values, columns.gold)
        debatable = columns.debatable is not None and bool(row.values.get(columns.debatable))
        for sample, (response, label) in enumerate(zip(responses, labels, strict=True)):
            yield Pair(
                index=row.index,
                line=row.line,
                sample=sample,
                response=response,
                gold=gold,
                gold_fault=gold_fault,
                expected=label,
                debatable=debatable,
                kept=kept,
            )


def _kept(row: Row, paths: Sequence[str]) -> dict[str, object]:
    values = ((path, look_up(row, path)) for path in paths)
    return {path: value for path, value in values if value is not MISSING}


def _responses(row: Row, path: str) -> list[str]:
    value = look_up(row, path)
    if value in (MISSING, None) and isinstance(row.get(PARTS), list):
        return [_joined(row[PARTS])]
    if value is MISSING:
        raise DataError(f"there is no {path!r}")
    if isinstance(value, list) and not _is_conversation(value):
        if not value:
            raise DataError(f"{path!r} is an empty list")
        return [_text(one, f"{path!r}, sample {number}") for number, one in enumerate(value)]
    return [_text(value, repr(path))]


def _text(value: object, what: str) -> str:
    """A response as text; of a conversation the last turn."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and _is_conversation(value):
        return _text(value[-1]["content"], what)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return reduce_gold(value)
    kind = "null" if value is None else f"of type {type(value).__name__}"
    raise DataError(f"{what} is {kind}; expected text")


def _is_conversation(value: list[object]) -> bool:
    return bool(value) and all(
        isinstance(turn, Mapping) and "role" in turn and "content" in turn for turn in value
    )


def _joined(parts: object) -> str:
    """The response of a case file that spells it in parts: [[text, how often], ...]."""
    try:
        return "".join(text * count for text, count in parts)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise DataError(f"{PARTS!r} is no list of [text, count]: {error}") from error


def _labels(row: Row, path: str | None, count: int) -> list[bool | None]:
    if path is None:
        return [None] * count
    value = look_up(row, path)
    values = value if isinstance(value, list) else [value] * count
    if len(values) != count:
        raise DataError(f"{path!r} holds {len(values)} labels for {count} responses")
    return [_label(one, path) for one in values]


def _label(value: object, path: str) -> bool | None:
    if value in (MISSING, None):
        return None
    label = _TRUTHS.get(str(value).strip().lower())
    if label is None:
        raise DataError(f"the label {path!r} is {value!r:.80}; expected true or false")
    return label


def _gold(row: Row, path: str) -> tuple[str | None, str | None]:
    """(gold, why it is unusable), reduced as data sets reduce theirs when they are loaded."""
    value = look_up(row, path)
    if value is MISSING:
        return None, f"there is no {path!r}"
    try:
        return reduce_gold(value, worked=path.split(".")[-1] == "solution"), None
    except DataError as error:
        return None, error.message
