"""The metrics of graded groups, by the names that evaluation rows carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from workings.errors import DataError
from workings.evaluation.metrics import Equality, Estimate, IntervalMethod, sample_estimates
from workings.rewards.four_classes import CATEGORIES, answer_right, category, format_right
from workings.types import Rollout, RolloutGroup, Verdict

GRADER_VERDICTS = (
    Verdict.NO_ANSWER,
    Verdict.UNDECIDED,
    Verdict.REFUSED,
    Verdict.TIMEOUT,
    Verdict.INTERNAL_ERROR,
)
"""Verdicts that are neither right nor wrong and are reported as a share each."""


def usable_groups(groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
    """The groups whose gold answer could be used: every sample has a reward.

    Raises DataError where a group was not graded at all, or none is usable.
    """
    usable = []
    for group in groups:
        missing = sum(rollout.reward is None for rollout in group.rollouts)
        if missing not in (0, len(group.rollouts)):
            raise DataError(
                f"{missing} of {len(group.rollouts)} samples of {group.problem.id!r} have no "
                "reward, so the problem has no share of right samples",
                hint="a reward function skipped them: return 0 where an answer is wrong",
            )
        if not missing and group.rollouts:
            usable.append(group)
    if not usable:
        raise DataError(
            f"none of {len(groups)} problems has a reward, so there is nothing to report",
            hint="grade the groups first; if they were, no gold answer is usable",
        )
    return usable


def is_right(rollout: Rollout) -> bool:
    """True where the sample counts as right: format and answer both are."""
    return format_right(rollout) and answer_right(rollout)


def correctness(
    groups: Sequence[RolloutGroup], *, by: Callable[[Rollout], bool] = is_right
) -> list[list[bool]]:
    """[problems][samples]: whether each is right, by format and answer (class 11) if not told."""
    return [[by(rollout) for rollout in group.rollouts] for group in groups]


def group_estimates(
    groups: Sequence[RolloutGroup],
    *,
    equal: Equality,
    seed: int = 0,
    method: IntervalMethod = "score",
    lenient: bool = False,
) -> dict[str, Estimate]:
    """pass@1, or avg@n, pass@k and maj@n of usable groups, each with its interval.

    `lenient` counts right answers whatever their format.
    """
    answers = [[_voted(rollout) for rollout in group.rollouts] for group in groups]
    graded = any(rollout.grade is not None for group in groups for rollout in group.rollouts)
    right = correctness(groups, by=answer_right if lenient else is_right)
    return sample_estimates(
        right, answers=answers if graded else None, equal=equal, seed=seed, method=method
    )


def sample_metrics(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """Means and shares over all samples of usable groups, lengths in tokens.

    The mean length of right (wrong) samples is left out where there is none.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    right = [is_right(rollout) for rollout in rollouts]
    metrics = {
        "reward": _mean(rollout.reward or 0.0 for rollout in rollouts),
        "format_reward": _mean(format_reward(rollout) for rollout in rollouts),
        "answer_reward": _mean(answer_reward(rollout) for rollout in rollouts),
        "format_accuracy": _mean(format_right(rollout) for rollout in rollouts),
        "answer_accuracy": _mean(answer_right(rollout) for rollout in rollouts),
        "truncation_rate": _mean(rollout.finish_reason == "length" for rollout in rollouts),
        "num_problems": float(len(groups)),
        "num_samples": float(len(rollouts)),
    }
    metrics |= _lengths(rollouts, right)
    classes = Counter(category(rollout) for rollout in rollouts)
    metrics |= {name: classes[name] / len(rollouts) for name in CATEGORIES}
    if any(rollout.grade is not None for rollout in rollouts):
        verdicts = Counter(rollout.grade.verdict for rollout in rollouts if rollout.grade)
        metrics |= {
            f"{verdict.value}_rate": verdicts[verdict] / len(rollouts)
            for verdict in GRADER_VERDICTS
        }
    return metrics


def format_reward(rollout: Rollout) -> float:
    """The format component; under the tag rewards, which have several, 1 where it is right."""
    return float(rollout.components.get("format", format_right(rollout)))


def answer_reward(rollout: Rollout) -> float:
    """The answer component; under the tag rewards, which have several, 1 where it is right."""
    return float(rollout.components.get("answer", answer_right(rollout)))


def _lengths(rollouts: Sequence[Rollout], right: Sequence[bool]) -> dict[str, float]:
    lengths = [len(rollout.ids) for rollout in rollouts]
    parts = {
        "total": lengths,
        "correct": [length for length, good in zip(lengths, right, strict=True) if good],
        "incorrect": [length for length, good in zip(lengths, right, strict=True) if not good],
    }
    return {f"avg_response_length/{name}": _mean(part) for name, part in parts.items() if part}


def _voted(rollout: Rollout) -> str | None:
    """What a sample votes for: the answer the grader read, if it read one."""
    if rollout.grade is None or rollout.grade.verdict is Verdict.NO_ANSWER:
        return None
    return rollout.grade.extracted


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
