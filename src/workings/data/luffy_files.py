"""Training files in LUFFY's schema: problems with a teacher's trace in `target`, as parquet.

    data_source   ""
    prompt        [{role: system, content}, {role: user, content}]
    target        [{role: assistant, content}], or null where there is no trace
    ability       "math"
    reward_model  {style: "rule", ground_truth}
    extra_info    {split, index}

`load_problems` and `teacher_traces` read these files as they are. Source: LUFFY's training data
(arXiv 2504.14945).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workings.data.demonstrations import demonstrations_from_table, teacher_traces
from workings.data.golds import last_box, reduce_gold
from workings.data.problems import problems_from_table
from workings.data.schemas import RESPONSE
from workings.data.sources import read_rows
from workings.data.table import Table
from workings.data.traces import PROBABILITIES, was_cut
from workings.errors import DataError
from workings.types import Demonstration, Message, Problem

if TYPE_CHECKING:
    import pyarrow as pa

MissingGold = Literal["error", "drop", "box"]
SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What was written.

    Attributes:
        path: the file.
        num_problems, num_traces: rows, and rows with a trace in `target`.
        dropped: reason to number of rows left out.
    """

    path: Path
    num_problems: int
    num_traces: int
    dropped: Mapping[str, int] = field(default_factory=dict)


def luffy_rows(
    problems: Sequence[Problem],
    traces: Mapping[str, Sequence[Demonstration]],
    *,
    split: str = "train",
    data_source: str | None = "",
    system_prompt: str | None = None,
) -> list[dict[str, object]]:
    """The rows of a training file, one for each problem.

    The first trace is the `target`; where a problem has several, all stand in `target_lst`.
    Recorded probabilities of the first trace are kept.

    Args:
        traces: problem id to traces; a problem without one gets a null target.
        split: what `extra_info` says.
        data_source: empty in training files; None takes each problem's own.
        system_prompt: system message of problems whose own conversation has none.
    """
    return [
        _row(
            problem,
            traces.get(problem.id, ()),
            data_source=problem.source if data_source is None else data_source,
            extra_info={"split": split, "index": number},
            system_prompt=system_prompt,
        )
        for number, problem in enumerate(problems)
    ]


def write_luffy_parquet(
    path: Path,
    problems: Sequence[Problem],
    traces: Mapping[str, Sequence[Demonstration]],
    *,
    split: str = "train",
    data_source: str | None = "",
    system_prompt: str | None = None,
) -> Converted:
    """Write the problems and their traces to `path`, whole or not at all.

    DataError where there is nothing to write, where a trace belongs to no problem, and where the
    folder does not exist.
    """
    from pyarrow import Table as ArrowTable
    from pyarrow import parquet

    if not problems:
        raise DataError(f"there are no problems to write to {path}")
    strangers = sorted(traces.keys() - {problem.id for problem in problems})
    if strangers:
        raise DataError(
            f"{len(strangers)} traces belong to problems that are not written: "
            f"{', '.join(strangers[:SHOWN])}"
        )
    if not path.parent.is_dir():
        raise DataError(f"{path.parent} is not a folder", hint="make it first")
    rows = luffy_rows(
        problems, traces, split=split, data_source=data_source, system_prompt=system_prompt
    )
    beside = path.with_name(f".{path.name}.part")
    parquet.write_table(ArrowTable.from_pylist(rows, schema=luffy_schema(rows)), beside)
    os.replace(beside, path)
    return Converted(
        path=path,
        num_problems=len(rows),
        num_traces=sum(row["target"] is not None for row in rows),
    )


def convert_to_luffy(
    source: str | Path,
    path: Path,
    *,
    columns: Mapping[str, str] | None = None,
    split: str = "train",
    missing_gold: MissingGold = "error",
    system_prompt: str | None = None,
) -> Converted:
    """Write the data set at `source` in LUFFY's schema: JSONL, parquet or any other known kind.

    A data set of {prompt, completion}, of messages that end in the reply, or of question, response
    and answer gives one problem for every question, with all its responses as traces. A data set
    that already has a `target` column keeps its rows without a trace. Responses that were cut
    before their end are left out and counted.

    Args:
        source, columns, split: as in `load_demonstrations`.
        missing_gold: what becomes of a row without a gold answer: a DataError, left out and
            counted, or its gold is the last box of the response (then the trace is right by
            definition, whether it is or not).
    """
    table = read_rows(source, split=split)
    dropped: dict[str, int] = {}
    if "target" in table.columns:
        loaded = problems_from_table(table, columns=columns)
        problems = list(loaded.items)
        traces = {
            problem_id: tuple(whole)
            for problem_id, rows in teacher_traces(problems).items()
            if (whole := _without_cut(rows, dropped))
        }
    else:
        demonstrations = demonstrations_from_table(table, columns=columns)
        dropped |= demonstrations.dropped
        whole = _without_cut(demonstrations.items, dropped)
        rows = _with_golds(whole, table, missing_gold, dropped)
        problems, traces = problems_with_traces(rows)
    written = write_luffy_parquet(path, problems, traces, split=split, system_prompt=system_prompt)
    return replace(written, dropped=dropped)


def problems_with_traces(
    demonstrations: Sequence[Demonstration],
) -> tuple[list[Problem], dict[str, tuple[Demonstration, ...]]]:
    """Each distinct question once as a problem, and its responses as traces, in order.

    DataError where a demonstration has no gold answer, or two of one question differ in it.
    """
    problems: dict[object, Problem] = {}
    traces: dict[str, list[Demonstration]] = {}
    for row in demonstrations:
        if row.answer is None:
            raise DataError(
                f"{row.id} has no gold answer, so its response cannot be graded",
                hint="give the data set an answer column",
            )
        turns = tuple((turn["role"], turn["content"]) for turn in row.messages)
        problem = problems.setdefault(
            (row.question, turns),
            Problem(
                id=row.id,
                question=row.question,
                answer=row.answer,
                messages=row.messages,
                source=row.source,
            ),
        )
        if problem.answer != row.answer:
            raise DataError(
                f"{problem.id} and {row.id} ask the same, but their gold answers are "
                f"{problem.answer!r} and {row.answer!r}",
                hint="remove one of them",
            )
        traces.setdefault(problem.id, []).append(row)
    return list(problems.values()), {key: tuple(rows) for key, rows in traces.items()}


def luffy_schema(rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Typed columns: a file in which every target is null still says what a target is.

    The optional columns are in it where one of the rows has them.
    """
    import pyarrow as pa

    text = pa.string()
    messages = pa.list_(pa.struct([("role", text), ("content", text)]))
    fields = [
        ("data_source", text),
        ("prompt", messages),
        ("target", messages),
        ("ability", text),
        ("reward_model", pa.struct([("style", text), ("ground_truth", text)])),
        ("extra_info", pa.struct([("split", text), ("index", pa.int64())])),
    ]
    optional = {"target_lst": pa.list_(messages), PROBABILITIES: pa.list_(pa.float64())}
    fields += [(name, kind) for name, kind in optional.items() if any(name in row for row in rows)]
    return pa.schema(fields)


def _without_cut(rows: Sequence[Demonstration], dropped: dict[str, int]) -> list[Demonstration]:
    """The rows whose response has its end: the schema has no place to say that it was cut."""
    whole = [row for row in rows if not was_cut(row)]
    if len(whole) < len(rows):
        dropped["cut"] = dropped.get("cut", 0) + len(rows) - len(whole)
    return whole


def _with_golds(
    rows: Sequence[Demonstration],
    table: Table,
    missing_gold: MissingGold,
    dropped: dict[str, int],
) -> list[Demonstration]:
    """The rows that have a gold answer, found where the caller allows it; counts the others."""
    kept: list[Demonstration] = []
    missing: list[str] = []
    for row in rows:
        answer = row.answer
        if answer is None and missing_gold == "box" and last_box(row.response):
            answer = reduce_gold(row.response)
        if answer is None:
            missing.append(row.id)
        else:
            kept.append(replace(row, answer=answer))
    if missing and missing_gold == "error":
        raise DataError(
            f"{table.origin}: {len(missing)} of {len(rows)} rows have no gold answer "
            f"(first: {missing[0]}); found columns: {', '.join(table.columns)}",
            hint="name the column of the gold (columns.answer=...), or say what to do without one: "
            "missing_gold=drop, or box for the last box of the response",
        )
    if missing:
        dropped["no_gold"] = len(missing)
    if not kept:
        raise DataError(
            f"{table.origin}: none of {len(rows)} rows has a gold answer",
            hint=f"a row needs {RESPONSE.meaning} and a gold answer",
        )
    return kept


def _row(
    problem: Problem,
    traces: Sequence[Demonstration],
    *,
    data_source: str,
    extra_info: dict[str, object],
    system_prompt: str | None,
) -> dict[str, object]:
    messages = problem.messages or (Message(role="user", content=problem.question),)
    if system_prompt and messages[0]["role"] != "system":
        messages = (Message(role="system", content=system_prompt), *messages)
    row: dict[str, object] = {
        "data_source": data_source,
        "prompt": [dict(message) for message in messages],
        "target": _target(traces[0]) if traces else None,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": problem.answer},
        "extra_info": extra_info,
    }
    if len(traces) > 1:
        row["target_lst"] = [_target(trace) for trace in traces]
    if traces and traces[0].extra.get(PROBABILITIES) is not None:
        row[PROBABILITIES] = traces[0].extra[PROBABILITIES]
    return row


def _target(trace: Demonstration) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": trace.response}]
