"""The batch that is sampled while the one before it trains: on its way, arrived, kept, taken up."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from workings.config.objective_settings import ResolvedObjective
from workings.data.sampler import rank_share
from workings.rollout.engine import Pending
from workings.rollout.stored_groups import groups_from_state, groups_to_state
from workings.training.draw import Collected, collect_batch
from workings.training.metrics import Stopwatch
from workings.training.sampling_plan import SamplingPlan, plan_sampling
from workings.training.source import Source
from workings.training.state import TrainerState
from workings.types import RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A batch that the engine was asked for and that was not waited for."""

    plan: SamplingPlan
    pending: Pending


Ahead = Asked | Collected
"""The batch of the next step: on its way, or arrived."""


def ask_ahead(source: Source, objective: ResolvedObjective, state: TrainerState) -> Asked:
    """The batch of the step after `state`, asked of the engine with the weights that it has now."""
    plan = plan_sampling(source, objective, state)
    return Asked(plan=plan, pending=source.engine.submit(plan.asked.requests, source.sampling))


def arrived(
    source: Source, objective: ResolvedObjective, ahead: Ahead, clock: Stopwatch
) -> Collected:
    """The batch with everything that the engine has to do for it; waits where that is not done.

    What else a batch needs (a filter that goes on drawing, greedy answers) is sampled here, with
    the same weights. Afterwards the engine is free for others.
    """
    if isinstance(ahead, Collected):
        return ahead
    answers = source.engine.collect(ahead.pending)
    return collect_batch(source, objective, ahead.plan, answers=answers, clock=clock)


def ahead_to_state(source: Source, collected: Collected) -> dict[str, Any]:
    """A batch that has arrived, as tensors and plain values: its weights are gone after a resume.

    The parts of all ranks, so that whichever of them writes a checkpoint has the whole batch.
    """
    greedy = collected.greedy
    part = {
        "groups": groups_to_state(collected.groups),
        "greedy": None if greedy is None else groups_to_state(greedy),
        "metrics": dict(collected.metrics),
    }
    return {
        "asked": _fingerprint(source, collected.plan),
        "cursor": collected.cursor,
        "graded": collected.graded,
        "parts": source.ranks.all_objects(part),
    }


def take_up(
    source: Source,
    objective: ResolvedObjective,
    state: TrainerState,
    *,
    stored: Mapping[str, Any] | None,
    warn: Callable[[str], None],
) -> Collected | None:
    """This rank's part of the batch that a checkpoint keeps for the step after `state`.

    None where it keeps none (it ended a run, or one that does not sample ahead), or one that other
    settings asked for, which would be trained as what it is not; `warn` is told which.
    """
    if stored is None:
        warn("the checkpoint keeps no batch that was sampled ahead; its weights sample the next")
        return None
    plan = plan_sampling(source, objective, state)
    if stored["asked"] != _fingerprint(source, plan):
        warn(
            "the batch that was sampled ahead has other prompts, sampling or rewards than the "
            "settings say now; the weights of the checkpoint sample it again"
        )
        return None
    prompts = {prompt.problem.id: prompt for prompt in source.sampler.prompts}

    def own(name: str) -> list[RolloutGroup]:
        parts = [groups_from_state(part[name], prompts) for part in stored["parts"]]
        if len(parts) == source.ranks.size:
            return parts[source.ranks.rank]
        return rank_share([*chain(*parts)], rank=source.ranks.rank, num_ranks=source.ranks.size)

    first = stored["parts"][0]
    return Collected(
        plan=plan,
        cursor=stored["cursor"],
        groups=own("groups"),
        graded=stored["graded"],
        greedy=None if first["greedy"] is None else own("greedy"),
        metrics=stored["parts"][source.ranks.rank % len(stored["parts"])]["metrics"],
    )


def _fingerprint(source: Source, plan: SamplingPlan) -> str:
    """Of everything that decides what the batch of all ranks holds, the weights aside."""
    requests = [*chain(*source.ranks.all_objects(plan.asked.requests))]
    asked = (plan.step, requests, source.sampling, dict(source.reward.settings))
    return hashlib.sha256(repr(asked).encode()).hexdigest()
