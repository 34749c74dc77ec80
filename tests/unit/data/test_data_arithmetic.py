"""Generated arithmetic: right, reproducible, as hard as asked for, and never in two splits."""

from __future__ import annotations

from typing import get_args

import pytest

from workings.data.arithmetic import (
    ArithmeticTask,
    arithmetic_demonstrations,
    arithmetic_problems,
    arithmetic_task,
)
from workings.data.exercises import Exercise
from workings.data.split import SplitName
from workings.errors import DataError
from workings.types import Problem

MIXED = ArithmeticTask(operations=("+", "-", "*"), terms=(2, 4), operands=(1, 20), negative=True)


def operands_of(problem: Problem) -> list[int]:
    return [int(n) for n in problem.question.split("+")]


def test_problems_are_distinct_and_reproducible() -> None:
    problems = arithmetic_problems(MIXED, 300, seed=1)
    assert len({problem.question for problem in problems}) == 300
    assert arithmetic_problems(MIXED, 300, seed=1) == problems
    assert arithmetic_problems(MIXED, 100, seed=1) == problems[:100]
    assert arithmetic_problems(MIXED, 300, seed=2) != problems


def test_demonstrations_are_the_same_problems_worked_out() -> None:
    problems = arithmetic_problems(MIXED, 50, seed=1)
    rows = arithmetic_demonstrations(MIXED, 50, seed=1)
    assert [row.id for row in rows] == [problem.id for problem in problems]
    for row, problem in zip(rows, problems, strict=True):
        assert row.question == problem.question
        assert row.answer == problem.answer
        assert row.response.endswith(f"</think> <answer>{problem.answer}</answer>")
        assert row.response.split("</think>")[0].endswith(f"={problem.answer}")


def test_splits_are_disjoint_whatever_the_seeds_and_tasks() -> None:
    tasks = (
        ArithmeticTask(terms=(2, 3)),
        ArithmeticTask(terms=(3, 4), spaces=True, question="What is {expression}?"),
        ArithmeticTask(terms=(2, 4), operations=("+", "-")),
    )
    seen: dict[str, set[str]] = {split: set() for split in get_args(SplitName)}
    for task in tasks:
        for split in get_args(SplitName):
            for seed in (0, 1):
                rows = arithmetic_demonstrations(task, 20, seed=seed, split=split)
                seen[split].update(_sorted_terms(row.id) for row in rows)
    for one in seen:
        for other in seen:
            assert one == other or not seen[one] & seen[other]


def _sorted_terms(problem_id: str) -> str:
    expression = problem_id.removeprefix("arithmetic/")
    if "-" in expression:
        return expression
    return "+".join(sorted(expression.split("+")))


def test_terms_and_operands_stay_in_range() -> None:
    problems = arithmetic_problems(ArithmeticTask(terms=(2, 5), operands=(10, 30)), 400, seed=0)
    sizes = {len(operands_of(problem)) for problem in problems}
    values = {n for problem in problems for n in operands_of(problem)}
    assert sizes == {2, 3, 4, 5}
    assert values == set(range(10, 31))
    assert {problem.level for problem in problems} == {"2", "3", "4", "5"}
    assert all(problem.answer == str(sum(operands_of(problem))) for problem in problems)


@pytest.mark.parametrize("carries", ["never", "always"])
def test_carries_as_asked_for(carries: str) -> None:
    task = arithmetic_task({"terms": 2, "operands": [11, 99], "carries": carries})
    for problem in arithmetic_problems(task, 100, seed=0):
        a, b = operands_of(problem)
        has_carry = a % 10 + b % 10 > 9 or a // 10 + b // 10 > 9
        assert has_carry == (carries == "always")


def test_results_below_zero_only_where_allowed() -> None:
    task = ArithmeticTask(operations=("-",), terms=(2, 3), operands=(1, 9))
    assert all(int(p.answer) >= 0 for p in arithmetic_problems(task, 80, seed=0))
    below = ArithmeticTask(operations=("-",), terms=(2, 3), operands=(1, 9), negative=True)
    assert any(int(p.answer) < 0 for p in arithmetic_problems(below, 80, seed=0))


def test_the_question_as_it_is_asked() -> None:
    task = ArithmeticTask(terms=(2, 2), spaces=True, question="What is {expression}? {x}")
    problem = arithmetic_problems(task, 1, seed=0)[0]
    left, right = problem.id.removeprefix("arithmetic/").split("+")
    assert problem.question == f"What is {left} + {right}? {{x}}"


def test_settings_from_a_file() -> None:
    options = {"operations": ["+", "-"], "terms": [2, 3], "operands": 7, "steps": "chain"}
    task = arithmetic_task(options)
    assert task == ArithmeticTask(
        operations=("+", "-"), terms=(2, 3), operands=(7, 7), steps="chain"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"term": 3}, "unknown option of arithmetic 'term'; did you mean 'terms'"),
        ({"terms": [1, 2]}, r"terms=\[1, 2\]; expected \[fewest, most\] from 2 up"),
        ({"terms": [3]}, r"terms=\[3\] of arithmetic; expected two integers such as"),
        ({"operands": [5, 2]}, r"operands=\[5, 2\]; expected"),
        ({"operations": "/"}, r"operations=\['/'\]; expected some of \+, -, \*"),
        ({"steps": "lins"}, "unknown steps 'lins'; did you mean 'lines'"),
        ({"carries": "some"}, "unknown carries 'some'"),
        ({"spaces": "yes"}, "option spaces='yes' of arithmetic; expected a bool such as False"),
        ({"question": "2+2"}, r"question='2\+2'; expected \{expression\} in it"),
        ({"operations": "+*", "steps": "chain"}, "steps='chain' writes one running result"),
    ],
)
def test_impossible_settings(options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        arithmetic_task(options)


def test_more_problems_than_there_are() -> None:
    task = ArithmeticTask(terms=(2, 2), operands=(1, 3))
    with pytest.raises(
        DataError, match=r"only \d distinct train problems were found of the 50 asked"
    ):
        arithmetic_problems(task, 50, seed=0)
    with pytest.raises(DataError, match="unknown split 'eval'"):
        arithmetic_problems(task, 1, seed=0, split="eval")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="num_problems=0; expected 1 or more"):
        arithmetic_problems(task, 0, seed=0)


def test_exercises_hash_by_value() -> None:
    one = Exercise(operands=(1, 2), operations=("+",))
    assert len({one, Exercise(operands=(1, 2), operations=("+",))}) == 1
