"""Rows to `Problem`s: a question with a gold answer that was checked when it was loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Literal

from workings.data import schemas
from workings.data.choices import (
    LABELS,
    are_indices,
    labels_in,
    labels_of,
    letter_of,
    options_of,
    placed_among,
    with_options,
)
from workings.data.conversations import as_messages, question_of
from workings.data.golds import reduce_gold
from workings.data.loaded import Loaded
from workings.data.rows import RowReport, row_ids, text_or_none
from workings.data.schemas import map_columns, missing_role, other_columns, value_at
from workings.data.table import Table
from workings.errors import DataError, unknown_name
from workings.types import Message, Problem

CheckGold = Callable[[str], str | None]
BadGold = Literal["error", "drop"]
Answers = Literal["text", "choice", "none"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a row becomes a question with a gold answer.

    Attributes:
        answers: "choice" is one label of those that the question lists; "none" has no gold; None is
            "choice" where the row offers options and "text" elsewhere.
        distractors: columns of wrong options, where the row's options are not in one column.
        wording: text around `{question}`, which includes the options; may hold `{subject}`.
    """

    answers: Answers | None = None
    distractors: tuple[str, ...] = ()
    wording: str | None = None


def problems_from_table(
    table: Table,
    *,
    columns: Mapping[str, str] | None = None,
    form: Form | None = None,
    check_gold: CheckGold | None = None,
    bad_gold: BadGold = "error",
) -> Loaded[Problem]:
    """The problems of a table in any schema that has a question and a gold answer.

    Where both `answer` and `solution` exist, `answer` is the gold and `solution` stays a column in
    `extra`; where only `solution` exists it is the gold, reduced to its last box. `check_gold`
    gives the reason why a gold cannot be graded against, or None. Golds that are not usable are
    listed in a DataError, or dropped and counted with `bad_gold="drop"`.
    """
    form = form or Form()
    mapping = map_columns(table, ROLES, columns or {})
    _require_columns(table, mapping, columns or {}, form)
    ids = row_ids(table, mapping.get("id"))
    report = RowReport(table.origin)
    rows: list[tuple[int, Mapping[str, object], _Asked]] = []
    for number, row in enumerate(table.rows):
        try:
            rows.append((number, row, _asked(row, mapping, form)))
        except DataError as error:
            report.unusable.append((number, error.message))
    golds = _Golds(mapping, rows, form, check_gold)
    problems: list[Problem] = []
    positions: list[int] = []
    for number, row, asked in rows:
        try:
            answer = golds.of(row, asked)
        except DataError as error:
            report.bad_golds.append((number, error.message))
            if bad_gold == "drop":
                report.drop("bad_gold")
            continue
        subject = text_or_none(row, mapping, "subject")
        question = _worded(asked.question, form.wording, subject)
        problems.append(
            Problem(
                id=ids[number],
                question=question,
                answer=answer,
                messages=_ending_in(question, asked.messages, was=asked.asked),
                subject=subject,
                level=text_or_none(row, mapping, "level"),
                source=text_or_none(row, mapping, "source") or table.name,
                extra=other_columns(row, mapping)
                | ({LABELS: asked.labels} if asked.labels else {}),
            )
        )
        positions.append(number)
    report.check(len(table.rows), len(problems), bad_gold=bad_gold)
    return Loaded(
        items=tuple(problems),
        name=table.name,
        origin=table.origin,
        total=len(table.rows),
        mapping=mapping,
        dropped=report.dropped,
        positions=tuple(positions),
    )


def _require_columns(
    table: Table, mapping: dict[str, str], overrides: Mapping[str, str], form: Form
) -> None:
    """Settle on a question or a conversation, in place; DataError where a column is missing."""
    if "messages" in overrides and "question" not in overrides:
        mapping.pop("question", None)
    elif "question" in mapping:
        mapping.pop("messages", None)
    elif "messages" not in mapping:
        raise missing_role(table, schemas.QUESTION)
    if form.answers == "none":
        mapping.pop("answer", None)
    elif "answer" not in mapping:
        raise missing_role(table, schemas.ANSWER)
    for column in form.distractors:
        if column not in table.columns:
            raise DataError(
                f"{table.origin}: distractors: {unknown_name('column', column, table.columns)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a row asks.

    `asked` is its own text, `question` has the options below it, and `letter` is the right choice
    where the row says so by its columns alone.
    """

    asked: str
    question: str
    messages: tuple[Message, ...]
    options: tuple[str, ...] = ()
    own_labels: tuple[str, ...] = ()
    labels: str = ""
    letter: str | None = None

    @property
    def known(self) -> dict[str, object]:
        """What `Problem.extra` gets."""
        return {LABELS: self.labels} if self.labels else {}


def _asked(row: Mapping[str, object], mapping: Mapping[str, str], form: Form) -> _Asked:
    asked, messages = _question(row, mapping)
    question = asked
    if form.answers in ("text", "none"):
        return _Asked(asked=asked, question=question, messages=messages)
    letter = None
    own_labels: tuple[str, ...] = ()
    if form.distractors:
        wrong = [_option(row, column) for column in form.distractors]
        right = _option(row, mapping["answer"])
        options, letter = placed_among(right, wrong, question=question)
    else:
        value = value_at(row, mapping["options"]) if "options" in mapping else None
        options, own_labels = options_of(value), labels_of(value)
    labels = ascii_uppercase[: len(options)]
    if options:
        question = with_options(question, options)
    elif form.answers == "choice":
        labels = labels_in(question)
        if not labels:
            raise DataError("the question lists no choices, A) B) or 1) 2) on lines of their own")
    return _Asked(
        asked=asked,
        question=question,
        messages=messages,
        options=options,
        own_labels=own_labels,
        labels=labels,
        letter=letter,
    )


def _question(
    row: Mapping[str, object], mapping: Mapping[str, str]
) -> tuple[str, tuple[Message, ...]]:
    if "question" in mapping:
        return question_of(value_at(row, mapping["question"]))
    messages = as_messages(value_at(row, mapping["messages"]))
    # A conversation kept for imitation ends in the reply; the problem ends in the question.
    return question_of(messages[:-1] if messages[-1]["role"] == "assistant" else messages)


def _option(row: Mapping[str, object], column: str) -> str:
    value = value_at(row, column)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise DataError(f"the choice in column {column!r} is {value!r:.40}; expected a text")


def _worded(question: str, wording: str | None, subject: str | None) -> str:
    if wording is None:
        return question
    if "{subject}" in wording:
        wording = wording.replace("{subject}", (subject or "").replace("_", " "))
    return wording.replace("{question}", question.rstrip())


def _ending_in(question: str, messages: tuple[Message, ...], *, was: str) -> tuple[Message, ...]:
    """The conversation, its last turn replaced where `question` is more than `was` asked there."""
    if not messages or question == was:
        return messages
    return (*messages[:-1], Message(role="user", content=question))


class _Golds:
    """The golds of a table's rows, read in the way in which the whole table writes them."""

    def __init__(
        self,
        mapping: Mapping[str, str],
        rows: Sequence[tuple[int, Mapping[str, object], _Asked]],
        form: Form,
        check_gold: CheckGold | None,
    ) -> None:
        self._column = mapping.get("answer", "")
        self._has_golds = form.answers != "none"
        self._check = check_gold
        offering = [(row, asked) for _, row, asked in rows if asked.options and not asked.letter]
        self._by_index = are_indices(
            [value_at(row, self._column) for row, _ in offering],
            [asked.options for _, asked in offering],
        )

    def of(self, row: Mapping[str, object], asked: _Asked) -> str:
        """The gold of a row; DataError holds the reason why it has none that can be used."""
        if not self._has_golds:
            return ""
        if asked.letter is not None:
            return asked.letter
        gold = reduce_gold(value_at(row, self._column), worked=self._column == "solution")
        if asked.options:
            gold = letter_of(gold, asked.options, asked.own_labels, by_index=self._by_index)
        elif asked.labels and gold not in tuple(asked.labels):
            raise DataError(f"the gold {gold!r} is none of the choices {', '.join(asked.labels)}")
        reason = self._check(gold) if self._check is not None else None
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
