"""Strings and message lists as questions and responses."""

from __future__ import annotations

import pytest

from workings.data.conversations import as_messages, question_of, response_of, without_system
from workings.errors import DataError
from workings.types import Message

SYSTEM = Message(role="system", content="S")
USER = Message(role="user", content="U")
ASSISTANT = Message(role="assistant", content="A")


def test_questions() -> None:
    assert question_of(" 2+2? ") == (" 2+2? ", ())
    assert question_of([SYSTEM, USER]) == ("U", (SYSTEM, USER))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("  ", "the question is empty"),
        (None, "None is not a list of messages"),
        ([], r"\[\] is not a list of messages"),
        ([USER, ASSISTANT], "ends in a turn of 'assistant', not of 'user'"),
        ([{"role": "user"}], "turn 0, .* is not a role and a content of text"),
        ([{"role": "user", "content": None}], "turn 0"),
        (["hello"], "turn 0, 'hello'"),
    ],
)
def test_what_is_no_question(value: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        question_of(value)


def test_responses() -> None:
    assert response_of("x") == "x"
    assert response_of([ASSISTANT]) == "A"
    for empty in (None, "", " \n", [], [{"role": "assistant", "content": ""}]):
        assert response_of(empty) is None
    with pytest.raises(DataError, match="a response of the turns user, assistant"):
        response_of([USER, ASSISTANT])


def test_other_keys_of_a_turn_are_left_out() -> None:
    assert as_messages([{**USER, "name": "x"}]) == (USER,)


def test_without_system_does_not_fail_without_one() -> None:
    assert without_system([SYSTEM, USER]) == (USER,)
    assert without_system([USER]) == (USER,)
    assert without_system([]) == ()
