"""LUFFY's training schema, read as it is and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from workings.data.demonstrations import teacher_traces
from workings.data.loading import load_problems
from workings.data.luffy_files import convert_to_luffy, problems_with_traces, write_luffy_parquet
from workings.data.traces import PROBABILITIES
from workings.errors import DataError
from workings.types import Demonstration, Problem

SYSTEM = {"role": "system", "content": "Reason, then answer in a box."}
TRACE = "<think>\n2+2\n</think>\nIt is \\boxed{4}."


def original_row(
    index: int, target: str | None, *, more: list[str] | None = None
) -> dict[str, Any]:
    """A row as the published training file has it."""
    row: dict[str, Any] = {
        "data_source": "",
        "prompt": [SYSTEM, {"role": "user", "content": f"{index}+2?"}],
        "target": None if target is None else [{"role": "assistant", "content": target}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(index + 2)},
        "extra_info": {"split": "default", "index": index},
    }
    if more is not None:
        row["target_lst"] = [[{"role": "assistant", "content": text}] for text in more]
        row[PROBABILITIES] = [0.5, 0.25]
    return row


def write_original(path: Path, rows: list[dict[str, Any]]) -> Path:
    columns = dict.fromkeys(name for row in rows for name in row)
    whole = [{name: row.get(name) for name in columns} for row in rows]
    parquet.write_table(pa.Table.from_pylist(whole), path)
    return path


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_published_schema_is_read_as_it_is(tmp_path: Path) -> None:
    rows = [
        original_row(0, TRACE),
        original_row(1, None),
        original_row(2, TRACE, more=[TRACE, "another \\boxed{4}"]),
    ]
    loaded = load_problems(write_original(tmp_path / "openr1.parquet", rows))
    assert [problem.question for problem in loaded.items] == ["0+2?", "1+2?", "2+2?"]
    assert [problem.answer for problem in loaded.items] == ["2", "3", "4"]
    assert loaded.items[0].messages[0] == SYSTEM, "the system text comes from the data"
    assert loaded.items[0].source == "openr1"
    traces = teacher_traces(loaded.items)
    assert list(traces) == ["openr1/0", "openr1/2"], "a null target is no trace"
    assert traces["openr1/0"][0].response == TRACE
    assert [t.response for t in traces["openr1/2"]] == [TRACE, "another \\boxed{4}"]
    assert traces["openr1/2"][0].extra[PROBABILITIES] == [0.5, 0.25]
    assert PROBABILITIES not in traces["openr1/2"][1].extra


def test_a_file_of_null_targets_alone_keeps_the_type_of_the_column(tmp_path: Path) -> None:
    problems = [Problem(id="a", question="q", answer="1")]
    written = write_luffy_parquet(tmp_path / "x.parquet", problems, {})
    assert (written.num_problems, written.num_traces) == (1, 0)
    schema = parquet.read_schema(tmp_path / "x.parquet")
    assert schema.names == [
        *("data_source", "prompt", "target", "ability", "reward_model", "extra_info"),
    ]
    message = schema.field("target").type.value_type
    assert {message.field(0).name, message.field(1).name} == {"role", "content"}
    assert teacher_traces(load_problems(tmp_path / "x.parquet").items) == {}


def test_what_is_written_is_what_was_read(tmp_path: Path) -> None:
    rows = [original_row(0, TRACE, more=[TRACE, "b"]), original_row(1, None)]
    source = write_original(tmp_path / "openr1.parquet", rows)
    written = convert_to_luffy(source, tmp_path / "again.parquet", split="default")
    assert (written.num_problems, written.num_traces, dict(written.dropped)) == (2, 1, {})
    assert parquet.read_table(tmp_path / "again.parquet").to_pylist() == (
        parquet.read_table(source).to_pylist()
    )
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2+2?", "completion": TRACE, "answer": "4"},
        {
            "prompt": [{"role": "user", "content": "2+2?"}],
            "completion": [{"role": "assistant", "content": TRACE}],
            "answer": 4,
        },
        {
            "messages": [
                {"role": "user", "content": "2+2?"},
                {"role": "assistant", "content": TRACE},
            ],
            "answer": "4",
        },
    ],
)
def test_other_schemas_are_converted(tmp_path: Path, row: dict[str, Any]) -> None:
    source = write_lines(tmp_path / "rows.jsonl", [row])
    convert_to_luffy(source, tmp_path / "l.parquet", system_prompt="Think.")
    (written,) = parquet.read_table(tmp_path / "l.parquet").to_pylist()
    assert written == {
        "data_source": "",
        "prompt": [
            {"role": "system", "content": "Think."},
            {"role": "user", "content": "2+2?"},
        ],
        "target": [{"role": "assistant", "content": TRACE}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "4"},
        "extra_info": {"split": "train", "index": 0},
    }
    problems = load_problems(tmp_path / "l.parquet").items
    assert teacher_traces(problems)["l/0"][0].response == TRACE


def test_responses_of_one_question_become_one_row(tmp_path: Path) -> None:
    rows = [{"prompt": "2+2?", "completion": text, "answer": "4"} for text in ("one", "two")] + [
        {"prompt": "3+3?", "completion": "six", "answer": "6"}
    ]
    convert_to_luffy(write_lines(tmp_path / "r.jsonl", rows), tmp_path / "l.parquet")
    first, second = parquet.read_table(tmp_path / "l.parquet").to_pylist()
    assert [turn[0]["content"] for turn in first["target_lst"]] == ["one", "two"]
    assert first["target"][0]["content"] == "one"
    assert second["target_lst"] is None


def test_a_missing_gold_is_an_error_or_counted_or_the_box(tmp_path: Path) -> None:
    rows = [
        {"prompt": "2+2?", "completion": TRACE},
        {"prompt": "3+3?", "completion": "no box"},
    ]
    source = write_lines(tmp_path / "r.jsonl", rows)
    with pytest.raises(DataError, match=r"2 of 2 rows have no gold answer \(first: r/0\)"):
        convert_to_luffy(source, tmp_path / "l.parquet")
    with pytest.raises(DataError, match="none of 2 rows has a gold answer"):
        convert_to_luffy(source, tmp_path / "l.parquet", missing_gold="drop")
    written = convert_to_luffy(source, tmp_path / "l.parquet", missing_gold="box")
    (row,) = parquet.read_table(tmp_path / "l.parquet").to_pylist()
    assert row["reward_model"]["ground_truth"] == "4"
    assert dict(written.dropped) == {"no_gold": 1}


def test_cut_responses_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        {"prompt": "2+2?", "completion": TRACE, "answer": "4"},
        {"prompt": "3+3?", "completion": "so", "answer": "6", "finish_reason": "length"},
    ]
    written = convert_to_luffy(write_lines(tmp_path / "r.jsonl", rows), tmp_path / "l.parquet")
    assert dict(written.dropped) == {"cut": 1}
    assert written.num_problems == 1


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    row = Demonstration(id="a", question="q", response="r", answer="1")
    with pytest.raises(DataError, match="no problems to write"):
        write_luffy_parquet(tmp_path / "x.parquet", [], {})
    with pytest.raises(DataError, match="1 traces belong to problems that are not written: b"):
        write_luffy_parquet(
            tmp_path / "x.parquet", [Problem(id="a", question="q", answer="1")], {"b": [row]}
        )
    with pytest.raises(DataError, match="is not a folder"):
        write_luffy_parquet(
            tmp_path / "no" / "x.parquet", [Problem(id="a", question="q", answer="1")], {}
        )
    with pytest.raises(DataError, match="ask the same, but their gold answers are '1' and '2'"):
        problems_with_traces([row, Demonstration(id="b", question="q", response="r", answer="2")])
    with pytest.raises(DataError, match="c has no gold answer"):
        problems_with_traces([Demonstration(id="c", question="q", response="r")])


def test_the_real_validation_file(shared_data: Path) -> None:
    loaded = load_problems(shared_data / "luffy_schema_valid.parquet", bad_gold="drop")
    assert loaded.total == 2019
    assert teacher_traces(loaded.items) == {}, "it has no target column"
    assert all(problem.messages for problem in loaded.items)
