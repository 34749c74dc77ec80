"""Evaluation: hops 1 to 3 of a training step, and what they say with intervals.

Responses are stored part by part before any is graded: an evaluation that was killed goes on where
it stood (`resume`), and `regrade` needs no model.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workings.errors import DataError
from workings.evaluation.metrics import Equality, same_text
from workings.evaluation.responses import RESPONSES_FILE as RESPONSES_FILE
from workings.evaluation.responses import ResponseStore, make_plan
from workings.evaluation.result import EvaluationResult, summarise
from workings.evaluation.sampling import (
    PART_ROWS,
    Progress,
    asked_of,
    part_problems_of,
    sample_parts,
)
from workings.evaluation.tag_metrics import tag_metrics
from workings.rewards.reward import Reward, grade_groups
from workings.rollout.engine import Engine, SamplingParams
from workings.tracking.rollouts import read_groups
from workings.types import Prompt, RolloutGroup


def evaluate(
    engine: Engine | Sequence[Engine],
    prompts: Sequence[Prompt],
    reward: Reward,
    sampling: SamplingParams,
    *,
    num_samples: int,
    seed: int,
    dataset: str,
    folder: Path | None = None,
    equal: Equality | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    part_rows: int = PART_ROWS,
    progress: Progress | None = None,
) -> EvaluationResult:
    """The result of `num_samples` samples for each prompt, graded by `reward`.

    Args:
        engine: one, or several with the same weights, which take the parts in turn.
        folder: the responses are in `folder/DATASET/responses.parquet` before grading begins.
        equal: which answers vote together in maj@n; by default the reward's own grader decides.
        settings: what the responses depend on, stored with them.
        resume: keep what an earlier start in `folder` has sampled, instead of replacing it.
        part_rows: rows that are sampled and stored together. With greedy decoding on a machine
            whose arithmetic depends on the batch it is part of what decides a near tie.
    """
    start = time.perf_counter()
    groups = sample_responses(
        engine,
        prompts,
        sampling,
        num_samples=num_samples,
        seed=seed,
        dataset=dataset,
        folder=folder,
        settings=settings,
        resume=resume,
        part_rows=part_rows,
        progress=progress,
    )
    return _graded(groups, reward, dataset=dataset, seed=seed, equal=equal, start=start)


def sample_responses(
    engine: Engine | Sequence[Engine],
    prompts: Sequence[Prompt],
    sampling: SamplingParams,
    *,
    num_samples: int,
    seed: int,
    dataset: str,
    folder: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    part_rows: int = PART_ROWS,
    progress: Progress | None = None,
) -> list[RolloutGroup]:
    """The ungraded groups of `evaluate`; with a `folder` they are what was stored there."""
    refuse_no_prompt(prompts, dataset)
    engines = list(engine) if isinstance(engine, Sequence) else [engine]
    asked = asked_of(prompts, sampling, num_samples=num_samples, seed=seed)
    plan = make_plan(
        asked.prompts,
        asked.requests,
        settings=settings or {},
        part_problems=part_problems_of(part_rows, num_samples),
    )
    if folder is None:
        kept: dict[int, list[RolloutGroup]] = {}

        def remember(part: range, groups: list[RolloutGroup]) -> None:
            kept[part.start] = groups

        sample_parts(engines, asked, sampling, plan.parts(), keep=remember, progress=progress)
        return [group for start in sorted(kept) for group in kept[start]]
    store = ResponseStore(folder / dataset)
    plan = store.go_on(plan) if resume else store.begin(plan)
    sample_parts(engines, asked, sampling, store.missing(plan), keep=store.write, progress=progress)
    return store.gather(plan)


def refuse_no_prompt(prompts: Sequence[Prompt], dataset: str) -> None:
    """DataError where there is nothing to sample."""
    if not prompts:
        raise DataError(f"no prompt to evaluate on in {dataset!r}", hint="were all rows dropped?")


def regrade(
    folder: Path, reward: Reward, *, dataset: str, seed: int, equal: Equality | None = None
) -> EvaluationResult:
    """The result of stored responses under `reward`; nothing is sampled."""
    start = time.perf_counter()
    groups = read_groups(folder / dataset / RESPONSES_FILE)
    return _graded(groups, reward, dataset=dataset, seed=seed, equal=equal, start=start)


def reward_equality(reward: Reward) -> Equality:
    """Which answers vote together in maj@n: those that the reward's own grader calls equal.

    The tag rewards compare text, and so do their votes.
    """
    answer_reward = reward.answer
    if answer_reward is None:
        return same_text

    def equal(first: str, second: str) -> bool:
        return same_text(first, second) or answer_reward.equality([second], [first])[0].correct

    return equal


def _graded(
    groups: Sequence[RolloutGroup],
    reward: Reward,
    *,
    dataset: str,
    seed: int,
    equal: Equality | None,
    start: float,
) -> EvaluationResult:
    """The result of ungraded groups; under the tag rewards with the tag pipeline's metrics."""
    graded = grade_groups(groups, reward)
    result = summarise(
        graded,
        dataset=dataset,
        seed=seed,
        equal=equal or reward_equality(reward),
        seconds=time.perf_counter() - start,
    )
    if reward.settings.get("reward") != "tags":
        return result
    return replace(result, metrics={**result.metrics, **tag_metrics(graded)})
