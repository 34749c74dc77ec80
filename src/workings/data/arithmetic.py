"""Arithmetic tasks of graded difficulty, generated: problems, and demonstrations with worked steps.

A problem's text decides which split it belongs to, so training and test problems are disjoint
whatever seeds, counts and difficulties are asked for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Literal, get_args

from workings.data.exercises import OPERATIONS, Exercise
from workings.data.split import SplitName, hash_split
from workings.data.worked_steps import RUNNING_STYLES, STYLE_NAMES, write_response
from workings.errors import DataError, unknown_name
from workings.types import Demonstration, Problem

Carries = Literal["any", "never", "always"]
ARITHMETIC = "arithmetic"
PLACEHOLDER = "{expression}"
TRIES_PER_PROBLEM = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticTask:
    """What the exercises look like.

    Attributes:
        operations: signs drawn from, some of "+", "-" and "*".
        terms: fewest and most operands of one exercise.
        operands: smallest and largest operand.
        carries: "never" keeps to exercises in which no step carries or borrows, "always" to those
            in which one does.
        negative: whether a result on the way may be below 0.
        question: the question's text around `{expression}`.
        spaces: write "3 + 8" instead of "3+8".
        steps: how worked steps are written, one of `worked_steps.STYLE_NAMES`.
        places: do each step place by place.
    """

    operations: tuple[str, ...] = ("+",)
    terms: tuple[int, int] = (3, 4)
    operands: tuple[int, int] = (1, 9)
    carries: Carries = "any"
    negative: bool = False
    question: str = PLACEHOLDER
    spaces: bool = False
    steps: str = "lines"
    places: bool = False

    def __post_init__(self) -> None:
        unknown = [sign for sign in self.operations if sign not in OPERATIONS]
        if unknown or not self.operations:
            known = ", ".join(OPERATIONS)
            raise DataError(f"operations={list(self.operations)}; expected some of {known}")
        if not 2 <= self.terms[0] <= self.terms[1]:
            raise DataError(f"terms={list(self.terms)}; expected [fewest, most] from 2 up")
        if not 0 <= self.operands[0] <= self.operands[1]:
            raise DataError(f"operands={list(self.operands)}; expected [smallest, largest] from 0")
        if self.carries not in get_args(Carries):
            raise DataError(unknown_name("carries", self.carries, get_args(Carries)))
        if self.steps not in STYLE_NAMES:
            raise DataError(unknown_name("steps", self.steps, STYLE_NAMES))
        if PLACEHOLDER not in self.question:
            raise DataError(f"question={self.question!r}; expected {PLACEHOLDER} in it")
        not_left_to_right = "*" in self.operations and (
            len(set(self.operations)) > 1 or self.places
        )
        if self.steps in RUNNING_STYLES and not_left_to_right:
            raise DataError(
                f"steps={self.steps!r} writes one running result, and products are worked out "
                "apart from sums",
                hint="take steps=lines, or keep to + and -",
            )


def arithmetic_task(options: Mapping[str, object]) -> ArithmeticTask:
    """The task that settings from a file describe; lists become ranges, one number both its ends.

    >>> arithmetic_task({"terms": 3, "operands": [10, 99], "operations": "+-"}).terms
    (3, 3)
    """
    known = {field.name: field.default for field in fields(ArithmeticTask)}
    values: dict[str, object] = {}
    for name, value in options.items():
        if name not in known:
            raise DataError(unknown_name("option of arithmetic", name, known))
        if name == "operations" and isinstance(value, str | list | tuple):
            value = tuple(value)
        elif name in ("terms", "operands"):
            value = _range(name, value)
        elif type(value) is not type(known[name]):
            raise DataError(
                f"option {name}={value!r} of arithmetic; expected a "
                f"{type(known[name]).__name__} such as {known[name]!r}"
            )
        values[name] = value
    return ArithmeticTask(**values)  # type: ignore[arg-type]


def arithmetic_problems(
    task: ArithmeticTask, num_problems: int, *, seed: int, split: SplitName = "train"
) -> list[Problem]:
    """So many distinct problems of one split, a pure function of the arguments.

    The first n of a longer list are the list of n. DataError where the task has fewer problems.
    """
    return [
        Problem(
            id=f"{ARITHMETIC}/{exercise.expression()}",
            question=_question(task, exercise),
            answer=str(exercise.answer),
            subject="".join(sorted(set(exercise.operations))),
            level=str(len(exercise.operands)),
            source=ARITHMETIC,
        )
        for exercise in _exercises(task, num_problems, seed, split)
    ]


def arithmetic_demonstrations(
    task: ArithmeticTask, num_problems: int, *, seed: int, split: SplitName = "train"
) -> list[Demonstration]:
    """The same problems, each with worked steps and the answer in its tags.

    The response begins inside the thought, which the prompt opens.
    """
    return [
        Demonstration(
            id=f"{ARITHMETIC}/{exercise.expression()}",
            question=_question(task, exercise),
            response=write_response(
                exercise, style=task.steps, places=task.places, spaces=task.spaces
            ),
            answer=str(exercise.answer),
            source=ARITHMETIC,
        )
        for exercise in _exercises(task, num_problems, seed, split)
    ]


def _question(task: ArithmeticTask, exercise: Exercise) -> str:
    return task.question.replace(PLACEHOLDER, exercise.expression(spaces=task.spaces))


def _exercises(
    task: ArithmeticTask, num_problems: int, seed: int, split: SplitName
) -> list[Exercise]:
    if split not in get_args(SplitName):
        raise DataError(unknown_name("split", split, get_args(SplitName)))
    if num_problems < 1:
        raise DataError(f"num_problems={num_problems}; expected 1 or more")
    draw = random.Random(f"workings/arithmetic/{seed}/{split}").random
    found: dict[Exercise, None] = {}
    tries_left = TRIES_PER_PROBLEM
    while len(found) < num_problems:
        if not tries_left:
            raise DataError(
                f"only {len(found)} distinct {split} problems were found of the {num_problems} "
                f"asked for: {task}",
                hint="ask for fewer, or widen terms, operands or operations",
            )
        tries_left -= 1
        exercise = _draw(task, draw)
        fits = hash_split(exercise.canonical) == split and _allowed(task, exercise)
        if fits and exercise not in found:
            found[exercise] = None
            tries_left = TRIES_PER_PROBLEM
    return list(found)


def _draw(task: ArithmeticTask, draw: Callable[[], float]) -> Exercise:
    num_terms = _between(task.terms, draw)
    operands = tuple(_between(task.operands, draw) for _ in range(num_terms))
    count = len(task.operations)
    signs = tuple(task.operations[int(draw() * count)] for _ in range(num_terms - 1))
    return Exercise(operands=operands, operations=signs)


def _allowed(task: ArithmeticTask, exercise: Exercise) -> bool:
    steps = exercise.steps()
    if not task.negative and any(step.result < 0 for step in steps):
        return False
    if task.carries == "any":
        return True
    return any(step.carries for step in steps) == (task.carries == "always")


def _between(bounds: tuple[int, int], draw: Callable[[], float]) -> int:
    low, high = bounds
    return low + int(draw() * (high - low + 1))


def _range(name: str, value: object) -> tuple[int, int]:
    if type(value) is int:
        return value, value
    if isinstance(value, list | tuple) and len(value) == 2 and all(type(n) is int for n in value):
        return value[0], value[1]
    raise DataError(f"option {name}={value!r} of arithmetic; expected two integers such as [2, 4]")
