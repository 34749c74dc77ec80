"""Samples of a start: the pairs that DPO learns from, and how many of them are right."""

from __future__ import annotations

import json
from collections.abc import Sequence

from learning_tasks import METHODS, Task, measuring_settings, pairs_file, resulting_model

from workings.cli.build import (
    build_grader,
    build_policy,
    build_run_reward,
    build_sampling,
    problems_at,
    training_prompting,
)
from workings.cli.engines import build_engine
from workings.errors import DataError
from workings.evaluation.sample_metrics import is_right
from workings.rewards.reward import grade_groups
from workings.rollout.collect import collect_groups
from workings.seeds import derive_seed
from workings.types import RolloutGroup

NUM_PROBLEMS, PAIRS_PER_PROBLEM = 160, 2


def sampled_groups(start: Task) -> Sequence[RolloutGroup]:
    """Graded answers of a start to training problems, sampled as the runs on rollouts sample."""
    config = measuring_settings(start)
    with build_grader(config.grader) as grader:
        policy = build_policy(resulting_model(start), seed=config.seed, trainable=False)
        prompting = training_prompting(config.data, policy.tokenizer)
        problems = problems_at(
            config.data.train, seed=config.seed, grader=grader, bad_gold="error", log=_ignore
        ).items
        most = 8 if start.smoke else NUM_PROBLEMS
        sampling = build_sampling(config.sampling, prompting.template)
        reward = build_run_reward(
            config.reward,
            grader,
            eos_token=policy.tokenizer.eos_token,
            max_tokens=sampling.max_tokens,
        )
        engine, _ = build_engine(config.engine, policy)
        groups = collect_groups(
            engine,
            prompting.prompts(problems[:most], _ignore, what="prompts"),
            sampling,
            num_samples=config.num_generations,
            seed=derive_seed(config.seed, "pairs"),
        )
        graded = grade_groups(groups, reward)
        engine.close()
    return graded


def right_samples(groups: Sequence[RolloutGroup]) -> dict[str, int]:
    """How many of the samples are right, and how many there are."""
    right = [is_right(rollout) for group in groups for rollout in group.rollouts]
    return {"num_right": sum(right), "num_samples": len(right)}


def write_pairs(task: Task) -> None:
    """Pairs of a right and a wrong answer that the start of the seed gives to training problems."""
    start = METHODS[task.method].start
    assert start is not None
    rows = preference_rows(sampled_groups(task.of(start)), most=PAIRS_PER_PROBLEM)
    if not rows:
        raise DataError(
            f"the start of seed {task.seed} answered no problem both rightly and wrongly",
            hint="a start between 10 and 50 % has plenty; see benchmarks/learning/start.yaml",
        )
    path = pairs_file(task)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    partial = path.with_suffix(".partial")
    partial.write_text(lines, encoding="utf-8")
    partial.replace(path)


def preference_rows(groups: Sequence[RolloutGroup], *, most: int) -> list[dict[str, str]]:
    """Up to so many pairs of each group, no answer twice, none that was cut off at the limit.

    A cut answer is no rejected response: it would be trained to end where it was cut.
    """
    rows = []
    for group in groups:
        whole = [rollout for rollout in group.rollouts if rollout.finish_reason != "length"]
        right = dict.fromkeys(rollout.text for rollout in whole if is_right(rollout))
        wrong = dict.fromkeys(rollout.text for rollout in whole if not is_right(rollout))
        for chosen, rejected in list(zip(right, wrong, strict=False))[:most]:
            question = group.problem.question
            rows.append({"prompt": question, "chosen": chosen, "rejected": rejected})
    return rows


def _ignore(text: str) -> None:
    """The run itself says how its data were read."""
