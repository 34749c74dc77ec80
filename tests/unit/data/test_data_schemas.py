"""Roles and columns: guesses, overrides, and messages for what is missing."""

from __future__ import annotations

import pytest

from workings.data import schemas
from workings.data.schemas import map_columns, missing_role, other_columns, value_at
from workings.data.table import table_of
from workings.errors import DataError

TABLE = table_of(
    [{"prompt": "p", "solution": "s", "reward_model": {"ground_truth": "1", "style": "rule"}}],
    name="t",
    origin="t.jsonl",
)
ROLES = (schemas.QUESTION, schemas.ANSWER)


def test_the_first_known_name_wins() -> None:
    assert map_columns(TABLE, ROLES, {}) == {
        "question": "prompt",
        "answer": "reward_model.ground_truth",
    }


def test_an_override_wins() -> None:
    assert map_columns(TABLE, ROLES, {"answer": "solution"})["answer"] == "solution"
    nested = {"answer": "reward_model.style"}
    assert map_columns(TABLE, ROLES, nested)["answer"] == "reward_model.style"


def test_unknown_overrides() -> None:
    with pytest.raises(DataError, match="unknown role in columns 'anser'; did you mean 'answer'"):
        map_columns(TABLE, ROLES, {"anser": "solution"})
    with pytest.raises(DataError, match="unknown column 'soluton'; did you mean 'solution'"):
        map_columns(TABLE, ROLES, {"answer": "soluton"})
    with pytest.raises(DataError, match=r"unknown column 'reward_model\.gold'"):
        map_columns(TABLE, ROLES, {"answer": "reward_model.gold"})


def test_a_missing_role_names_found_and_wanted() -> None:
    error = missing_role(TABLE, schemas.ANSWER)
    assert str(error) == (
        "t.jsonl must have an 'answer' field (the gold answer); found columns: prompt, solution, "
        "reward_model; wanted one of: answer, ground_truth, expected_answer, final_answer, "
        "reward_model.ground_truth, solution\n\n"
        "hint: say which column it is, e.g. columns.answer=prompt"
    )


def test_values_and_the_columns_left() -> None:
    row = TABLE.rows[0]
    assert value_at(row, "reward_model.ground_truth") == "1"
    assert value_at(row, "reward_model.nothing") is None
    assert value_at({"a.b": 3}, "a.b") == 3
    mapping = {"question": "prompt", "answer": "reward_model.ground_truth"}
    assert other_columns(row, mapping).keys() == {"solution", "reward_model"}
