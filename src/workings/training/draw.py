"""Hops 1 to 3: prompts, samples, rewards. A batch of graded groups, however it was put together.

- plainly: every group is sampled by the policy
- guided: a teacher's traces stand in the groups, whole or as beginnings (LUFFY)
- replayed: some groups hold a past success of the policy itself (ExGRPO)
- filtered or refilled: groups of equal rewards are drawn again or replaced (DAPO)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from workings.config.grpo import GRPOConfig
from workings.config.objective_settings import ResolvedObjective
from workings.data.sampler import PromptSampler
from workings.data.traces import EncodedTrace
from workings.errors import ConfigError, TrainingError
from workings.rewards.four_classes import answer_right
from workings.rewards.reward import Reward, grade_groups
from workings.rewards.reward_metrics import check_grader
from workings.rollout.collect import collect_groups
from workings.rollout.engine import Engine, SamplingParams
from workings.rollout.mix import (
    append_whole,
    kept_traces,
    mix_demonstrations,
    mix_metrics,
    samples_wanted,
    without_wrong_demonstrations,
)
from workings.rollout.prefixes import PrefixSchedule, plan_prefixes
from workings.rollout.replay import ReplayBuffer
from workings.rollout.replay_batch import Score, choose_replays, mix_replay, plan_batch
from workings.seeds import derive_seed
from workings.training.distributed import Ranks
from workings.training.metrics import Stopwatch
from workings.training.state import TrainerState
from workings.types import Prompt, Rollout, RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """A teacher's traces by problem id, and how to read their ids back (for partial traces)."""

    traces: Mapping[str, Sequence[EncodedTrace]]
    decode: Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The policy's past successes, the prompts of the run by problem id, and how to rank them."""

    buffer: ReplayBuffer
    prompts: Mapping[str, Prompt]
    score: Score | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A rollout batch: graded groups, the cursor behind their prompts, what to report.

    `baselines` holds the reward of the greedy answer to every prompt, where it was asked for.
    """

    groups: list[RolloutGroup]
    cursor: int
    baselines: list[float] | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a batch is drawn from; the same for the whole run."""

    config: GRPOConfig
    engine: Engine
    sampler: PromptSampler
    sampling: SamplingParams
    reward: Reward
    guidance: Guidance | None = None
    replay: Replay | None = None
    ranks: Ranks = field(default_factory=Ranks)


def draw_batch(
    source: Source, objective: ResolvedObjective, state: TrainerState, clock: Stopwatch
) -> Drawn:
    """The graded groups of a step, as the objective wants them."""
    if objective.num_off != 0:
        drawn = _guided(source, objective, state, clock)
    elif objective.replay:
        drawn = _replayed(source, state, clock)
    elif objective.dynamic_sampling == "filter":
        drawn = _filtered(source, objective, state, clock)
    else:
        prompts, cursor = source.sampler.next_batch(state.cursor)
        drawn = Drawn(groups=_sampled(source, prompts, state, clock), cursor=cursor)
        if objective.dynamic_sampling == "replace":
            drawn = _refilled(
                drawn,
                _compared_apart(source, objective),
                seed=derive_seed(source.config.seed, "refill", state.step),
            )
    if objective.advantage == "remax":
        drawn = replace(drawn, baselines=_greedy_rewards(source, drawn.groups, state, clock))
    return drawn


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


def _sampled(
    source: Source,
    prompts: Sequence[Prompt],
    state: TrainerState,
    clock: Stopwatch,
    *,
    number: int = 0,
) -> list[RolloutGroup]:
    """Graded groups of the policy's own samples; `number` counts the batches of a step."""
    groups = collect_groups(
        source.engine,
        prompts,
        source.sampling,
        num_samples=source.config.num_generations,
        seed=_seed(source, state, number),
        expected_version=state.step,
    )
    clock.lap("rollout")
    return _graded(source, groups, clock)


def _graded(source: Source, groups: list[RolloutGroup], clock: Stopwatch) -> list[RolloutGroup]:
    groups = grade_groups(groups, source.reward)
    check_grader(groups)
    clock.lap("reward")
    return groups


def _seed(source: Source, state: TrainerState, number: int = 0) -> int:
    parts = (number,) if number else ()
    return derive_seed(source.config.seed, "rollout", state.step, *parts)


# ------------------------------------------------------------------------- dynamic sampling (DAPO)


def _filtered(
    source: Source, objective: ResolvedObjective, state: TrainerState, clock: Stopwatch
) -> Drawn:
    """Batches are drawn until enough groups have rewards that differ; whole groups are kept."""
    cursor, number, num_drawn = state.cursor, 0, 0
    kept: list[RolloutGroup] = []
    rewards: list[float] = []
    apart = _compared_apart(source, objective)
    wanted = -1
    while number < objective.max_gen_batches:
        prompts, cursor = source.sampler.next_batch(cursor)
        wanted = len(prompts) if wanted < 0 else wanted
        groups = _sampled(source, prompts, state, clock, number=number)
        kept += [group for group in groups if is_informative(group, apart)]
        rewards += [r.reward for group in groups for r in group.rollouts if r.reward is not None]
        num_drawn += len(groups)
        number += 1
        if not any(source.ranks.all_objects(len(kept) < wanted)):
            break
    if any(source.ranks.all_objects(len(kept) < wanted)) and objective.when_short == "error":
        raise TrainingError(
            f"step {state.step + 1}: only {len(kept)} of {num_drawn} groups had rewards that "
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
    return Drawn(groups=kept[:wanted], cursor=cursor, metrics=metrics)


def _refilled(drawn: Drawn, apart: Collection[str], *, seed: int) -> Drawn:
    """Groups of equal rewards are replaced by copies of informative ones, in a seeded order."""
    teaches = [is_informative(group, apart) for group in drawn.groups]
    informative = [number for number, useful in enumerate(teaches) if useful]
    if not informative:
        return replace(drawn, metrics={"refilled_groups": 0.0})
    informative.sort(key=lambda number: derive_seed(seed, number))
    groups, num_refilled = [], 0
    for group, useful in zip(drawn.groups, teaches, strict=True):
        if not useful:
            group = drawn.groups[informative[num_refilled % len(informative)]]
            num_refilled += 1
        groups.append(group)
    return replace(drawn, groups=groups, metrics={"refilled_groups": float(num_refilled)})


# ------------------------------------------------------------------------ teacher traces (LUFFY)


def prefix_schedule(config: GRPOConfig) -> PrefixSchedule:
    """How much of a trace guides a row, by the run's settings."""
    settings = config.off_policy
    return PrefixSchedule(
        name=settings.prefix_schedule,  # type: ignore[arg-type]  # refuses what it does not know
        min_ratio=settings.prefix_min_ratio,
        max_ratio=settings.prefix_max_ratio,
        steps=settings.prefix_steps,
        linear_max_ratio=settings.prefix_linear_max_ratio,
        share_across_samples=settings.prefix_share_across_samples,
    )


def _guided(
    source: Source, objective: ResolvedObjective, state: TrainerState, clock: Stopwatch
) -> Drawn:
    if source.guidance is None:
        raise ConfigError("the objective has teacher rows; give train_grpo its guidance")
    config, guidance = source.config, source.guidance
    settings, seed = config.off_policy, derive_seed(config.seed, "traces")
    prompts, cursor = source.sampler.next_batch(state.cursor)
    traces = kept_traces(
        prompts, guidance.traces, keep_prob=settings.keep_prob, seed=seed, step=state.step
    )
    if settings.whole_traces:
        groups = collect_groups(
            source.engine,
            prompts,
            source.sampling,
            num_samples=samples_wanted(prompts, traces, config.num_generations, objective.num_off),
            seed=_seed(source, state),
            expected_version=state.step,
        )
        groups = mix_demonstrations(
            groups,
            traces,
            num_off=objective.num_off,
            num_generations=config.num_generations,
            seed=seed,
            step=state.step,
            choice=settings.choice,
        )
    else:
        plans = plan_prefixes(
            prompts,
            traces,
            prefix_schedule(config),
            num_generations=config.num_generations,
            num_off=objective.num_off,
            seed=seed,
            step=state.step,
            choice=settings.choice,
        )
        groups = collect_groups(
            source.engine,
            prompts,
            source.sampling,
            num_samples=[plan.num_samples for plan in plans],
            prefixes=[plan.prefixes for plan in plans],
            decode=guidance.decode,
            seed=_seed(source, state),
            expected_version=state.step,
        )
        groups = append_whole(groups, plans, num_generations=config.num_generations)
    clock.lap("rollout")
    groups = _graded(source, groups, clock)
    metrics = mix_metrics(groups, is_right=answer_right)
    if settings.wrong_traces == "drop":
        groups, dropped = without_wrong_demonstrations(groups, is_right=answer_right)
        metrics["off_policy/teacher_dropped"] = float(dropped)
    return Drawn(groups=groups, cursor=cursor, metrics=metrics)


# -------------------------------------------------------------------------------- replay (ExGRPO)


def _replayed(source: Source, state: TrainerState, clock: Stopwatch) -> Drawn:
    if source.replay is None:
        raise ConfigError("the objective replays; give train_grpo its replay")
    if source.ranks.size > 1:
        raise ConfigError("objective.replay runs on one process: the buffer is not shared yet")
    config, replay = source.config, source.replay
    seed = derive_seed(config.seed, "replay")
    replay.buffer.evict(state.step)
    plan = plan_batch(
        replay.buffer,
        prompts_per_step=config.prompts_per_step,
        experience_ratio=config.replay.experience_ratio,
        seed=seed,
        step=state.step,
        started=state.replay_started,
        among=replay.prompts.keys(),
    )
    fresh, cursor = source.sampler.next_batch(
        state.cursor, num_prompts=plan.num_fresh, retired=replay.buffer.retired
    )
    again = [replay.prompts[problem_id] for problem_id in plan.replayed]
    chosen = choose_replays(replay.buffer, again, score=replay.score, seed=seed, step=state.step)
    groups = collect_groups(
        source.engine,
        [*fresh, *again],
        source.sampling,
        num_samples=plan.samples_wanted(config.num_generations),
        seed=_seed(source, state),
        expected_version=state.step,
    )
    groups = mix_replay(
        groups, [*[None] * plan.num_fresh, *chosen], num_generations=config.num_generations
    )
    clock.lap("rollout")
    groups = _graded(source, groups, clock)
    replay.buffer.add(groups, step=state.step, is_right=answer_right)
    return Drawn(
        groups=groups,
        cursor=cursor,
        metrics={
            **replay.buffer.metrics(state.step),
            "replay/share": len(again) / len(groups),
        },
    )


# ------------------------------------------------------------------------------- baselines (ReMax)


def _greedy_rewards(
    source: Source, groups: Sequence[RolloutGroup], state: TrainerState, clock: Stopwatch
) -> list[float]:
    """The reward of one greedy answer to each prompt (ReMax, 2310.10505)."""
    greedy = replace(source.sampling, temperature=0.0, top_p=1.0, top_k=-1, min_p=0.0)
    answers = collect_groups(
        source.engine,
        [group.prompt for group in groups],
        greedy,
        num_samples=1,
        seed=_seed(source, state),
        expected_version=state.step,
    )
    clock.lap("rollout")
    graded: list[Rollout] = [group.rollouts[0] for group in _graded(source, answers, clock)]
    return [rollout.reward or 0.0 for rollout in graded]
