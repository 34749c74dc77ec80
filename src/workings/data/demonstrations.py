"""Rows to `Demonstration`s: a question with a response to imitate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workings.data import schemas
from workings.data.conversations import as_messages, question_of, response_of
from workings.data.golds import GSM8K_MARK, reduce_gold
from workings.data.loaded import Loaded
from workings.data.rows import RowReport, row_ids, text_or_none
from workings.data.schemas import map_columns, missing_role, other_columns, value_at
from workings.data.table import Table
from workings.errors import DataError
from workings.types import Demonstration, Message, Problem

ROLES = (
    schemas.ID,
    schemas.QUESTION,
    schemas.RESPONSE,
    schemas.ANSWER,
    schemas.MESSAGES,
    schemas.TEXT,
    schemas.SOURCE,
)
TRACE_COLUMNS = ("target", "target_lst")


def demonstrations_from_table(
    table: Table, *, columns: Mapping[str, str] | None = None
) -> Loaded[Demonstration]:
    """The demonstrations of a table: question and response, a conversation, or plain text.

    Of a conversation the last assistant turn is the response and the turns before it are context.
    Plain text becomes a response without a question, which is trained without a template. Rows
    without a response (a null target) are left out and counted as "no_response".
    """
    mapping = map_columns(table, ROLES, columns or {})
    _choose_schema(table, mapping, columns or {})
    ids = row_ids(table, mapping.get("id"))
    report = RowReport(table.origin)
    demonstrations: list[Demonstration] = []
    for number, row in enumerate(table.rows):
        try:
            question, response, messages = _turns(row, mapping)
        except DataError as error:
            report.unusable.append((number, error.message))
            continue
        if response is None:
            report.drop("no_response")
            continue
        demonstrations.append(
            Demonstration(
                id=ids[number],
                question=question,
                response=response,
                answer=_answer(row, mapping),
                messages=messages,
                source=text_or_none(row, mapping, "source") or table.name,
                extra=other_columns(row, mapping),
            )
        )
    report.check(len(table.rows), len(demonstrations))
    return Loaded(
        items=tuple(demonstrations),
        name=table.name,
        origin=table.origin,
        total=len(table.rows),
        mapping=mapping,
        dropped=report.dropped,
    )


def _choose_schema(table: Table, mapping: dict[str, str], overrides: Mapping[str, str]) -> None:
    """Keep the roles of one schema, in place: the one the user named, else the first that fits."""
    if "response" not in mapping and _answer_is_worked(table, mapping):
        mapping["response"] = mapping["answer"]
    fits = {
        "response": "question" in mapping and "response" in mapping,
        "messages": "messages" in mapping,
        "text": ("text" in mapping and "question" not in mapping) or "text" in overrides,
    }
    named = [schema for schema in fits if fits[schema] and schema in overrides]
    chosen = next(iter([*named, *(schema for schema in fits if fits[schema])]), None)
    if chosen == "response":
        unused = ["messages", "text"]
    elif chosen == "messages":
        unused = ["question", "response", "text"]
    elif chosen == "text":
        unused = ["question", "response", "messages"]
    else:
        raise missing_role(table, schemas.RESPONSE if "question" in mapping else schemas.QUESTION)
    for role in unused:
        mapping.pop(role, None)


def _answer_is_worked(table: Table, mapping: Mapping[str, str]) -> bool:
    """True for the original GSM8K schema, whose answer column holds the solution and `#### n`."""
    if "answer" not in mapping:
        return False
    first = value_at(table.rows[0], mapping["answer"])
    return isinstance(first, str) and GSM8K_MARK in first


def _turns(
    row: Mapping[str, object], mapping: Mapping[str, str]
) -> tuple[str, str | None, tuple[Message, ...]]:
    if "text" in mapping:
        return "", response_of(value_at(row, mapping["text"])), ()
    if "messages" in mapping:
        messages = as_messages(value_at(row, mapping["messages"]))
        if messages[-1]["role"] != "assistant":
            raise DataError(
                f"the conversation ends in a turn of {messages[-1]['role']!r}, not of 'assistant'"
            )
        question, context = question_of(messages[:-1])
        return question, response_of(messages[-1]["content"]), context
    question, context = question_of(value_at(row, mapping["question"]))
    return question, response_of(value_at(row, mapping["response"])), context


def _answer(row: Mapping[str, object], mapping: Mapping[str, str]) -> str | None:
    """The gold where the row has a usable one: a demonstration may be imitated without it."""
    if "answer" not in mapping:
        return None
    try:
        return reduce_gold(
            value_at(row, mapping["answer"]), worked=mapping["answer"] == mapping.get("response")
        )
    except DataError:
        return None


def problems_of(demonstrations: Sequence[Demonstration]) -> list[Problem]:
    """The same rows as problems, for evaluation; DataError where a row has no gold answer."""
    missing = [row.id for row in demonstrations if row.answer is None]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(demonstrations)} demonstrations have no gold answer "
            f"(first: {missing[0]}), so responses to them cannot be graded",
            hint="give the data set an answer column, or validate on another data set",
        )
    return [
        Problem(
            id=row.id,
            question=row.question,
            answer=str(row.answer),
            messages=row.messages,
            source=row.source,
            extra=row.extra,
        )
        for row in demonstrations
    ]


def teacher_traces(problems: Sequence[Problem]) -> dict[str, tuple[Demonstration, ...]]:
    """Problem id to the teacher's traces that the row carries in `target` or `target_lst`.

    Problems with a null or empty target are absent: they are sampled as ordinary prompts. The
    trace in `target` has the row's other columns as `extra` (recorded probabilities are among
    them); those in `target_lst` have none. Source: the training files of LUFFY (arXiv 2504.14945).
    """
    traces: dict[str, tuple[Demonstration, ...]] = {}
    for problem in problems:
        about = {name: v for name, v in problem.extra.items() if name not in TRACE_COLUMNS}
        found: dict[str, Mapping[str, object]] = {}
        try:
            for number, target in enumerate(_targets(problem.extra)):
                response = response_of(target)
                if response is not None and response not in found:
                    found[response] = about if number == 0 else {}
        except DataError as error:
            raise DataError(f"{problem.id}: the target is not usable: {error.message}") from error
        if found:
            traces[problem.id] = tuple(
                Demonstration(
                    id=f"{problem.id}/trace{number}",
                    question=problem.question,
                    response=response,
                    answer=problem.answer,
                    messages=problem.messages,
                    source=problem.source,
                    extra=extra,
                )
                for number, (response, extra) in enumerate(found.items())
            )
    return traces


def _targets(extra: Mapping[str, object]) -> list[object]:
    targets = [extra.get("target")]
    several = extra.get("target_lst")
    if isinstance(several, Sequence) and not isinstance(several, str):
        targets.extend(several)
    return targets
