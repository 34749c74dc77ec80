"""Partial guidance: how much of a teacher's trace a row begins with, planned before sampling.

A guided row is the first `int(len(trace) * ratio)` tokens of a trace (EOS not counted) and the
policy's own continuation. Ratio 1 is the whole trace with its EOS: it is data, and no engine sees
it. Ratio 0, and one that leaves no token, is an ordinary sample.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from workings.data.traces import EncodedTrace
from workings.errors import ConfigError, unknown_name
from workings.rollout.mix import TraceChoice, choose_traces, num_guided
from workings.seeds import derive_seed
from workings.types import Prompt

ScheduleName = Literal["random", "fixed", "linear", "linear_max", "reverse_linear"]
WINDOWS = 10
"""Steps of the staircase that `linear_max` goes down and `reverse_linear` goes up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixSchedule:
    """Which share of a trace guides a row. Source: `prefix_strategy` of LUFFY (arXiv 2504.14945).

    Attributes:
        name: random: uniform in [min_ratio, max_ratio]. fixed: evenly spaced from min_ratio to
            max_ratio over the guided rows of a prompt; a single row gets max_ratio.
            linear: linear_max_ratio * (1 - min(step / steps, 1)), the same for all rows.
            linear_max: uniform in [0, b], where b falls from linear_max_ratio to a tenth of it in
            ten windows over `steps`. reverse_linear: b rises likewise.
        min_ratio, max_ratio: 1 and 1 are whole traces.
        steps: length of the schedules that change with the step.
        linear_max_ratio: their largest ratio.
        share_across_samples: one ratio for all guided rows of a prompt.
    """

    name: ScheduleName = "random"
    min_ratio: float = 1.0
    max_ratio: float = 1.0
    steps: int = 1000
    linear_max_ratio: float = 0.8
    share_across_samples: bool = False

    def __post_init__(self) -> None:
        known = get_args(ScheduleName)
        if str(self.name) == "linear_variance":
            raise ConfigError(
                "the prefix schedule linear_variance was never defined: LUFFY declares the name "
                "and gives it no body",
                hint=f"choose one of {', '.join(known)}",
            )
        if self.name not in known:
            raise ConfigError(unknown_name("prefix schedule", self.name, known))
        if not 0.0 <= self.min_ratio <= self.max_ratio <= 1.0:
            raise ConfigError(
                f"prefix ratios from {self.min_ratio} to {self.max_ratio}; expected "
                "0 <= min_ratio <= max_ratio <= 1"
            )
        if not 0.0 <= self.linear_max_ratio <= 1.0:
            raise ConfigError(f"linear_max_ratio={self.linear_max_ratio}; expected 0 to 1")
        if self.steps < 1:
            raise ConfigError(f"the prefix schedule has steps={self.steps}; expected 1 or more")
        if self.name == "linear" and not self.share_across_samples:
            raise ConfigError(
                "the prefix schedule linear gives all guided rows of a prompt one ratio",
                hint="set share_across_samples=true",
            )
        if self.name == "fixed" and self.share_across_samples:
            raise ConfigError(
                "the prefix schedule fixed gives every guided row of a prompt another ratio",
                hint="set share_across_samples=false",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePrefix:
    """The beginning of a trace: its ids, and the teacher's log-probability of each, if recorded."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """What one group is made of.

    Attributes:
        num_samples: ordinary samples to draw.
        prefixes: beginnings that the engine continues, one row each.
        whole: traces that are appended as they are.
    """

    num_samples: int
    prefixes: tuple[TracePrefix, ...] = ()
    whole: tuple[EncodedTrace, ...] = ()


def prefix_ratios(
    schedule: PrefixSchedule, num_rows: int, *, step: int, seed: int, problem_id: str
) -> list[float]:
    """The ratio of each guided row of a prompt; a function of (seed, step, problem id) alone.

    >>> schedule = PrefixSchedule(name="fixed", min_ratio=0.2, max_ratio=0.8)
    >>> prefix_ratios(schedule, 3, step=0, seed=0, problem_id="a")
    [0.2, 0.5, 0.8]
    """
    if num_rows == 0:
        return []
    if schedule.name == "fixed":
        if num_rows == 1:
            return [schedule.max_ratio]
        width = schedule.max_ratio - schedule.min_ratio
        return [schedule.min_ratio + width * row / (num_rows - 1) for row in range(num_rows)]
    if schedule.name == "linear":
        left = 1.0 - min(step / schedule.steps, 1.0)
        return [schedule.linear_max_ratio * left] * num_rows
    low, high = _bounds(schedule, step)
    draws = random.Random(derive_seed(seed, "prefix", step, problem_id))
    num_draws = 1 if schedule.share_across_samples else num_rows
    ratios = [low + (high - low) * draws.random() for _ in range(num_draws)]
    return ratios * num_rows if schedule.share_across_samples else ratios


def plan_prefixes(
    prompts: Sequence[Prompt],
    traces: Mapping[str, Sequence[EncodedTrace]],
    schedule: PrefixSchedule,
    *,
    num_generations: int,
    num_off: int,
    seed: int,
    step: int,
    choice: TraceChoice = "first",
) -> list[GroupPlan]:
    """What to sample for each prompt, what to continue and what to append.

    Pass `num_samples` and `prefixes` of the plans to `collect_groups`, and the plans themselves to
    `mix.append_whole`. Arguments as in `mix.mix_demonstrations`.
    """
    guided = num_guided(num_generations, num_off)
    plans = []
    for prompt in prompts:
        available = traces.get(prompt.problem.id, ())
        if not available:
            plans.append(GroupPlan(num_samples=num_generations))
            continue
        chosen = choose_traces(
            available, guided, problem_id=prompt.problem.id, seed=seed, step=step, choice=choice
        )
        ratios = prefix_ratios(schedule, guided, step=step, seed=seed, problem_id=prompt.problem.id)
        plans.append(_plan(chosen, ratios, num_generations))
    return plans


def _plan(
    chosen: Sequence[EncodedTrace], ratios: Sequence[float], num_generations: int
) -> GroupPlan:
    prefixes: list[TracePrefix] = []
    whole: list[EncodedTrace] = []
    for trace, ratio in zip(chosen, ratios, strict=True):
        length = int((len(trace.ids) - 1) * ratio)
        if ratio >= 1.0:
            whole.append(trace)
        elif length > 0:
            prefixes.append(TracePrefix(ids=trace.ids[:length], logprobs=trace.logprobs[:length]))
    return GroupPlan(
        num_samples=num_generations - len(prefixes) - len(whole),
        prefixes=tuple(prefixes),
        whole=tuple(whole),
    )


def _bounds(schedule: PrefixSchedule, step: int) -> tuple[float, float]:
    if schedule.name == "random":
        return schedule.min_ratio, schedule.max_ratio
    window = min(WINDOWS * step // schedule.steps, WINDOWS - 1)
    tenths = WINDOWS - window if schedule.name == "linear_max" else window + 1
    return 0.0, schedule.linear_max_ratio * tenths / WINDOWS
