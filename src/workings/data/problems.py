"""Rows to `Problem`s: a question with a gold answer that was checked when it was loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from workings.data import schemas
from workings.data.choices import letter_of, options_of, with_options
from workings.data.conversations import as_messages, question_of
from workings.data.golds import reduce_gold
from workings.data.loaded import Loaded
from workings.data.rows import RowReport, row_ids, text_or_none
from workings.data.schemas import map_columns, missing_role, other_columns, value_at
from workings.data.table import Table
from workings.errors import DataError
from workings.types import Message, Problem

CheckGold = Callable[[str], str | None]
BadGold = Literal["error", "drop"]

ROLES = (
    schemas.ID,
    schemas.QUESTION,
    schemas.ANSWER,
    schemas.OPTIONS,
    schemas.MESSAGES,
    schemas.SUBJECT,
    schemas.LEVEL,
    schemas.SOURCE,
)


def problems_from_table(
    table: Table,
    *,
    columns: Mapping[str, str] | None = None,
    check_gold: CheckGold | None = None,
    bad_gold: BadGold = "error",
) -> Loaded[Problem]:
    """The problems of a table in any schema that has a question and a gold answer.

    Where both `answer` and `solution` exist, `answer` is the gold and `solution` stays a column in
    `extra`; where only `solution` exists it is the gold, reduced to its last box. `check_gold`
    gives the reason why a gold cannot be graded against, or None. Golds that are not usable are
    listed in a DataError, or dropped and counted with `bad_gold="drop"`.
    """
    mapping = map_columns(table, ROLES, columns or {})
    _require_columns(table, mapping, columns or {})
    ids = row_ids(table, mapping.get("id"))
    worked = mapping["answer"] == "solution"
    report = RowReport(table.origin)
    problems: list[Problem] = []
    for number, row in enumerate(table.rows):
        try:
            question, messages = _question(row, mapping)
            options = options_of(value_at(row, mapping["options"])) if "options" in mapping else ()
        except DataError as error:
            report.unusable.append((number, error.message))
            continue
        try:
            answer = _gold(value_at(row, mapping["answer"]), options, worked, check_gold)
        except DataError as error:
            report.bad_golds.append((number, error.message))
            if bad_gold == "drop":
                report.drop("bad_gold")
            continue
        if options:
            question = with_options(question, options)
            messages = (*messages[:-1], Message(role="user", content=question)) if messages else ()
        problems.append(
            Problem(
                id=ids[number],
                question=question,
                answer=answer,
                messages=messages,
                subject=text_or_none(row, mapping, "subject"),
                level=text_or_none(row, mapping, "level"),
                source=text_or_none(row, mapping, "source") or table.name,
                extra=other_columns(row, mapping),
            )
        )
    report.check(len(table.rows), len(problems), bad_gold=bad_gold)
    return Loaded(
        items=tuple(problems),
        name=table.name,
        origin=table.origin,
        total=len(table.rows),
        mapping=mapping,
        dropped=report.dropped,
    )


def _require_columns(table: Table, mapping: dict[str, str], overrides: Mapping[str, str]) -> None:
    """Settle on a question or a conversation, in place; DataError where a column is missing."""
    if "messages" in overrides and "question" not in overrides:
        mapping.pop("question", None)
    elif "question" in mapping:
        mapping.pop("messages", None)
    elif "messages" not in mapping:
        raise missing_role(table, schemas.QUESTION)
    if "answer" not in mapping:
        raise missing_role(table, schemas.ANSWER)


def _question(
    row: Mapping[str, object], mapping: Mapping[str, str]
) -> tuple[str, tuple[Message, ...]]:
    if "question" in mapping:
        return question_of(value_at(row, mapping["question"]))
    messages = as_messages(value_at(row, mapping["messages"]))
    # A conversation kept for imitation ends in the reply; the problem ends in the question.
    return question_of(messages[:-1] if messages[-1]["role"] == "assistant" else messages)


def _gold(
    value: object, options: tuple[str, ...], worked: bool, check_gold: CheckGold | None
) -> str:
    gold = reduce_gold(value, worked=worked)
    if options:
        gold = letter_of(gold, options)
    reason = check_gold(gold) if check_gold is not None else None
    if reason is not None:
        raise DataError(f"gold {gold!r}: {reason}")
    return gold


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedProblem:
    """A problem and how many rows of its data set hold it."""

    problem: Problem
    count: int


def group_repeats(problems: Sequence[Problem]) -> list[RepeatedProblem]:
    """Each distinct problem of each source once, in order of first occurrence, with its row count.

    Some benchmark files repeat a question 32 times so that one sample per row gives avg@32; here
    that is one problem with 32 samples. Rows that ask the same but differ in the gold stay apart.
    """
    groups: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in problems:
        key = (problem.source, problem.question, problem.answer)
        groups.setdefault(key, []).append(problem)
    return [RepeatedProblem(problem=rows[0], count=len(rows)) for rows in groups.values()]
