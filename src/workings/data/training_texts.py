"""The question of one training row in any known schema, its choices, and the rest of its text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from workings.data import schemas
from workings.data.choices import options_of
from workings.data.conversations import as_messages, question_of
from workings.data.schemas import value_at
from workings.errors import DataError

QUESTIONS = schemas.QUESTION.columns
REST = (*schemas.RESPONSE.columns, "reasoning_trace", *schemas.TEXT.columns)


class TrainingText(NamedTuple):
    """Attributes: the question, None where the row has none; and its other text."""

    question: str | None
    rest: str


def training_text(row: Mapping[str, object], *, column: str | None = None) -> TrainingText:
    """Question and other text of a row, from the columns that hold them by their usual names.

    Of a conversation the last turn of the user is the question, and the turns of the assistant are
    the rest.

    Args:
        column: where the question stands, a string or messages; a usual name where None.

    >>> training_text({"problem": "2+2?", "response": "4"})
    TrainingText(question='2+2?', rest='4')
    """
    names = (column,) if column is not None else QUESTIONS
    question: str | None = None
    rest: list[str] = []
    for name in names:
        if question is None and (value := value_at(row, name)) is not None:
            question = _question(value)
    if question is None and column is None:
        for name in schemas.MESSAGES.columns:
            if question is None and (value := value_at(row, name)) is not None:
                question, replies = _last_question(value)
                rest += replies
    rest += [text for name in REST for text in _texts(row.get(name))]
    return TrainingText(question, "\n".join(rest))


def choices_offered(row: Mapping[str, object]) -> tuple[str, ...]:
    """The choices that the row has in a column of a usual name; empty where it has none.

    DataError where what stands there cannot be read as choices.

    >>> choices_offered({"problem": "2+2?", "choices": ["3", "4"]}), choices_offered({"text": "x"})
    (('3', '4'), ())
    """
    values = (value_at(row, name) for name in schemas.OPTIONS.columns)
    return options_of(next((value for value in values if value is not None), None))


def _question(value: object) -> str | None:
    try:
        return question_of(value)[0]
    except DataError:
        return None


def _last_question(value: object) -> tuple[str | None, list[str]]:
    try:
        messages = as_messages(value)
    except DataError:
        return None, []
    asked = [turn["content"] for turn in messages if turn["role"] == "user"]
    replies = [turn["content"] for turn in messages if turn["role"] == "assistant"]
    return (asked[-1] if asked else None), replies


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not value:
        return []
    try:
        return [turn["content"] for turn in as_messages(value)]
    except DataError:
        return []
