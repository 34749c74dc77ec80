"""Groups that hold a teacher's traces beside the policy's own samples. Source: LUFFY, 2504.14945.

    wanted = samples_wanted(prompts, traces, num_generations, num_off)     7 of 8 where a trace is
    groups = collect_groups(engine, prompts, sampling, num_samples=wanted, ...)
    groups = mix_demonstrations(groups, traces, num_off=num_off, ...)      8 rows in every group

A trace is data: it is appended after sampling and no engine sees it. A problem without a trace is
sampled as an ordinary prompt. The teacher's rows are graded like every other.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from workings.data.traces import EncodedTrace
from workings.errors import ConfigError, EngineError
from workings.seeds import derive_seed
from workings.types import Prompt, Rollout, RolloutGroup

if TYPE_CHECKING:
    from workings.rollout.prefixes import GroupPlan

EVERY_ROW = -1
NOT_SAMPLED = -1
"""`weight_version` of a row that no weights of this run sampled."""
TraceChoice = Literal["first", "random"]
"""Which of several traces a step takes: in the order of the data set, or a seeded draw."""


def num_guided(num_generations: int, num_off: int) -> int:
    """Guided rows of a group of `num_generations`; `num_off` = -1 is every row.

    >>> num_guided(8, 1), num_guided(8, -1)
    (1, 8)
    """
    if num_off == EVERY_ROW:
        return num_generations
    if not 0 <= num_off <= num_generations:
        raise ConfigError(
            f"num_off={num_off} rows of a group of {num_generations} come from the teacher; "
            f"expected 0 to {num_generations}, or -1 for every row"
        )
    return num_off


def samples_wanted(
    prompts: Sequence[Prompt],
    traces: Mapping[str, Sequence[EncodedTrace]],
    num_generations: int,
    num_off: int,
) -> list[int]:
    """Completions to sample for each prompt, so that with its traces it has `num_generations`."""
    own = num_generations - num_guided(num_generations, num_off)
    return [own if traces.get(prompt.problem.id) else num_generations for prompt in prompts]


def kept_traces(
    prompts: Sequence[Prompt],
    traces: Mapping[str, Sequence[EncodedTrace]],
    *,
    keep_prob: float,
    seed: int,
    step: int,
) -> dict[str, Sequence[EncodedTrace]]:
    """The traces of these prompts that this step uses: each problem's with that probability.

    A problem whose traces are left out is an ordinary prompt in this step. The draw is a function
    of (seed, step, problem id). Source: `sample_target_ratio` of LUFFY.
    """
    if not 0.0 <= keep_prob <= 1.0:
        raise ConfigError(f"target_keep_prob={keep_prob}; expected a probability")
    kept: dict[str, Sequence[EncodedTrace]] = {}
    for prompt in prompts:
        problem_id = prompt.problem.id
        draw = random.Random(derive_seed(seed, "keep", step, problem_id)).random()
        if traces.get(problem_id) and draw < keep_prob:
            kept[problem_id] = traces[problem_id]
    return kept


def choose_traces(
    traces: Sequence[EncodedTrace],
    count: int,
    *,
    problem_id: str,
    seed: int,
    step: int,
    choice: TraceChoice = "first",
) -> list[EncodedTrace]:
    """`count` of a problem's traces, from the beginning again when there are fewer."""
    order = list(traces)
    if choice == "random":
        draws = random.Random(derive_seed(seed, "trace", step, problem_id))
        keys = [draws.random() for _ in order]
        order = [trace for _, trace in sorted(zip(keys, order, strict=True), key=lambda p: p[0])]
    return [order[number % len(order)] for number in range(count)]


def mix_demonstrations(
    groups: Sequence[RolloutGroup],
    traces: Mapping[str, Sequence[EncodedTrace]],
    *,
    num_off: int,
    num_generations: int,
    seed: int,
    step: int,
    choice: TraceChoice = "first",
) -> list[RolloutGroup]:
    """The groups with `num_off` whole traces appended where their problem has any.

    Args:
        groups: as sampled with `samples_wanted`.
        traces: problem id to traces, the same that `samples_wanted` got.
        num_off: traces per group; -1 makes every row the teacher's.
        num_generations: rows that every group has afterwards; another number is an EngineError.
        seed, step: with `choice="random"` the traces are a function of them and the problem.
        choice: which traces, where a problem has more than `num_off`.
    """
    guided = num_guided(num_generations, num_off)
    mixed = []
    for group in groups:
        available = traces.get(group.problem.id, ())
        chosen: list[EncodedTrace] = []
        if available:
            chosen = choose_traces(
                available, guided, problem_id=group.problem.id, seed=seed, step=step, choice=choice
            )
        mixed.append(_with_traces(group, chosen, num_generations))
    return mixed


def append_whole(
    groups: Sequence[RolloutGroup], plans: Sequence[GroupPlan], *, num_generations: int
) -> list[RolloutGroup]:
    """The groups with the whole traces of their plans appended (`prefixes.plan_prefixes`)."""
    return [
        _with_traces(group, plan.whole, num_generations)
        for group, plan in zip(groups, plans, strict=True)
    ]


def demonstration_rollout(trace: EncodedTrace) -> Rollout:
    """A whole trace as a row of a group: every token trained, and none of them sampled."""
    length = len(trace.ids)
    return Rollout(
        ids=trace.ids,
        sampling_logprobs=[math.nan] * length,
        kept_mass=[1.0] * length,
        mask=[True] * length,
        off_policy=[True] * length,
        text=trace.text,
        finish_reason="eos",
        weight_version=NOT_SAMPLED,
        source="demonstration",
        recorded_logprobs=trace.logprobs,
    )


def without_wrong_demonstrations(
    groups: Sequence[RolloutGroup], *, is_right: Callable[[Rollout], bool]
) -> tuple[list[RolloutGroup], int]:
    """The graded groups with wrong teacher rows taken out of statistics and loss; their number.

    Such a row keeps its place with the reward None, as a row with an unusable gold does. Without
    this a wrong trace is legal and is pushed down by its negative advantage. A row that the policy
    continued from the beginning of a trace stays: its failure is the policy's own.
    """
    count = 0
    result = []
    for group in groups:
        rollouts = []
        for rollout in group.rollouts:
            whole = rollout.source == "demonstration" and all(rollout.off_policy)
            if whole and not is_right(rollout):
                count += rollout.reward is not None
                rollout = replace(rollout, reward=None)
            rollouts.append(rollout)
        result.append(replace(group, rollouts=tuple(rollouts)))
    return result, count


def mix_metrics(
    groups: Sequence[RolloutGroup], *, is_right: Callable[[Rollout], bool]
) -> dict[str, float]:
    """Shares of off-policy rows and tokens, and of right rows among the teacher's and the own.

    `off_policy/teacher_wrong` counts rows. A share without any row is left out.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    taught = [rollout for rollout in rollouts if rollout.source == "demonstration"]
    own = [rollout for rollout in rollouts if rollout.source == "policy"]
    off = [rollout for rollout in rollouts if any(rollout.off_policy)]
    num_tokens = sum(len(rollout.ids) for rollout in rollouts)
    metrics = {
        "off_policy/row_fraction": len(off) / max(len(rollouts), 1),
        "off_policy/token_fraction": sum(sum(r.off_policy) for r in off) / max(num_tokens, 1),
        "off_policy/guided_groups": float(
            sum(any(r.source == "demonstration" for r in group.rollouts) for group in groups)
        ),
        "off_policy/teacher_wrong": float(sum(not is_right(rollout) for rollout in taught)),
    }
    for name, rows in (("teacher", taught), ("own", own)):
        if rows:
            metrics[f"off_policy/{name}_right"] = sum(map(is_right, rows)) / len(rows)
    return metrics


def with_rows(group: RolloutGroup, rows: Sequence[Rollout], num_generations: int) -> RolloutGroup:
    """The group with these rows appended; EngineError where it has not `num_generations` then."""
    rollouts = (*group.rollouts, *rows)
    if len(rollouts) != num_generations:
        raise EngineError(
            f"the group of problem {group.problem.id!r} has {len(group.rollouts)} sampled rows and "
            f"{len(rows)} from elsewhere; expected {num_generations} in all",
            hint="sample as many completions as samples_wanted says, with the same traces",
        )
    return replace(group, rollouts=rollouts)


def _with_traces(
    group: RolloutGroup, chosen: Sequence[EncodedTrace], num_generations: int
) -> RolloutGroup:
    return with_rows(group, [demonstration_rollout(trace) for trace in chosen], num_generations)
