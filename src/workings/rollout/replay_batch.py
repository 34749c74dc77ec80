"""Batches of which a part is replayed. Source: ExGRPO (arXiv 2510.02245).

plan = plan_batch(buffer, prompts_per_step=..., experience_ratio=0.5, seed=..., step=...)
prompts = [*fresh prompts (plan.num_fresh of them), *prompts of plan.replayed]
chosen = choose_replays(buffer, prompts of plan.replayed, score=..., ...)
groups = collect_groups(..., num_samples=plan.samples_wanted(num_generations))
groups = mix_replay(groups, [*[None] * plan.num_fresh, *chosen], ...)
after grading: buffer.add(groups, step=..., is_right=...)
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from workings.errors import ConfigError, EngineError, TrainingError
from workings.rollout.mix import with_rows
from workings.rollout.replay import ReplayBuffer
from workings.rollout.stored import StoredRollout
from workings.seeds import derive_seed
from workings.types import Prompt, Rollout, RolloutGroup

Selection = Literal["lowest", "highest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A stored rollout and its prompt, to be scored under the current policy."""

    prompt: Prompt
    rollout: StoredRollout


Score = Callable[[Sequence[Candidate]], Sequence[float]]
"""Candidates to one number each: mean entropy over the response, or its perplexity."""


def solve_rate(groups: Sequence[RolloutGroup], *, is_right: Callable[[Rollout], bool]) -> float:
    """The share of right rows among all rows of a batch; 0 for no rows."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    return sum(map(is_right, rollouts)) / max(len(rollouts), 1)


def replay_started(batch_solve_rate: float, *, threshold: float, started: bool) -> bool:
    """True from the step after the first batch whose solve rate exceeds the threshold, for good.

    >>> replay_started(0.35, threshold=0.35, started=False)
    False
    >>> replay_started(0.1, threshold=0.35, started=True)
    True
    """
    return started or batch_solve_rate > threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What a batch is made of: so many fresh prompts, then these questions of the buffer."""

    num_fresh: int
    replayed: tuple[str, ...] = ()

    def samples_wanted(self, num_generations: int) -> list[int]:
        """Completions to sample for each prompt, the replayed ones one less."""
        return [num_generations] * self.num_fresh + [num_generations - 1] * len(self.replayed)


def plan_batch(
    buffer: ReplayBuffer,
    *,
    prompts_per_step: int,
    experience_ratio: float,
    seed: int,
    step: int,
    started: bool = True,
    among: Collection[str] | None = None,
) -> BatchPlan:
    """The step's share of replayed questions: `experience_ratio` of the batch, rounded down.

    Where the buffer has fewer, fresh prompts take their places; before the start all are fresh.
    `among` are the problems whose prompts the run has.
    """
    if not 0.0 <= experience_ratio <= 1.0:
        raise ConfigError(f"experience_ratio={experience_ratio}; expected 0 to 1")
    wanted = int(prompts_per_step * experience_ratio) if started else 0
    replayed = buffer.draw(wanted, seed=seed, step=step, among=among)
    return BatchPlan(num_fresh=prompts_per_step - len(replayed), replayed=tuple(replayed))


def choose_replays(
    buffer: ReplayBuffer,
    prompts: Sequence[Prompt],
    *,
    score: Score | None,
    seed: int,
    step: int,
    select: Selection = "lowest",
) -> list[StoredRollout]:
    """One stored rollout for each replayed prompt: the one with the lowest score, or a random one.

    Args:
        score: scores all candidates of the batch at once under the current policy; None draws.
        select: "highest" takes the highest instead. Of equal scores the oldest is taken.

    TrainingError where a prompt has nothing stored, or the scores are not one finite number each.
    """
    found = [(prompt, buffer.candidates(prompt.problem.id)) for prompt in prompts]
    for prompt, candidates in found:
        if not candidates:
            raise TrainingError(f"problem {prompt.problem.id!r} has no rollout to replay")
    if score is None:
        return [_drawn(candidates, prompt, seed, step) for prompt, candidates in found]
    flat = [Candidate(prompt=prompt, rollout=kept) for prompt, rows in found for kept in rows]
    scores = list(score(flat)) if flat else []
    if len(scores) != len(flat) or not all(map(math.isfinite, scores)):
        raise TrainingError(
            f"{len(flat)} candidates for replay got {len(scores)} scores, "
            f"{sum(map(math.isfinite, scores))} of them finite; expected one finite number each"
        )
    sign = 1.0 if select == "lowest" else -1.0
    chosen = []
    start = 0
    for _, candidates in found:
        own = [sign * value for value in scores[start : start + len(candidates)]]
        chosen.append(candidates[own.index(min(own))])
        start += len(candidates)
    return chosen


def mix_replay(
    groups: Sequence[RolloutGroup],
    chosen: Sequence[StoredRollout | None],
    *,
    num_generations: int,
) -> list[RolloutGroup]:
    """The groups with their replayed row appended; None leaves a group of fresh rows as it is.

    EngineError where a group does not come to `num_generations` rows.
    """
    if len(groups) != len(chosen):
        raise EngineError(f"{len(chosen)} choices of a replay for {len(groups)} groups")
    return [
        with_rows(group, () if kept is None else (replay_rollout(kept),), num_generations)
        for group, kept in zip(groups, chosen, strict=True)
    ]


def replay_rollout(kept: StoredRollout) -> Rollout:
    """A stored rollout as a row of a group: off-policy, with its log-probabilities of then."""
    length = kept.num_tokens
    return Rollout(
        ids=kept.ids,
        sampling_logprobs=[math.nan] * length,
        kept_mass=[1.0] * length,
        mask=[True] * length,
        off_policy=[True] * length,
        text=kept.text,
        finish_reason=kept.finish_reason,
        weight_version=kept.weight_version,
        source="replay",
        recorded_logprobs=kept.logprobs,
    )


def _drawn(
    candidates: Sequence[StoredRollout], prompt: Prompt, seed: int, step: int
) -> StoredRollout:
    draws = random.Random(derive_seed(seed, "replayed", step, prompt.problem.id))
    return candidates[int(draws.random() * len(candidates))]
