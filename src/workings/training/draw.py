"""Hops 1 to 3: prompts, samples, rewards. A batch of graded groups, however it was put together.

    plan = plan_sampling(source, objective, state)            1  what to ask the engine for
    collected = collect_batch(source, objective, plan, ...)   2  its samples as groups, completed
    drawn = grade_batch(source, objective, collected, ...)    3  with rewards

`draw_batch` is all three, with `engine.generate` between the first two; a loop that samples ahead
calls them one by one. A batch is drawn

- plainly: every group is sampled by the policy
- guided: a teacher's traces stand in the groups, whole or as beginnings (LUFFY)
- replayed: some groups hold a past success of the policy itself (ExGRPO)
- filtered or refilled: groups of equal rewards are drawn again or replaced (DAPO)
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from workings.config.objective_settings import ResolvedObjective
from workings.errors import TrainingError
from workings.rewards.four_classes import answer_right
from workings.rewards.reward import grade_groups
from workings.rewards.reward_metrics import check_grader
from workings.rollout.collect import GroupRequests, collect_groups, groups_of
from workings.rollout.mix import (
    mix_metrics,
    without_wrong_demonstrations,
)
from workings.seeds import derive_seed
from workings.training.metrics import Stopwatch
from workings.training.sampling_plan import (
    SamplingPlan,
    own_samples,
    plan_sampling,
    rollout_seed,
)
from workings.training.source import Source
from workings.training.state import TrainerState
from workings.types import RolloutGroup, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """A batch for which the engine is needed no more.

    Attributes:
        cursor: behind all prompts that were drawn; a filter draws more than its plan.
        graded: the groups have their rewards: which were drawn depends on these.
        greedy: groups of one greedy answer to each prompt, where these are the baselines.
    """

    plan: SamplingPlan
    cursor: int
    groups: list[RolloutGroup]
    graded: bool = False
    greedy: list[RolloutGroup] | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A rollout batch: graded groups, the cursor behind their prompts, what to report.

    `baselines` holds the reward of the greedy answer to every prompt, where it was asked for.
    """

    groups: list[RolloutGroup]
    cursor: int
    baselines: list[float] | None = None
    metrics: dict[str, float] = field(default_factory=dict)


def draw_batch(
    source: Source, objective: ResolvedObjective, state: TrainerState, clock: Stopwatch
) -> Drawn:
    """The graded groups of a step, as the objective wants them."""
    plan = plan_sampling(source, objective, state)
    answers = source.engine.generate(plan.asked.requests, source.sampling)
    collected = collect_batch(source, objective, plan, answers=answers, clock=clock)
    return grade_batch(source, objective, collected, clock)


def collect_batch(
    source: Source,
    objective: ResolvedObjective,
    plan: SamplingPlan,
    *,
    answers: Sequence[Sequence[Sample]],
    clock: Stopwatch,
) -> Collected:
    """The engine's answers as completed groups, with whatever else has to be sampled for them."""
    groups = _groups(source, plan.asked, plan.step, answers)
    if plan.complete is not None:
        groups = plan.complete(groups)
    clock.lap("rollout")
    collected = Collected(plan=plan, cursor=plan.cursor, groups=groups)
    if objective.dynamic_sampling == "filter":
        collected = _filtered(source, objective, collected, clock)
    if objective.advantage == "remax":
        greedy = _greedy_answers(source, collected.groups, plan.step)
        collected = replace(collected, greedy=greedy)
        clock.lap("rollout")
    return collected


def grade_batch(
    source: Source, objective: ResolvedObjective, collected: Collected, clock: Stopwatch
) -> Drawn:
    """The batch with its rewards, and what of it depends on them."""
    groups, metrics = collected.groups, dict(collected.metrics)
    if not collected.graded:
        groups = _graded(source, groups, clock)
    baselines = None
    if collected.greedy is not None:
        graded = _graded(source, collected.greedy, clock)
        baselines = [group.rollouts[0].reward or 0.0 for group in graded]
    if objective.num_off != 0:
        metrics |= mix_metrics(groups, is_right=answer_right)
        if source.config.off_policy.wrong_traces == "drop":
            groups, dropped = without_wrong_demonstrations(groups, is_right=answer_right)
            metrics["off_policy/teacher_dropped"] = float(dropped)
    elif objective.replay:
        metrics |= _remembered(source, groups, collected.plan.step)
    elif objective.dynamic_sampling == "replace":
        order = _refill_order(
            groups,
            _compared_apart(source, objective),
            seed=derive_seed(source.config.seed, "refill", collected.plan.step),
        )
        metrics["refilled_groups"] = float(sum(at != place for place, at in enumerate(order)))
        groups = [groups[at] for at in order]
        baselines = None if baselines is None else [baselines[at] for at in order]
    return Drawn(groups=groups, cursor=collected.cursor, baselines=baselines, metrics=metrics)


def is_informative(group: RolloutGroup, components: Collection[str] = ()) -> bool:
    """True where the group's rewards differ, so that its advantages are not all 0.

    `components` are parts of the reward of which one that differs is enough (gdpo).
    """
    usable = [rollout for rollout in group.rollouts if rollout.reward is not None]
    columns = [[rollout.reward for rollout in usable]]
    columns += [[rollout.components.get(name, 0.0) for rollout in usable] for name in components]
    return any(len(set(column)) > 1 for column in columns)


def _compared_apart(source: Source, objective: ResolvedObjective) -> Collection[str]:
    """Components of the reward that the advantage compares one by one."""
    return source.reward.weights if objective.advantage == "gdpo" else ()


def _groups(
    source: Source, asked: GroupRequests, step: int, answers: Sequence[Sequence[Sample]]
) -> list[RolloutGroup]:
    """The answers as groups, checked to come from weights that are fresh enough."""
    return groups_of(
        asked,
        answers,
        decode=None if source.guidance is None else source.guidance.decode,
        expected_version=step,
        max_staleness=source.max_staleness,
    )


def _graded(source: Source, groups: list[RolloutGroup], clock: Stopwatch) -> list[RolloutGroup]:
    groups = grade_groups(groups, source.reward)
    check_grader(groups)
    clock.lap("reward")
    return groups


# ------------------------------------------------------------------------- dynamic sampling (DAPO)


def _filtered(
    source: Source, objective: ResolvedObjective, first: Collected, clock: Stopwatch
) -> Collected:
    """Batches are drawn until enough groups have rewards that differ; whole groups are kept."""
    groups, cursor, step = first.groups, first.cursor, first.plan.step
    wanted, number, num_drawn = len(groups), 0, 0
    kept: list[RolloutGroup] = []
    rewards: list[float] = []
    apart = _compared_apart(source, objective)
    while True:
        groups = _graded(source, groups, clock)
        kept += [group for group in groups if is_informative(group, apart)]
        rewards += [r.reward for group in groups for r in group.rollouts if r.reward is not None]
        num_drawn += len(groups)
        number += 1
        short = any(source.ranks.all_objects(len(kept) < wanted))
        if not short or number == objective.max_gen_batches:
            break
        prompts, cursor = source.sampler.next_batch(cursor)
        asked = own_samples(source, prompts, step, number=number)
        answers = source.engine.generate(asked.requests, source.sampling)
        groups = _groups(source, asked, step, answers)
        clock.lap("rollout")
    if short and objective.when_short == "error":
        raise TrainingError(
            f"step {step + 1}: only {len(kept)} of {num_drawn} groups had rewards that "
            f"differ, in {number} rollout batches; {wanted} are needed",
            hint="raise objective.max_gen_batches, set objective.when_short=proceed, or take "
            "problems of another difficulty",
        )
    metrics = {
        "gen_batches": float(number),
        "filtered_groups": float(num_drawn - len(kept)),
        "surplus_groups": float(max(len(kept) - wanted, 0)),
    }
    if rewards:
        metrics["unfiltered_reward"] = sum(rewards) / len(rewards)
    return replace(first, groups=kept[:wanted], cursor=cursor, graded=True, metrics=metrics)


def _refill_order(
    groups: Sequence[RolloutGroup], apart: Collection[str], *, seed: int
) -> list[int]:
    """For each place the group that stands there: informative ones take those of the others.

    In a seeded order, round and round; without an informative group all stay.
    """
    teaches = [is_informative(group, apart) for group in groups]
    informative = [number for number, useful in enumerate(teaches) if useful]
    if not informative:
        return list(range(len(groups)))
    informative.sort(key=lambda number: derive_seed(seed, number))
    taken = itertools.cycle(informative)
    return [place if useful else next(taken) for place, useful in enumerate(teaches)]


def _remembered(source: Source, groups: Sequence[RolloutGroup], step: int) -> dict[str, float]:
    """Right rollouts go into the buffer; what is there then."""
    assert source.replay is not None, "planned with it"
    buffer = source.replay.buffer
    buffer.add(groups, step=step, is_right=answer_right)
    replayed = sum(any(r.source == "replay" for r in group.rollouts) for group in groups)
    return {**buffer.metrics(step), "replay/share": replayed / len(groups)}


# ------------------------------------------------------------------------------- baselines (ReMax)


def _greedy_answers(
    source: Source, groups: Sequence[RolloutGroup], step: int
) -> list[RolloutGroup]:
    """One greedy answer to the prompt of each group (ReMax, 2310.10505)."""
    greedy = replace(source.sampling, temperature=0.0, top_p=1.0, top_k=-1, min_p=0.0)
    return collect_groups(
        source.engine,
        [group.prompt for group in groups],
        greedy,
        num_samples=1,
        seed=rollout_seed(source, step),
        expected_version=step,
        max_staleness=source.max_staleness,
    )
