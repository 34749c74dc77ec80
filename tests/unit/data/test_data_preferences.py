"""Preference tables and HH transcripts to pairs."""

from __future__ import annotations

import pytest

from workings.data.loaded import Loaded
from workings.data.preferences import preferences_from_table
from workings.data.table import table_of
from workings.errors import DataError
from workings.types import PreferencePair

USER = {"role": "user", "content": "2+2?"}
GOOD = {"role": "assistant", "content": "4"}
BAD = {"role": "assistant", "content": "5"}


def load(*rows: dict[str, object]) -> Loaded[PreferencePair]:
    return preferences_from_table(table_of(rows, name="set", origin="set.jsonl"))


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2+2?", "chosen": "4", "rejected": "5"},
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
        {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {
            "chosen": "\n\nHuman: 2+2?\n\nAssistant: 4",
            "rejected": "\n\nHuman: 2+2?\n\nAssistant: 5",
        },
    ],
)
def test_every_schema(row: dict[str, object]) -> None:
    pair = load(row).items[0]
    assert (pair.question, pair.chosen, pair.rejected) == ("2+2?", "4", "5")
    assert (pair.id, pair.source) == ("set/0", "set")


def test_multi_turn_transcripts_and_empty_replies_are_counted() -> None:
    one = "\n\nHuman: Hi\n\nAssistant: Hello"
    two = one + "\n\nHuman: And?\n\nAssistant: Bye"
    empty = "\n\nHuman: Hi\n\nAssistant: "
    loaded = load(
        {"chosen": one, "rejected": two},
        {"chosen": one, "rejected": empty},
        {"chosen": one, "rejected": "\n\nHuman: Hi\n\nAssistant: Go away\n\nor stay"},
    )
    assert loaded.dropped == {"multi_turn": 1, "no_response": 1}
    assert loaded.items[0].rejected == "Go away\n\nor stay"
    assert loaded.items[0].id == "set/2"


@pytest.mark.parametrize(
    ("chosen", "rejected", "message"),
    [
        ("no turns", "no turns", "does not begin with a Human"),
        (
            "\n\nHuman: a\n\nAssistant: x",
            "\n\nHuman: b\n\nAssistant: y",
            "begin with different questions",
        ),
        ([USER, GOOD], [{**USER, "content": "3?"}, BAD], "share no prompt"),
        ([GOOD], [BAD], "hold no question, and there is no prompt column"),
    ],
)
def test_sides_that_do_not_belong_together(chosen: object, rejected: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load({"chosen": chosen, "rejected": rejected})


def test_missing_columns() -> None:
    with pytest.raises(DataError, match=r"must have a 'rejected' field"):
        load({"prompt": "q", "chosen": "4"})
