"""The flat files of an evaluation: `results/{name}.jsonl` and `{name}.log`, a row for each sample.

{name}.decoded.jsonl    what was sampled, written before anything is graded
{name}.jsonl            {prompt, generated_text, answer, correctness}, with id, sample, data_source,
                        extracted and finish_reason besides
{name}.log              accuracy by data source with intervals, and their unweighted mean

Where a thought is open only the text after `</think>` is graded, and an unfinished thought is wrong
whatever it holds. Source: LUFFY's evaluation script (arXiv 2504.14945).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workings.errors import DataError
from workings.evaluation.headlines import average_of
from workings.evaluation.metrics import Estimate, estimate
from workings.evaluation.other_rows import NO_DATA_SET
from workings.evaluation.tables import format_estimate, format_share, text_table
from workings.tracking.whole_file import write_whole
from workings.types import RolloutGroup

THOUGHT_START, THOUGHT_END = "<think>", "</think>"


def after_thought(prompt: str, response: str) -> str | None:
    """The part of a response that is graded; None where its thought was not finished.

    A thought is open where the prompt ends in `<think>`, or where the response has either mark.

    >>> after_thought("Q <think>", "so 3 </think> 3"), after_thought("Q <think>", "so [3]")
    (' 3', None)
    >>> after_thought("Q", "it is 3")
    'it is 3'
    """
    opened = prompt.rstrip().endswith(THOUGHT_START)
    if not opened and THOUGHT_START not in response and THOUGHT_END not in response:
        return response
    _, closed, rest = response.rpartition(THOUGHT_END)
    return rest if closed and THOUGHT_START not in rest else None


def graded_parts(groups: Sequence[RolloutGroup]) -> tuple[list[RolloutGroup], list[list[bool]]]:
    """The groups with the text that is graded, and whether each sample finished its thought."""
    parts, finished = [], []
    for group in groups:
        texts = [after_thought(group.prompt.text, one.text) for one in group.rollouts]
        finished.append([text is not None for text in texts])
        rollouts = tuple(
            replace(one, text=text or "") for one, text in zip(group.rollouts, texts, strict=True)
        )
        parts.append(replace(group, rollouts=rollouts))
    return parts, finished


def decoded_rows(groups: Sequence[RolloutGroup]) -> list[dict[str, Any]]:
    """What was sampled, before grading: one row for each sample, in order.

    Copies of a question have the id of the first one and count its samples on, so that readers that
    pair problems see one problem.
    """
    first: dict[tuple[str, str], str] = {}
    taken: Counter[str] = Counter()
    rows = []
    for group in groups:
        problem = group.problem
        source = problem.source or NO_DATA_SET
        problem_id = first.setdefault((source, problem.question), problem.id)
        for rollout in group.rollouts:
            rows.append(
                {
                    "prompt": group.prompt.text,
                    "generated_text": rollout.text,
                    "answer": problem.answer,
                    "id": problem_id,
                    "sample": taken[problem_id],
                    "data_source": source,
                    "finish_reason": rollout.finish_reason,
                }
            )
            taken[problem_id] += 1
    return rows


def flat_rows(
    groups: Sequence[RolloutGroup], correct: Sequence[Sequence[bool | None]]
) -> list[dict[str, Any]]:
    """The rows of the results file; `correct` is [problems][samples], None for an unusable gold."""
    marks = [mark for row in correct for mark in row]
    extracted = [
        None if rollout.grade is None else rollout.grade.extracted
        for group in groups
        for rollout in group.rollouts
    ]
    return [
        {**row, "correctness": mark, "extracted": answer}
        for row, mark, answer in zip(decoded_rows(groups), marks, extracted, strict=True)
    ]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """One JSON object a line, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def accuracy_by_source(
    groups: Sequence[RolloutGroup], correct: Sequence[Sequence[bool | None]]
) -> dict[str, Estimate]:
    """Accuracy of every data source over its questions; copies of a question are its samples."""
    shares: dict[str, dict[str, list[bool]]] = {}
    for group, marks in zip(groups, correct, strict=True):
        problem = group.problem
        known = [mark for mark in marks if mark is not None]
        if known:
            of_source = shares.setdefault(problem.source or NO_DATA_SET, {})
            of_source.setdefault(problem.question, []).extend(known)
    if not shares:
        raise DataError("no sample has a usable gold answer, so there is nothing to report")
    return {
        source: estimate(
            [sum(marks) / len(marks) for marks in questions.values()],
            num_samples=max(map(len, questions.values())),
        )
        for source, questions in sorted(shares.items())
    }


def accuracy_table(accuracies: Mapping[str, Estimate]) -> str:
    """A row for every data source, and their unweighted mean."""
    rows = [
        [source, str(one.num_problems), str(one.num_samples), format_estimate(one)]
        for source, one in accuracies.items()
    ]
    average = average_of(accuracies)
    share = format_share(average.value, average.low, average.high)
    rows.append([f"average of {len(accuracies)}", "", "", share])
    headers = ["data source", "questions", "most samples each", "accuracy, 95 % interval"]
    return text_table(headers, rows)
