"""Rows to `PreferencePair`s: a question with a preferred and a rejected response."""

from __future__ import annotations

import re
from collections.abc import Mapping

from workings.data import schemas
from workings.data.conversations import as_messages, question_of, response_of
from workings.data.loaded import Loaded
from workings.data.rows import RowReport, row_ids, text_or_none
from workings.data.schemas import map_columns, missing_role, other_columns, value_at
from workings.data.table import Table
from workings.errors import DataError
from workings.types import Message, PreferencePair

ROLES = (schemas.ID, schemas.QUESTION, schemas.CHOSEN, schemas.REJECTED, schemas.SOURCE)
_TURN = re.compile(r"\n\n(Human|Assistant):\s?")


def preferences_from_table(
    table: Table, *, columns: Mapping[str, str] | None = None
) -> Loaded[PreferencePair]:
    """The pairs of a table with `chosen` and `rejected`, and a prompt column or none.

    Without a prompt column both sides hold the whole conversation: message lists that share all
    but their last turn, or transcripts with "Human:" and "Assistant:" turns (Anthropic HH). Of the
    latter only conversations of one exchange are kept; the others are counted as "multi_turn".
    Rows where a response is empty are counted as "no_response".
    """
    mapping = map_columns(table, ROLES, columns or {})
    for role in (schemas.CHOSEN, schemas.REJECTED):
        if role.name not in mapping:
            raise missing_role(table, role)
    ids = row_ids(table, mapping.get("id"))
    report = RowReport(table.origin)
    pairs: list[PreferencePair] = []
    for number, row in enumerate(table.rows):
        chosen, rejected = (value_at(row, mapping[side]) for side in ("chosen", "rejected"))
        try:
            if "question" in mapping:
                question, messages = question_of(value_at(row, mapping["question"]))
            else:
                (question, messages), chosen, rejected = _shared_prompt(chosen, rejected)
            responses = response_of(chosen), response_of(rejected)
        except _MultiTurnError:
            report.drop("multi_turn")
            continue
        except DataError as error:
            report.unusable.append((number, error.message))
            continue
        if responses[0] is None or responses[1] is None:
            report.drop("no_response")
            continue
        pairs.append(
            PreferencePair(
                id=ids[number],
                question=question,
                chosen=responses[0],
                rejected=responses[1],
                messages=messages,
                source=text_or_none(row, mapping, "source") or table.name,
                extra=other_columns(row, mapping),
            )
        )
    report.check(len(table.rows), len(pairs))
    return Loaded(
        items=tuple(pairs),
        name=table.name,
        origin=table.origin,
        total=len(table.rows),
        mapping=mapping,
        dropped=report.dropped,
    )


class _MultiTurnError(Exception):
    """A transcript of more than one exchange."""


def _shared_prompt(
    chosen: object, rejected: object
) -> tuple[tuple[str, tuple[Message, ...]], object, object]:
    """The prompt that both sides begin with, and what each adds to it."""
    if isinstance(chosen, str) and isinstance(rejected, str):
        (question, chosen_reply), (other, rejected_reply) = _exchange(chosen), _exchange(rejected)
        if question != other:
            raise DataError("chosen and rejected begin with different questions")
        return question_of(question), chosen_reply, rejected_reply
    ours, theirs = as_messages(chosen), as_messages(rejected)
    if ours[:-1] != theirs[:-1]:
        raise DataError("chosen and rejected share no prompt: they differ before their last turn")
    if len(ours) < 2:
        raise DataError("chosen and rejected hold no question, and there is no prompt column")
    return question_of(ours[:-1]), ours[-1:], theirs[-1:]


def _exchange(transcript: str) -> tuple[str, str]:
    """The question and the reply of a transcript of one exchange."""
    parts = _TURN.split(transcript)
    roles, texts = parts[1::2], parts[2::2]
    if parts[0].strip() or roles[:2] != ["Human", "Assistant"]:
        raise DataError("the transcript does not begin with a Human and an Assistant turn")
    if len(roles) > 2:
        raise _MultiTurnError
    return texts[0].strip(), texts[1].strip()
