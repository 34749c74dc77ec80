"""Two evaluations of the same problems: how much better is the second, and is it clear?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from workings.errors import DataError
from workings.evaluation.metrics import (
    IntervalMethod,
    PairedDifference,
    paired_difference,
    pool_by_problem,
)
from workings.evaluation.reports import read_results
from workings.evaluation.result import EvaluationResult
from workings.evaluation.sample_metrics import is_right, usable_groups

MOST_NAMED = 5
"""Problems that an error names of each side."""


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
    sides = [[correct_by_problem(result) for result in side] for side in (first, second)]
    return compare_by_problem(
        pool_by_problem(sides[0]), pool_by_problem(sides[1]), seed=seed, method=method
    )


def compare_folders(
    first: Sequence[Path],
    second: Sequence[Path],
    *,
    seed: int = 0,
    method: IntervalMethod = "score",
) -> PairedDifference:
    """The same from stored `results.jsonl` files (or the folders that hold them)."""
    sides = [[read_correct_by_problem(path) for path in side] for side in (first, second)]
    return compare_by_problem(
        pool_by_problem(sides[0]), pool_by_problem(sides[1]), seed=seed, method=method
    )


def compare_by_problem(
    first: Mapping[str, float],
    second: Mapping[str, float],
    *,
    names: tuple[str, str] = ("the first", "the second"),
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


def correct_by_problem(result: EvaluationResult) -> dict[str, float]:
    """The share of right samples by problem id; problems with unusable golds are left out."""
    shares: dict[str, float] = {}
    for group in usable_groups(result.groups):
        if group.problem.id in shares:
            raise DataError(f"{result.dataset}: problem {group.problem.id!r} occurs twice")
        right = [is_right(rollout) for rollout in group.rollouts]
        shares[group.problem.id] = sum(right) / len(right)
    return shares


def read_correct_by_problem(path: Path) -> dict[str, float]:
    """The same from results.jsonl; files of earlier programs count a reward above 0 as right."""
    return {name: sum(marks) / len(marks) for name, marks in read_marks(path).items()}


def read_marks(path: Path) -> dict[str, list[bool]]:
    """{problem id: whether each of its samples is right} from results.jsonl."""
    marks: dict[str, list[bool]] = {}
    for number, row in enumerate(read_results(path), start=1):
        reward = row.get("metrics", {}).get("reward")
        correct = row.get("correct", None if reward is None else reward > 0)
        if "id" not in row:
            raise DataError(
                f"{path}: row {number} has no id, so it cannot be paired",
                hint="evaluate again; earlier programs did not store problem ids",
            )
        if correct is not None:
            marks.setdefault(row["id"], []).append(bool(correct))
    if not marks:
        raise DataError(f"{path} holds no graded row")
    return marks


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
