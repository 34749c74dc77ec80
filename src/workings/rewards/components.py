"""Reward functions in the call form of TRL, named, weighted, and called with care.

    def shorter(prompts, completions, answer, **columns) -> list[float | None]: ...

`completions` are texts, `answer` the gold answers, `columns` every other column of the data set
(and `completion_ids`, the sampled token ids); a function without `**columns` gets the ones it
names. None skips a row: the component then has no value there.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workings.errors import GradingError
from workings.types import RolloutGroup

Completion = str | Sequence[Mapping[str, str]]
"""A text, or the messages of a chat completion."""

RewardFunction = Callable[..., Sequence[float | None]]
"""`f(prompts, completions, answer, **columns)`: one value per completion, None to skip a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One reward function, its name in the metrics, and its weight in the total."""

    name: str
    function: RewardFunction
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """All rollouts of some groups as columns, one entry per rollout."""

    prompts: list[str]
    completions: list[str]
    answers: list[str]
    columns: dict[str, list[object]]

    def __len__(self) -> int:
        return len(self.completions)


def rows_of(groups: Sequence[RolloutGroup]) -> Rows:
    """The columns that reward functions see, group after group, in sampling order.

    A column that a problem lacks is None there.
    """
    pairs = [(group, rollout) for group in groups for rollout in group.rollouts]
    names = dict.fromkeys(name for group in groups for name in group.problem.extra)
    columns: dict[str, list[object]] = {
        name: [group.problem.extra.get(name) for group, _ in pairs] for name in names
    }
    columns["completion_ids"] = [rollout.ids for _, rollout in pairs]
    return Rows(
        prompts=[group.prompt.text for group, _ in pairs],
        completions=[rollout.text for _, rollout in pairs],
        answers=[group.problem.answer for group, _ in pairs],
        columns=columns,
    )


def component_values(component: Component, rows: Rows) -> list[float | None]:
    """One value per row, None where the function skips it.

    Raises GradingError, naming the function, where it raises, returns another number of values, or
    returns anything but a finite number.
    """
    if not len(rows):
        return []
    columns = _accepted(component.function, rows.columns)
    try:
        returned = component.function(
            prompts=rows.prompts, completions=rows.completions, answer=rows.answers, **columns
        )
        values = list(returned)
    except Exception as error:
        raise GradingError(
            f"reward function {component.name!r} raised {type(error).__name__}: {error}"
        ) from error
    if len(values) != len(rows):
        raise GradingError(
            f"reward function {component.name!r} returned {len(values)} values for {len(rows)} "
            "completions; expected one each"
        )
    return [_checked(component.name, row, value, rows) for row, value in enumerate(values)]


def completion_text(completion: Completion) -> str:
    """The text of a completion in either form; a missing content is empty text.

    >>> completion_text([{"role": "assistant", "content": "34"}]), completion_text([])
    ('34', '')
    """
    if isinstance(completion, str):
        return completion
    return (completion[0].get("content") or "") if completion else ""


def _checked(name: str, row: int, value: object, rows: Rows) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever a user's function returned
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise GradingError(
            f"reward function {name!r} returned {value!r} for row {row} "
            f"(completion {rows.completions[row]!r:.80}); expected a finite number or None",
            hint="return None to leave a row out",
        )
    return number


def _accepted(
    function: RewardFunction, columns: Mapping[str, list[object]]
) -> dict[str, list[object]]:
    """The columns that `function` takes: all with `**columns`, else those it names."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(columns)
    return {name: column for name, column in columns.items() if name in parameters}
