"""Tables in every schema to demonstrations, and traces that problems carry."""

from __future__ import annotations

from pathlib import Path

import pytest

from workings.data.demonstrations import (
    demonstrations_from_table,
    problems_of,
    teacher_traces,
)
from workings.data.loaded import Loaded
from workings.data.problems import problems_from_table
from workings.data.sources import read_rows
from workings.data.table import table_of
from workings.errors import DataError
from workings.types import Demonstration


def load(*rows: dict[str, object], **kwargs: object) -> Loaded[Demonstration]:
    table = table_of(rows, name="set", origin="set.jsonl")
    return demonstrations_from_table(table, **kwargs)  # type: ignore[arg-type]


USER = {"role": "user", "content": "2+2?"}
ASSISTANT = {"role": "assistant", "content": "It is 4."}
TRACE = {"role": "assistant", "content": "<think>\n2+2\n</think>\n\\boxed{4}"}


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2+2?", "completion": "It is 4."},
        {"prompt": [USER], "completion": [ASSISTANT]},
        {"prompt": "2+2?", "response": "It is 4."},
        {"messages": [USER, ASSISTANT]},
        {"problem": "2+2?", "generated_solution": "It is 4.", "expected_answer": "4"},
        {"problem": "2+2?", "solution": "It is 4.", "answer": "4"},
        {"prompt": [USER], "target": [ASSISTANT], "reward_model": {"ground_truth": "4"}},
    ],
)
def test_every_schema(row: dict[str, object]) -> None:
    demonstration = load(row).items[0]
    assert (demonstration.question, demonstration.response) == ("2+2?", "It is 4.")
    has_gold = any(key in row for key in ("answer", "expected_answer", "reward_model"))
    assert demonstration.answer == ("4" if has_gold else None)


def test_gsm8k_in_its_original_schema() -> None:
    worked = "48/2 = 24.\n#### 1,024"
    demonstration = load({"question": "q", "answer": worked}).items[0]
    assert (demonstration.response, demonstration.answer) == (worked, "1024")


def test_plain_text_has_no_question() -> None:
    demonstration = load({"text": "Once upon a time"}).items[0]
    assert (demonstration.question, demonstration.response) == ("", "Once upon a time")


def test_the_last_assistant_turn_is_the_response() -> None:
    turns = [
        USER,
        ASSISTANT,
        {"role": "user", "content": "Sure?"},
        {**ASSISTANT, "content": "Yes."},
    ]
    demonstration = load({"messages": turns}).items[0]
    assert (demonstration.question, demonstration.response) == ("Sure?", "Yes.")
    assert len(demonstration.messages) == 3


def test_overrides_choose_the_schema() -> None:
    row: dict[str, object] = {
        "prompt": "p",
        "response": "r",
        "messages": [USER, ASSISTANT],
        "text": "t",
    }
    assert load(row).items[0].response == "r"
    assert load(row, columns={"messages": "messages"}).items[0].response == "It is 4."
    assert load(row, columns={"text": "text"}).items[0].response == "t"


def test_rows_without_a_response_are_counted() -> None:
    rows = [{"prompt": "a", "target": None}, {"prompt": "b", "target": [TRACE]}]
    loaded = load(*rows)
    assert [row.id for row in loaded.items] == ["set/1"]
    assert loaded.dropped == {"no_response": 1}


def test_an_unusable_gold_does_not_stop_imitation() -> None:
    assert load({"problem": "q", "solution": "s", "answer": ""}).items[0].answer is None


def test_missing_columns() -> None:
    with pytest.raises(
        DataError, match=r"must have a 'response' field.*wanted one of: response, com"
    ):
        load({"prompt": "q", "answer": "4"})
    with pytest.raises(DataError, match=r"must have a 'question' field"):
        load({"response": "4"})


def test_unusable_conversations() -> None:
    with pytest.raises(DataError, match="row 0: the conversation ends in a turn of 'user'"):
        load({"messages": [USER]})
    with pytest.raises(DataError, match=r"row 0: .*not a list of messages"):
        load({"messages": [ASSISTANT]})


def test_problems_of_demonstrations() -> None:
    demonstrations = load({"problem": "q", "solution": "s", "answer": "4", "k": 1}).items
    problem = problems_of(demonstrations)[0]
    assert (problem.id, problem.question, problem.answer, problem.extra) == (
        "set/0",
        "q",
        "4",
        {"k": 1},
    )
    with pytest.raises(
        DataError, match=r"1 of 1 demonstrations have no gold answer \(first: set/0"
    ):
        problems_of(load({"prompt": "q", "response": "r"}).items)


def test_traces_that_problems_carry() -> None:
    def row(target: object, more: object = None) -> dict[str, object]:
        gold = {"style": "rule", "ground_truth": "4"}
        return {"prompt": [USER], "target": target, "target_lst": more, "reward_model": gold}

    other = [{"role": "assistant", "content": "another"}]
    table = table_of(
        [row(None), row([TRACE]), row([]), row([TRACE], [[TRACE], other])], name="l", origin="l"
    )
    problems = problems_from_table(table).items
    traces = teacher_traces(problems)
    assert list(traces) == ["l/1", "l/3"]
    assert [trace.response for trace in traces["l/3"]] == [TRACE["content"], "another"]
    assert traces["l/1"][0].question == "2+2?"
    assert traces["l/1"][0].answer == "4"


def test_a_broken_trace_names_its_problem() -> None:
    table = table_of([{"prompt": "q", "answer": "4", "target": [USER]}], name="l", origin="l")
    with pytest.raises(
        DataError, match="l/0: the target is not usable: a response of the turns us"
    ):
        teacher_traces(problems_from_table(table).items)


def test_real_traces(shared_data: Path) -> None:
    loaded = demonstrations_from_table(read_rows(shared_data / "math_think_sft.parquet"))
    assert len(loaded.items) == 1767
    assert loaded.mapping["response"] == "solution"
    assert sum("</think> <answer>" in row.response for row in loaded.items) > 1400
