"""What summary.json says beside the estimates: classes, subjects, levels, shares, finishes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from workings.evaluation.headlines import average_of
from workings.evaluation.intervals import mean_interval
from workings.evaluation.metrics import Estimate
from workings.evaluation.sample_metrics import is_right
from workings.rewards.four_classes import CATEGORIES, category, format_right
from workings.types import FinishReason, Problem, Rollout, RolloutGroup, Verdict

Question = Callable[[Rollout], bool]
FINISH_REASONS: tuple[str, ...] = get_args(FinishReason)
SHARES: dict[str, Question] = {
    "format": format_right,
    "truncated": lambda rollout: rollout.finish_reason == "length",
}
"""Shares of samples that are reported beside accuracy and never inside it."""
VERDICT_SHARES = {
    "no_answer": Verdict.NO_ANSWER,
    "undecided": Verdict.UNDECIDED,
    "refused": Verdict.REFUSED,
    "timeout": Verdict.TIMEOUT,
    "internal_error": Verdict.INTERNAL_ERROR,
}
"""Those that the grader's verdicts give, where there was a grader."""


def category_breakdown(groups: Sequence[RolloutGroup]) -> dict[str, dict[str, Any]]:
    """{class: {count, percentage}} over samples, percentages of 100."""
    classes = Counter(category(rollout) for group in groups for rollout in group.rollouts)
    return _counted(classes, CATEGORIES)


def finish_breakdown(groups: Sequence[RolloutGroup]) -> dict[str, dict[str, Any]]:
    """{eos, stop, length: {count, percentage}} over samples."""
    reasons: Counter[str] = Counter()
    reasons.update(rollout.finish_reason for group in groups for rollout in group.rollouts)
    return _counted(reasons, FINISH_REASONS)


def breakdown(
    groups: Sequence[RolloutGroup], *, by: Callable[[Problem], str | None]
) -> dict[str, dict[str, Any]]:
    """{name: {correct, total, accuracy, low, high, num_problems}}, names sorted.

    `correct` and `total` count samples, the interval is over problems; problems without a name are
    left out.
    """
    members: dict[str, list[RolloutGroup]] = {}
    for group in groups:
        name = by(group.problem)
        if name is not None:
            members.setdefault(name, []).append(group)
    found = {}
    for name in sorted(members):
        share = share_of(members[name], is_right)
        marks = [is_right(rollout) for group in members[name] for rollout in group.rollouts]
        found[name] = {
            "correct": sum(marks),
            "total": len(marks),
            "accuracy": share["value"],
            "low": share["low"],
            "high": share["high"],
            "num_problems": len(members[name]),
        }
    return found


def subject_average(groups: Sequence[RolloutGroup]) -> dict[str, float] | None:
    """{value, low, high} of the unweighted mean over subjects; None where there are not two.

    In a file of several data sets, whose sources are its subjects, this is the headline "avg".
    """
    names = breakdown(groups, by=lambda problem: problem.subject)
    if len(names) < 2:
        return None
    average = average_of({name: _estimate(cell) for name, cell in names.items()})
    return {"value": average.value, "low": average.low, "high": average.high}


def shares(groups: Sequence[RolloutGroup]) -> dict[str, dict[str, float]]:
    """{name: {value, low, high}}: format, truncation, no answer, and what the grader left open."""
    questions = dict(SHARES)
    if any(rollout.grade is not None for group in groups for rollout in group.rollouts):
        questions |= {name: _has(verdict) for name, verdict in VERDICT_SHARES.items()}
    return {name: share_of(groups, question) for name, question in questions.items()}


def share_of(groups: Sequence[RolloutGroup], question: Question) -> dict[str, float]:
    """The share of samples that answer `question` with yes, and its interval over problems."""
    values = [sum(map(question, group.rollouts)) / len(group.rollouts) for group in groups]
    low, high = mean_interval(values)
    return {"value": sum(values) / len(values), "low": low, "high": high}


def _estimate(cell: Mapping[str, Any]) -> Estimate:
    return Estimate(
        value=cell["accuracy"],
        low=cell["low"],
        high=cell["high"],
        num_problems=cell["num_problems"],
        num_samples=cell["total"] // cell["num_problems"],
        interval="effective",
    )


def _has(verdict: Verdict) -> Question:
    return lambda rollout: rollout.grade is not None and rollout.grade.verdict is verdict


def _counted(counts: Counter[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    total = sum(counts.values())
    return {
        name: {"count": counts[name], "percentage": 100 * counts[name] / total} for name in names
    }
