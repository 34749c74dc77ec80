"""The training metrics of graded groups, by their names without the prefix "train/"."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from workings.errors import GradingError
from workings.types import Rollout, RolloutGroup, Verdict

MAX_ERROR_SHARE = 0.01

_VERDICT_COUNTS = {
    "grader/timeouts": Verdict.TIMEOUT,
    "grader/bad_gold": Verdict.BAD_GOLD,
    "grader/errors": Verdict.INTERNAL_ERROR,
    "grader/undecided": Verdict.UNDECIDED,
    "grader/refused": Verdict.REFUSED,
    "grader/no_answer": Verdict.NO_ANSWER,
}


def reward_metrics(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """Means over the rollouts that have a reward, and counts of the grader's verdicts.

    "reward_std" is the mean over groups of the standard deviation inside the group (n - 1 in the
    denominator, as in the advantages); "frac_reward_zero_std" the share of groups in which all
    rewards are equal, so that they teach nothing. "rewards/NAME/mean" and "/std" stand for every
    component. Names whose mean would run over nothing are left out.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    metrics: dict[str, float] = {}
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    if rewards:
        metrics["reward"] = statistics.fmean(rewards)
        metrics |= _group_spread(groups)
    for name, values in _by_component(rollouts).items():
        mean = statistics.fmean(values)
        metrics[f"rewards/{name}/mean"] = mean
        metrics[f"rewards/{name}/std"] = statistics.stdev(values) if len(values) > 1 else 0.0
        if name in ("format", "answer"):
            metrics[f"{name}_reward"] = mean
    counts = Counter(rollout.grade.verdict for rollout in rollouts if rollout.grade is not None)
    return metrics | {name: float(counts[verdict]) for name, verdict in _VERDICT_COUNTS.items()}


def check_grader(
    groups: Sequence[RolloutGroup], *, max_error_share: float = MAX_ERROR_SHARE
) -> None:
    """Raise GradingError where more than that share of the grades are errors of the grader."""
    grades = [
        rollout.grade for group in groups for rollout in group.rollouts if rollout.grade is not None
    ]
    num_errors = sum(grade.verdict is Verdict.INTERNAL_ERROR for grade in grades)
    if num_errors > max_error_share * len(grades):
        example = next(grade for grade in grades if grade.verdict is Verdict.INTERNAL_ERROR)
        raise GradingError(
            f"{num_errors} of {len(grades)} grades are errors of the grader (answer "
            f"{example.extracted!r:.80}); at most {max_error_share:.0%} are tolerated",
            hint="the pairs are in the log; please report one",
        )


def _group_spread(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    deviations = []
    for group in groups:
        rewards = [rollout.reward for rollout in group.rollouts if rollout.reward is not None]
        if rewards:
            deviations.append(statistics.stdev(rewards) if len(rewards) > 1 else 0.0)
    num_flat = sum(deviation == 0.0 for deviation in deviations)
    return {
        "reward_std": statistics.fmean(deviations),
        "frac_reward_zero_std": num_flat / len(deviations),
    }


def _by_component(rollouts: Sequence[Rollout]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for rollout in rollouts:
        if rollout.reward is not None:
            for name, value in rollout.components.items():
                values.setdefault(name, []).append(value)
    return values
