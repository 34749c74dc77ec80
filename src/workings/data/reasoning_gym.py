"""Tasks of the reasoning-gym package as problems, by name: "reasoning_gym/chain_sum"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from workings.data.split import SplitName, hash_split
from workings.errors import DataError, unknown_name
from workings.types import Problem

PREFIX = "reasoning_gym/"
DRAWS_PER_PROBLEM = 100


def reasoning_gym_problems(
    task: str,
    num_problems: int,
    *,
    seed: int,
    split: SplitName = "train",
    options: Mapping[str, object] | None = None,
) -> list[Problem]:
    """So many distinct problems of one split of a reasoning-gym task.

    The question's text decides the split, so splits are disjoint whatever the seeds and counts.
    `extra["metadata"]` holds what the task says about the problem.

    Args:
        task: the task's name, with or without "reasoning_gym/" before it.
        options: settings of the task, passed on as they are.
    """
    name = task.removeprefix(PREFIX)
    if split not in get_args(SplitName):
        raise DataError(unknown_name("split", split, get_args(SplitName)))
    if num_problems < 1:
        raise DataError(f"num_problems={num_problems}; expected 1 or more")
    num_draws = DRAWS_PER_PROBLEM * num_problems
    entries = _create(name, size=num_draws, seed=seed, options=options or {})
    problems: dict[str, Problem] = {}
    for number in range(num_draws):
        entry = entries[number]
        question, answer = str(entry["question"]), entry["answer"]
        if answer is None:
            raise DataError(f"{PREFIX}{name} gives no gold answer, so it cannot be graded against")
        if hash_split(question) == split and question not in problems:
            problems[question] = Problem(
                id=f"{PREFIX}{name}/{seed}/{number}",
                question=question,
                answer=str(answer),
                source=f"{PREFIX}{name}",
                extra={"metadata": entry["metadata"]},
            )
            if len(problems) == num_problems:
                return list(problems.values())
    raise DataError(
        f"only {len(problems)} distinct {split} problems were found of the {num_problems} asked "
        f"for in {num_draws} draws of {PREFIX}{name}",
        hint="ask for fewer, or make the task wider with its options",
    )


def _create(name: str, *, size: int, seed: int, options: Mapping[str, object]) -> Any:
    try:
        from reasoning_gym import create_dataset
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise DataError(
            f"{PREFIX}{name} needs the reasoning-gym package, which is not installed",
            hint='install it with: pip install "workings[demo]"',
        ) from error
    if name not in DATASETS:
        raise DataError(unknown_name("reasoning-gym task", name, DATASETS))
    try:
        return create_dataset(name, size=size, seed=seed, **options)
    # The package checks its settings by assert, and unknown ones by the constructor.
    except (AssertionError, TypeError, ValueError) as error:
        raise DataError(f"{PREFIX}{name} does not take {dict(options)}: {error}") from error
