"""Tables in every schema to problems, and the real files with their known counts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from workings.data.loaded import Loaded
from workings.data.problems import group_repeats, problems_from_table
from workings.data.sources import read_rows
from workings.data.table import table_of
from workings.errors import DataError
from workings.types import Problem


def load(*rows: dict[str, object], **kwargs: object) -> Loaded[Problem]:
    table = table_of(rows, name="set", origin="set.jsonl")
    return problems_from_table(table, **kwargs)  # type: ignore[arg-type]


MESSAGES = [{"role": "system", "content": "S"}, {"role": "user", "content": "2+2?"}]


@pytest.mark.parametrize(
    ("row", "answer_column"),
    [
        ({"problem": "2+2?", "answer": "4"}, "answer"),
        ({"question": "2+2?", "answer": "two and two\n#### 4"}, "answer"),
        ({"prompt": "2+2?", "solution": "4"}, "solution"),
        ({"prompt": "2+2?", "ground_truth": 4}, "ground_truth"),
        ({"problem": "2+2?", "solution": r"We get $\boxed{4}$."}, "solution"),
        ({"problem": "2+2?", "expected_answer": "4"}, "expected_answer"),
        ({"prompt": MESSAGES, "answer": "4"}, "answer"),
        (
            {"data_source": "", "prompt": MESSAGES, "reward_model": {"ground_truth": "4"}},
            "reward_model.ground_truth",
        ),
        ({"messages": MESSAGES, "answer": "4"}, "answer"),
        ({"messages": [*MESSAGES, {"role": "assistant", "content": "4"}], "answer": "4"}, "answer"),
    ],
)
def test_every_schema(row: dict[str, object], answer_column: str) -> None:
    loaded = load(row)
    problem = loaded.items[0]
    assert (problem.question, problem.answer, problem.id) == ("2+2?", "4", "set/0")
    assert loaded.mapping["answer"] == answer_column
    assert problem.source == "set"
    if problem.messages:
        assert problem.messages[-1] == {"role": "user", "content": "2+2?"}


def test_both_answer_and_solution() -> None:
    problem = load({"prompt": "q", "solution": "long", "answer": "4"}).items[0]
    assert problem.answer == "4"
    assert problem.extra == {"solution": "long"}


def test_breakdown_columns_and_ids() -> None:
    row: dict[str, object] = {
        "problem": "q",
        "answer": "4",
        "subject": "Algebra",
        "level": 4.0,
        "unique_id": "test/7",
        "source": "MATH",
        "hint": None,
    }
    problem = load(row).items[0]
    assert (problem.id, problem.subject, problem.level) == ("set/test/7", "Algebra", "4")
    assert problem.source == "MATH"
    assert problem.extra == {"hint": None}


def test_ids_that_repeat_give_way_to_row_numbers() -> None:
    rows = [{"id": 1, "problem": "a", "answer": "1"}, {"id": 1, "problem": "b", "answer": "2"}]
    assert [problem.id for problem in load(*rows).items] == ["set/0", "set/1"]


def test_column_overrides() -> None:
    loaded = load({"task": "2+2?", "key": "4"}, columns={"question": "task", "answer": "key"})
    assert loaded.mapping == {"question": "task", "answer": "key"}
    both: dict[str, object] = {"messages": MESSAGES, "prompt": "other", "answer": "4"}
    assert load(both).items[0].question == "other"
    assert load(both, columns={"messages": "messages"}).items[0].question == "2+2?"


def test_missing_columns() -> None:
    with pytest.raises(DataError, match=r"must have an 'answer' field.*found columns: prompt"):
        load({"prompt": "q"})
    with pytest.raises(DataError, match=r"must have a 'question' field.*found columns: answer"):
        load({"answer": "4"})


def test_unusable_rows_are_listed_together() -> None:
    rows = [{"problem": "", "answer": "1"}, {"problem": "b", "answer": "2"}]
    with pytest.raises(
        DataError, match=r"1 of 2 rows are not usable:\n  row 0: the question is em"
    ):
        load(*rows)


def no_words(gold: str) -> str | None:
    return "not a number" if gold.isalpha() else None


def test_golds_are_checked_at_load() -> None:
    rows = [{"problem": f"q{i}", "answer": gold} for i, gold in enumerate(["1", "abc", "", "4"])]
    with pytest.raises(DataError) as raised:
        load(*rows, check_gold=no_words)
    assert str(raised.value) == (
        "set.jsonl: 2 of 4 gold answers are not usable:\n"
        "  row 1: gold 'abc': not a number\n"
        "  row 2: the gold is empty\n\n"
        "hint: correct them, or set bad_gold=drop to leave these rows out and count them"
    )
    loaded = load(*rows, check_gold=no_words, bad_gold="drop")
    assert [problem.id for problem in loaded.items] == ["set/0", "set/3"]
    assert (loaded.total, loaded.num_dropped, loaded.dropped) == (4, 2, {"bad_gold": 2})


def test_a_gold_that_is_no_finite_number_is_no_gold() -> None:
    """pandas writes NaN for an empty cell of a column of numbers."""
    golds = [1.0, float("nan"), float("inf"), 4.0]
    rows = [{"problem": f"q{i}", "answer": gold} for i, gold in enumerate(golds)]
    with pytest.raises(DataError) as raised:
        load(*rows)
    assert "2 of 4 gold answers are not usable:\n  row 1: the value is nan" in str(raised.value)
    loaded = load(*rows, bad_gold="drop")
    assert [problem.answer for problem in loaded.items] == ["1", "4"]
    assert loaded.dropped == {"bad_gold": 2}


def test_nan_in_an_optional_column_is_nothing() -> None:
    row = {"problem": "q", "answer": "1", "level": float("nan"), "subject": float("nan")}
    problem = load(row).items[0]
    assert (problem.level, problem.subject) == (None, None)


def test_many_bad_golds_are_shown_in_part() -> None:
    rows: list[dict[str, object]] = [{"problem": "q", "answer": None} for _ in range(30)]
    with pytest.raises(DataError, match="row 9: the gold is None\n  and 20 more"):
        load(*rows)
    with pytest.raises(DataError, match=r"none of 30 rows is left \(bad_gold: 30\)"):
        load(*rows, bad_gold="drop")


def test_multiple_choice() -> None:
    row: dict[str, object] = {"question": "Which?", "choices": ["x", "y"], "answer": 1}
    problem = load(row).items[0]
    assert (problem.question, problem.answer) == ("Which?\nA) x\nB) y", "B")


def test_the_gold_stays_beside_its_question_when_rows_are_dropped() -> None:
    rows = [{"problem": f"{i}?", "answer": "" if i % 3 == 0 else f"{i}"} for i in range(20)]
    loaded = load(*rows, bad_gold="drop")
    assert all(problem.question == f"{problem.answer}?" for problem in loaded.items)


def test_repeats_are_grouped() -> None:
    rows = [
        {"problem": q, "answer": a} for q, a in [("a", "1"), ("b", "2"), ("a", "1"), ("a", "3")]
    ]
    grouped = group_repeats(load(*rows).items)
    assert [(g.problem.id, g.count) for g in grouped] == [("set/0", 2), ("set/1", 1), ("set/3", 1)]


# ------------------------------------------------------------------------------------ real files


def test_the_luffy_suite_is_1590_problems(shared_data: Path) -> None:
    loaded = problems_from_table(read_rows(shared_data / "luffy_valid_all.parquet"))
    grouped = group_repeats(loaded.items)
    assert (loaded.total, len(grouped)) == (6023, 1590)
    counts = Counter((g.problem.source, g.count) for g in grouped)
    assert counts[("aime", 32)] == counts[("aime25", 32)] == 30
    assert counts[("amc", 32)] == 83
    assert counts[("math", 1)] == 500
    assert counts[("minerva", 1)] == 272
    assert counts[("olympiad_bench", 1)] == 675


def test_the_original_luffy_schema(shared_data: Path) -> None:
    loaded = problems_from_table(read_rows(shared_data / "luffy_schema_valid.parquet"))
    assert loaded.mapping == {
        "question": "prompt",
        "answer": "reward_model.ground_truth",
        "source": "data_source",
    }
    grouped = group_repeats(loaded.items)
    counts = Counter((g.problem.source, g.count) for g in grouped)
    assert loaded.total == 2019
    assert (counts[("aime", 8)], counts[("amc", 4)]) == (30, 83)
    first = loaded.items[0]
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert first.extra["ability"] == "math"


@pytest.mark.parametrize(
    ("name", "rows"), [("gsm8k_test", 1319), ("math500", 500), ("mmlu_stem", 3018), ("aqua", 254)]
)
def test_benchmark_files(shared_data: Path, name: str, rows: int) -> None:
    loaded = problems_from_table(read_rows(name, data_dir=shared_data))
    assert len(loaded.items) == rows
    if "options" in loaded.mapping:
        assert all(problem.answer in "ABCDE" for problem in loaded.items)


def test_empty_golds_of_a_real_file_are_found(shared_data: Path) -> None:
    table = read_rows(shared_data / "math_train.parquet")
    with pytest.raises(DataError, match="4 of 7500 gold answers are not usable"):
        problems_from_table(table)
    assert problems_from_table(table, bad_gold="drop").dropped == {"bad_gold": 4}


def test_records_survive_json(shared_data: Path) -> None:
    loaded = problems_from_table(read_rows(shared_data / "aime25.parquet"))
    assert json.loads(json.dumps(dict(loaded.mapping))) == loaded.mapping
