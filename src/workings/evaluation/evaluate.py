"""Evaluation: hops 1 to 3 of a training step, and what they say with intervals.

Responses are stored before they are graded, so that `regrade` needs no model.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from workings.errors import DataError
from workings.evaluation.metrics import Equality, same_text
from workings.evaluation.result import EvaluationResult, summarise
from workings.rewards.reward import Reward, grade_groups
from workings.rollout.collect import collect_groups
from workings.rollout.engine import Engine, SamplingParams
from workings.tracking.rollouts import read_groups, write_groups
from workings.types import Prompt

RESPONSES_FILE = "responses.parquet"


def evaluate(
    engine: Engine,
    prompts: Sequence[Prompt],
    reward: Reward,
    sampling: SamplingParams,
    *,
    num_samples: int,
    seed: int,
    dataset: str,
    folder: Path | None = None,
    equal: Equality | None = None,
) -> EvaluationResult:
    """The result of `num_samples` samples for each prompt, graded by `reward`.

    With a `folder` the responses are in `folder/DATASET/responses.parquet` before grading begins.
    `equal` decides which answers vote together in maj@n; by default the reward's own grader does.
    """
    if not prompts:
        raise DataError(f"no prompt to evaluate on in {dataset!r}", hint="were all rows dropped?")
    start = time.perf_counter()
    groups = collect_groups(engine, prompts, sampling, num_samples=num_samples, seed=seed)
    if folder is not None:
        write_groups(folder / dataset / RESPONSES_FILE, groups)
    graded = grade_groups(groups, reward)
    seconds = time.perf_counter() - start
    return summarise(
        graded,
        dataset=dataset,
        seed=seed,
        equal=equal or reward_equality(reward),
        seconds=seconds,
    )


def regrade(
    folder: Path, reward: Reward, *, dataset: str, seed: int, equal: Equality | None = None
) -> EvaluationResult:
    """The result of stored responses under `reward`; nothing is sampled."""
    start = time.perf_counter()
    graded = grade_groups(read_groups(folder / dataset / RESPONSES_FILE), reward)
    seconds = time.perf_counter() - start
    return summarise(
        graded,
        dataset=dataset,
        seed=seed,
        equal=equal or reward_equality(reward),
        seconds=seconds,
    )


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
