"""Two evaluations of the same problems: how much better is the second, and is it clear?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workings.errors import DataError
from workings.evaluation.metrics import PairedDifference, paired_difference, pool_by_problem
from workings.evaluation.reports import read_results
from workings.evaluation.result import EvaluationResult
from workings.evaluation.sample_metrics import is_right, usable_groups


def compare_results(
    first: Sequence[EvaluationResult], second: Sequence[EvaluationResult], *, seed: int = 0
) -> PairedDifference:
    """The difference of two models; each side is one result, or one per training seed."""
    sides = [[correct_by_problem(result) for result in side] for side in (first, second)]
    return compare_by_problem(pool_by_problem(sides[0]), pool_by_problem(sides[1]), seed=seed)


def compare_folders(
    first: Sequence[Path], second: Sequence[Path], *, seed: int = 0
) -> PairedDifference:
    """The same from stored `results.jsonl` files (or the folders that hold them)."""
    sides = [[read_correct_by_problem(path) for path in side] for side in (first, second)]
    return compare_by_problem(pool_by_problem(sides[0]), pool_by_problem(sides[1]), seed=seed)


def compare_by_problem(
    first: dict[str, float], second: dict[str, float], *, seed: int
) -> PairedDifference:
    """The paired difference of two {problem id: share right}; both need the same problems."""
    if first.keys() != second.keys():
        only_first, only_second = first.keys() - second.keys(), second.keys() - first.keys()
        example = min(only_first | only_second)
        raise DataError(
            f"the two evaluations answered other problems: {len(only_first)} only in the first, "
            f"{len(only_second)} only in the second, {example!r} for one",
            hint="evaluate both on the same data set with the same limit",
        )
    names = sorted(first)
    return paired_difference(
        [first[name] for name in names], [second[name] for name in names], seed=seed
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
    return {name: sum(right) / len(right) for name, right in marks.items()}
