"""Two evaluations of the same problems: how much better is the second, and is it clear?"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workings.config.trees import leaves
from workings.errors import DataError
from workings.evaluation.metrics import (
    IntervalMethod,
    PairedDifference,
    paired_difference,
    pool_by_problem,
)
from workings.evaluation.reports import (
    SUMMARY_FILE,
    read_by_data_set,
    read_results,
    read_summary,
)
from workings.evaluation.result import EvaluationResult
from workings.evaluation.sample_metrics import is_right, usable_groups

MOST_NAMED = 5
"""Problems that an error names of each side."""
MOST_LETTERS = 40
"""Of a gold answer in an error."""
SIDES = ("the first", "the second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What one evaluation says of its problems.

    Attributes:
        marks: problem id to whether each of its samples is right.
        golds: problem id to its gold answer, where the evaluation tells it.
        data: settings of the data set, "path" and others; empty where nobody stored them.
    """

    marks: Mapping[str, Sequence[bool]]
    golds: Mapping[str, str]
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shares(self) -> dict[str, float]:
        """The share of right samples by problem id."""
        return {name: sum(marks) / len(marks) for name, marks in self.marks.items()}


def compare_results(
    first: Sequence[EvaluationResult],
    second: Sequence[EvaluationResult],
    *,
    seed: int = 0,
    method: IntervalMethod = "score",
) -> PairedDifference:
    """The difference of two models; each side is one result, or one per training seed.

    `seed` draws the bootstrap, where `method` asks for it.
    """
    sides = [[_answers_in(result) for result in side] for side in (first, second)]
    return _compare_pooled(sides[0], sides[1], seed=seed, method=method)


def compare_folders(
    first: Sequence[Path],
    second: Sequence[Path],
    *,
    seed: int = 0,
    method: IntervalMethod = "score",
) -> PairedDifference:
    """The same from stored `results.jsonl` files (or the folders that hold them)."""
    sides = [[read_answers(path) for path in side] for side in (first, second)]
    return _compare_pooled(sides[0], sides[1], seed=seed, method=method)


def _compare_pooled(
    first: Sequence[Answers], second: Sequence[Answers], *, seed: int, method: IntervalMethod
) -> PairedDifference:
    for one in (*first[1:], *second):
        refuse_other_problems(first[0], one)
    pooled = [pool_by_problem([one.shares for one in side]) for side in (first, second)]
    return compare_by_problem(pooled[0], pooled[1], seed=seed, method=method)


def compare_by_problem(
    first: Mapping[str, float],
    second: Mapping[str, float],
    *,
    names: tuple[str, str] = SIDES,
    seed: int = 0,
    method: IntervalMethod = "score",
) -> PairedDifference:
    """The paired difference of two {problem id: share right}; both need the same problems.

    DataError says how many and which problems only one side has; `names` is what it calls them.
    """
    if first.keys() != second.keys():
        parts = [
            f"{_listed(one.keys() - other.keys())} only in {name}"
            for name, one, other in ((names[0], first, second), (names[1], second, first))
            if one.keys() - other.keys()
        ]
        raise DataError(
            f"the two evaluations answered other problems: {'; '.join(parts)}; "
            f"{len(first.keys() & second.keys())} in both",
            hint="evaluate both on the same data set with the same limit",
        )
    ids = sorted(first)
    return paired_difference(
        [first[one] for one in ids], [second[one] for one in ids], seed=seed, method=method
    )


def refuse_other_problems(
    first: Answers, second: Answers, *, names: tuple[str, str] = SIDES
) -> None:
    """DataError where ids that both have stand for other problems: their gold answers differ."""
    shared = sorted(first.golds.keys() & second.golds.keys())
    other = [one for one in shared if first.golds[one] != second.golds[one]]
    if not other:
        return
    listed = ", ".join(
        f"{one!r}: {_short(first.golds[one])} in {names[0]}, {_short(second.golds[one])} in "
        f"{names[1]}"
        for one in other[:MOST_NAMED]
    )
    more = f" and {len(other) - MOST_NAMED} more" if len(other) > MOST_NAMED else ""
    raise DataError(
        f"the two evaluations asked other problems under the same ids: {len(other)} of "
        f"{len(shared)} have another gold answer ({listed}{more}){_data_note(first, second)}",
        hint="evaluate both on the same file of problems",
    )


def _data_note(first: Answers, second: Answers) -> str:
    """Where two evaluations read other data, or which data both say they read."""
    if not first.data or not second.data:
        return ""
    sides = [dict(leaves(one.data)) for one in (first, second)]
    differing = [
        f"data.{name} {sides[0].get(name)!r} and {sides[1].get(name)!r}"
        for name in dict.fromkeys([*sides[0], *sides[1]])
        if sides[0].get(name) != sides[1].get(name)
    ]
    if differing:
        return f"; they read {', '.join(differing)}"
    return f"; both read data.path {first.data.get('path')!r}, which has changed between them"


def correct_by_problem(result: EvaluationResult) -> dict[str, float]:
    """The share of right samples by problem id; problems with unusable golds are left out."""
    return _answers_in(result).shares


def _answers_in(result: EvaluationResult) -> Answers:
    marks: dict[str, list[bool]] = {}
    golds = {}
    for group in usable_groups(result.groups):
        problem = group.problem
        if problem.id in marks:
            raise DataError(f"{result.dataset}: problem {problem.id!r} occurs twice")
        marks[problem.id] = [is_right(rollout) for rollout in group.rollouts]
        golds[problem.id] = str(problem.answer)
    return Answers(marks=marks, golds=golds)


def read_correct_by_problem(path: Path) -> dict[str, float]:
    """The same from results.jsonl; files of earlier programs count a reward above 0 as right."""
    return read_answers(path).shares


def read_marks(path: Path) -> dict[str, list[bool]]:
    """{problem id: whether each of its samples is right} from results.jsonl."""
    return {name: list(marks) for name, marks in read_answers(path).marks.items()}


def read_answers(path: Path, *, data_set: str | None = None) -> Answers:
    """What a file of results says, of all its rows or of those of one data set in it."""
    if data_set is None:
        found = _answers(read_results(path), path)
    else:
        by_set = _by_data_set(path, path.stat().st_mtime_ns)
        if data_set not in by_set:
            raise DataError(f"{path} has no row of {data_set!r}; it has {', '.join(by_set)}")
        found = by_set[data_set]
    if not found.marks:
        raise DataError(f"{path} holds no graded row" + (f" of {data_set}" if data_set else ""))
    return found


@functools.lru_cache(maxsize=16)
def _by_data_set(path: Path, changed: int) -> dict[str, Answers]:
    """Every data set's answers in a file that was `changed` then: it is large, and read once."""
    return {name: _answers(rows, path) for name, rows in read_by_data_set(path).items()}


def _answers(rows: Sequence[Mapping[str, Any]], path: Path) -> Answers:
    marks: dict[str, list[bool]] = {}
    golds: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        reward = row.get("metrics", {}).get("reward")
        correct = row.get("correct", None if reward is None else reward > 0)
        if "id" not in row:
            raise DataError(
                f"{path}: row {number} has no id, so it cannot be paired",
                hint="evaluate again; earlier programs did not store problem ids",
            )
        if correct is None:
            continue
        marks.setdefault(row["id"], []).append(bool(correct))
        if row.get("ground_truth") is not None:
            golds.setdefault(row["id"], str(row["ground_truth"]))
    return Answers(marks=marks, golds=golds, data=_data_of(path))


def _data_of(path: Path) -> Mapping[str, Any]:
    """The settings of the data set in the summary beside the rows."""
    summary = (path if path.is_dir() else path.parent) / SUMMARY_FILE
    if not summary.is_file():
        return {}
    data = read_summary(summary).get("settings", {}).get("data")
    return data if isinstance(data, dict) else {}


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values corrected for their number, in the order given.

    The smallest of m is multiplied by m, the next by m - 1 and so on, none below the one before
    (Holm, 1979, "A simple sequentially rejective multiple test procedure"). That one of them is
    below 0.05 without any difference happens in at most 5 % of such families, however they hang
    together.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def _listed(ids: Iterable[str]) -> str:
    """How many problems these are, and which, up to `MOST_NAMED` of them."""
    found = sorted(ids)
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"{len(found)} ({', '.join(map(repr, found[:MOST_NAMED]))}{more})"


def _short(gold: str) -> str:
    return repr(gold if len(gold) <= MOST_LETTERS else f"{gold[: MOST_LETTERS - 3]}...")
