"""Hop 1: which prompts a step has, and what the engine is asked for.

Plainly every group is sampled by the policy; a teacher's traces take places in the groups, whole or
as beginnings (LUFFY); or a past success of the policy itself takes one (ExGRPO).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from workings.config.grpo import GRPOConfig
from workings.config.objective_settings import ResolvedObjective
from workings.errors import ConfigError
from workings.rollout.collect import GroupRequests, group_requests
from workings.rollout.mix import append_whole, kept_traces, mix_demonstrations, samples_wanted
from workings.rollout.prefixes import PrefixSchedule, plan_prefixes
from workings.rollout.replay_batch import choose_replays, mix_replay, plan_batch
from workings.seeds import derive_seed
from workings.training.source import Source
from workings.training.state import TrainerState
from workings.types import Prompt, RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """What a step samples, and how its groups are completed with what it does not sample.

    A function of the seed, the state and (where it replays) the buffer, so it can be made again.

    Attributes:
        step: steps finished before the one that it is for.
        cursor: behind its prompts.
        complete: adds a teacher's traces or replayed rollouts to the sampled groups.
    """

    step: int
    cursor: int
    asked: GroupRequests
    complete: Callable[[list[RolloutGroup]], list[RolloutGroup]] | None = None


def plan_sampling(
    source: Source, objective: ResolvedObjective, state: TrainerState
) -> SamplingPlan:
    """Which prompts the step after `state` has, and what is sampled for them."""
    if objective.num_off != 0:
        return _guided(source, objective, state)
    if objective.replay:
        return _replayed(source, state)
    prompts, cursor = source.sampler.next_batch(state.cursor)
    return SamplingPlan(
        step=state.step, cursor=cursor, asked=own_samples(source, prompts, state.step)
    )


def own_samples(
    source: Source, prompts: Sequence[Prompt], step: int, *, number: int = 0
) -> GroupRequests:
    """The policy's own samples for prompts; `number` counts the batches of a step."""
    return group_requests(
        prompts,
        source.sampling,
        num_samples=source.config.num_generations,
        seed=rollout_seed(source, step, number),
    )


def rollout_seed(source: Source, step: int, number: int = 0) -> int:
    """The seed of the `number`-th batch sampled for a step."""
    parts = (number,) if number else ()
    return derive_seed(source.config.seed, "rollout", step, *parts)


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


def _guided(source: Source, objective: ResolvedObjective, state: TrainerState) -> SamplingPlan:
    if source.guidance is None:
        raise ConfigError("the objective has teacher rows; give the loop its guidance")
    config = source.config
    settings, seed = config.off_policy, derive_seed(config.seed, "traces")
    prompts, cursor = source.sampler.next_batch(state.cursor)
    traces = kept_traces(
        prompts, source.guidance.traces, keep_prob=settings.keep_prob, seed=seed, step=state.step
    )
    if settings.whole_traces:
        wanted = samples_wanted(prompts, traces, config.num_generations, objective.num_off)
        asked = group_requests(
            prompts, source.sampling, num_samples=wanted, seed=rollout_seed(source, state.step)
        )
        complete = partial(
            mix_demonstrations,
            traces=traces,
            num_off=objective.num_off,
            num_generations=config.num_generations,
            seed=seed,
            step=state.step,
            choice=settings.choice,
        )
        return SamplingPlan(step=state.step, cursor=cursor, asked=asked, complete=complete)
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
    asked = group_requests(
        prompts,
        source.sampling,
        num_samples=[plan.num_samples for plan in plans],
        prefixes=[plan.prefixes for plan in plans],
        seed=rollout_seed(source, state.step),
    )
    complete = partial(append_whole, plans=plans, num_generations=config.num_generations)
    return SamplingPlan(step=state.step, cursor=cursor, asked=asked, complete=complete)


# -------------------------------------------------------------------------------- replay (ExGRPO)


def _replayed(source: Source, state: TrainerState) -> SamplingPlan:
    if source.replay is None:
        raise ConfigError("the objective replays; give the loop its replay")
    if source.ranks.size > 1:
        raise ConfigError("objective.replay runs on one process: the buffer is not shared yet")
    config, replay = source.config, source.replay
    seed = derive_seed(config.seed, "replay")
    replay.buffer.evict(state.step)
    shares = plan_batch(
        replay.buffer,
        prompts_per_step=config.prompts_per_step,
        experience_ratio=config.replay.experience_ratio,
        seed=seed,
        step=state.step,
        started=state.replay_started,
        among=replay.prompts.keys(),
    )
    fresh, cursor = source.sampler.next_batch(
        state.cursor, num_prompts=shares.num_fresh, retired=replay.buffer.retired
    )
    again = [replay.prompts[problem_id] for problem_id in shares.replayed]
    chosen = choose_replays(replay.buffer, again, score=replay.score, seed=seed, step=state.step)
    asked = group_requests(
        [*fresh, *again],
        source.sampling,
        num_samples=shares.samples_wanted(config.num_generations),
        seed=rollout_seed(source, state.step),
    )
    complete = partial(
        mix_replay,
        chosen=[*[None] * shares.num_fresh, *chosen],
        num_generations=config.num_generations,
    )
    return SamplingPlan(step=state.step, cursor=cursor, asked=asked, complete=complete)
