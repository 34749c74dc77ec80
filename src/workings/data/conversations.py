"""Questions and responses out of strings and message lists."""

from __future__ import annotations

from collections.abc import Sequence

from workings.errors import DataError
from workings.types import Message


def as_messages(value: object) -> tuple[Message, ...]:
    """`value` as a conversation; DataError says which turn is not {role, content} of strings.

    >>> as_messages([{"role": "user", "content": "2+2?", "name": None}])
    ({'role': 'user', 'content': '2+2?'},)
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        raise DataError(f"{_shown(value)} is not a list of messages")
    messages: list[Message] = []
    for number, turn in enumerate(value):
        role = turn.get("role") if isinstance(turn, dict) else None
        content = turn.get("content") if isinstance(turn, dict) else None
        if not isinstance(role, str) or not isinstance(content, str):
            raise DataError(f"turn {number}, {_shown(turn)}, is not a role and a content of text")
        messages.append(Message(role=role, content=content))
    return tuple(messages)


def question_of(value: object) -> tuple[str, tuple[Message, ...]]:
    """The question in a prompt column, and the conversation that ends in it (empty for a string).

    >>> question_of("2+2?")
    ('2+2?', ())
    >>> question_of([{"role": "user", "content": "2+2?"}])
    ('2+2?', ({'role': 'user', 'content': '2+2?'},))
    """
    if isinstance(value, str):
        if not value.strip():
            raise DataError("the question is empty")
        return value, ()
    messages = as_messages(value)
    if messages[-1]["role"] != "user":
        raise DataError(
            f"the conversation ends in a turn of {messages[-1]['role']!r}, not of 'user'"
        )
    return question_of(messages[-1]["content"])[0], messages


def response_of(value: object) -> str | None:
    """The response in a completion column: a string or one assistant turn; None where it is empty.

    >>> response_of([{"role": "assistant", "content": "4"}])
    '4'
    """
    if value is None or (isinstance(value, Sequence) and not value):
        return None
    if isinstance(value, str):
        return value if value.strip() else None
    messages = as_messages(value)
    if len(messages) != 1 or messages[0]["role"] != "assistant":
        roles = ", ".join(message["role"] for message in messages)
        raise DataError(f"a response of the turns {roles}; expected one assistant turn")
    return response_of(messages[0]["content"])


def without_system(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation without its leading system message, if it has one."""
    return tuple(messages[1:] if messages and messages[0]["role"] == "system" else messages)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
