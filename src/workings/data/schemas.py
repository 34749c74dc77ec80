"""Which column holds what: roles, the column names each is known by, and the user's overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workings.data.table import Table
from workings.errors import DataError, unknown_name

MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What a column is used for.

    Attributes:
        name: the key of `columns` overrides and of `Loaded.mapping`.
        columns: names it goes by, the first that exists is taken; a dot enters a struct.
        meaning: for messages.
    """

    name: str
    columns: tuple[str, ...]
    meaning: str


ID = Role(name="id", columns=("id", "unique_id", "problem_id"), meaning="a unique id")
QUESTION = Role(
    name="question",
    columns=("problem", "question", "prompt", "query", "instruction"),
    meaning="the question",
)
ANSWER = Role(
    name="answer",
    columns=(
        "answer",
        "ground_truth",
        "expected_answer",
        "final_answer",
        "reward_model.ground_truth",
        "solution",
    ),
    meaning="the gold answer",
)
OPTIONS = Role(name="options", columns=("options", "choices"), meaning="the choices offered")
MESSAGES = Role(name="messages", columns=("messages", "conversation"), meaning="a conversation")
RESPONSE = Role(
    name="response",
    columns=("response", "completion", "generated_solution", "target", "output", "solution"),
    meaning="the response to imitate",
)
TEXT = Role(name="text", columns=("text",), meaning="plain text")
CHOSEN = Role(name="chosen", columns=("chosen",), meaning="the preferred response")
REJECTED = Role(name="rejected", columns=("rejected",), meaning="the rejected response")
SUBJECT = Role(name="subject", columns=("subject", "type"), meaning="the subject")
LEVEL = Role(name="level", columns=("level", "difficulty"), meaning="the level")
SOURCE = Role(name="source", columns=("source", "data_source"), meaning="where the row is from")


def map_columns(
    table: Table, roles: Sequence[Role], overrides: Mapping[str, str]
) -> dict[str, str]:
    """Role to column, for every role that has one; `overrides` win over the known names.

    DataError for an override of an unknown role, or one that names a column that is not there.
    """
    known = {role.name for role in roles}
    for name, column in overrides.items():
        if name not in known:
            raise DataError(unknown_name("role in columns", name, known))
        if not _exists(table, column):
            raise DataError(
                f"{table.origin}: columns.{name}: {unknown_name('column', column, table.columns)}"
            )
    mapping = dict(overrides)
    for role in roles:
        if role.name not in mapping:
            found = next((column for column in role.columns if _exists(table, column)), None)
            if found is not None:
                mapping[role.name] = found
    return mapping


def missing_role(table: Table, role: Role) -> DataError:
    """The error for a table without a needed column: what was found, what was wanted."""
    article = "an" if role.name[0] in "aeiou" else "a"
    return DataError(
        f"{table.origin} must have {article} '{role.name}' field ({role.meaning}); "
        f"found columns: {', '.join(table.columns)}; wanted one of: {', '.join(role.columns)}",
        hint=f"say which column it is, e.g. columns.{role.name}={table.columns[0]}",
    )


def value_at(row: Mapping[str, object], column: str) -> object:
    """The value of a column, or of a field inside a struct column; None where there is none.

    >>> value_at({"reward_model": {"ground_truth": "18"}}, "reward_model.ground_truth")
    '18'
    """
    value = _lookup(row, column)
    return None if value is MISSING else value


def other_columns(row: Mapping[str, object], mapping: Mapping[str, str]) -> dict[str, object]:
    """The columns of `row` that no role took; reward functions receive them."""
    taken = set(mapping.values())
    return {column: value for column, value in row.items() if column not in taken}


def _exists(table: Table, column: str) -> bool:
    if column in table.columns:
        return True
    if column.split(".")[0] not in table.columns:
        return False
    return any(_lookup(row, column) is not MISSING for row in table.rows)


def _lookup(row: Mapping[str, object], column: str) -> object:
    if column in row:
        return row[column]
    value: object = row
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return MISSING
        value = value[part]
    return value
