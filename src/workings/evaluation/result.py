"""The result of an evaluation: graded groups, their metrics, and estimates with intervals."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from workings.evaluation.metrics import Equality, Estimate, IntervalMethod, same_text
from workings.evaluation.sample_metrics import group_estimates, sample_metrics, usable_groups
from workings.types import RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult:
    """What a model did on one data set.

    Attributes:
        dataset: the name that metrics and folders carry.
        groups: every graded group, in the order of the problems.
        metrics: means and shares over samples, and "accuracy" with "accuracy_low" and
            "accuracy_high"; names without a prefix, e.g. "avg_response_length/correct".
        estimates: "pass@1", or "avg@8", "pass@4", "maj@8" ..., with intervals over problems; a
            sample is right where format and answer are.
        lenient_estimates: the same where the answer alone decides. They say something else only
            where the reward grades answers outside of the format (reward.mode=four_class).
        num_unusable: problems left out because their gold answer is unusable.
        seconds: wall-clock time of sampling and grading.
        entropies: [problems][samples], the policy's mean entropy over each response's tokens, in
            nats; empty where nobody measured it.
    """

    dataset: str
    groups: tuple[RolloutGroup, ...]
    metrics: Mapping[str, float]
    estimates: Mapping[str, Estimate]
    lenient_estimates: Mapping[str, Estimate]
    num_unusable: int
    seconds: float
    entropies: tuple[tuple[float, ...], ...] = ()

    @property
    def accuracy(self) -> Estimate:
        """The headline: pass@1 of single samples, avg@n of several."""
        return next(iter(self.estimates.values()))

    def recorded(self, *, prefix: str | None = None) -> dict[str, float]:
        """The row for `Recorder.record(step, ..., prefix="eval")`: "sums/accuracy" and so on.

        `prefix` stands for the data set's name; "" leaves it out.
        """
        stem = self.dataset if prefix is None else prefix
        row = dict(self.metrics)
        for name, one in list(self.estimates.items())[1:]:
            row |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
        return {f"{stem}/{name}" if stem else name: value for name, value in row.items()}


def with_entropies(
    result: EvaluationResult, entropies: Sequence[Sequence[float]]
) -> EvaluationResult:
    """The result with every sample's entropy, and their mean as "avg_token_entropy".

    The mean is over the samples that the other metrics are over: problems with an unusable gold are
    left out, and so are responses without a token (NaN).
    """
    usable = [
        value
        for group, values in zip(result.groups, entropies, strict=True)
        for rollout, value in zip(group.rollouts, values, strict=True)
        if rollout.reward is not None and not math.isnan(value)
    ]
    measured = {"avg_token_entropy": sum(usable) / len(usable)} if usable else {}
    return replace(
        result,
        metrics={**result.metrics, **measured},
        entropies=tuple(map(tuple, entropies)),
    )


def summarise(
    groups: Sequence[RolloutGroup],
    *,
    dataset: str,
    seed: int,
    equal: Equality = same_text,
    seconds: float = 0.0,
    method: IntervalMethod = "score",
) -> EvaluationResult:
    """The result of graded groups; `seed` draws the bootstrap, where `method` asks for it."""
    usable = usable_groups(groups)
    # Both counts of majority votes ask about the same answers, and a grader takes its time.
    equal = functools.cache(equal)
    estimates = group_estimates(usable, equal=equal, seed=seed, method=method)
    accuracy = next(iter(estimates.values()))
    metrics = {
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        **sample_metrics(usable),
        "num_unusable": float(len(groups) - len(usable)),
    }
    return EvaluationResult(
        dataset=dataset,
        groups=tuple(groups),
        metrics=metrics,
        estimates=estimates,
        lenient_estimates=group_estimates(
            usable, equal=equal, seed=seed, method=method, lenient=True
        ),
        num_unusable=len(groups) - len(usable),
        seconds=seconds,
    )
