"""Paired comparisons of evaluations against a reference, data set by data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from workings.errors import DataError
from workings.evaluation.compare import (
    Answers,
    compare_by_problem,
    holm,
    read_answers,
    refuse_other_problems,
)
from workings.evaluation.metrics import Estimate, PairedDifference, estimate, pool_by_problem
from workings.evaluation.stored_evaluations import StoredEvaluation

SIGNIFICANCE = 0.05
Finding = Literal["better", "worse", "not clear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What is compared: one evaluation, or those of several training seeds, pooled by problem."""

    label: str
    evaluations: tuple[StoredEvaluation, ...]

    @property
    def data_sets(self) -> tuple[str, ...]:
        """The data sets that all of its evaluations have."""
        first, *others = self.evaluations
        return tuple(
            name for name in first.data_sets if all(name in one.data_sets for one in others)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One side against the reference on one data set.

    Attributes:
        dataset: name of the data set.
        reference, other: labels of the sides.
        reference_accuracy, other_accuracy: over problems, strict: format and answer right.
        reference_seeds, other_seeds: the accuracy of every pooled evaluation, one where none is.
        difference: other - reference, with its own 95 % interval and p value.
        corrected_p_value: by Holm's correction over all comparisons made together.
    """

    dataset: str
    reference: str
    other: str
    reference_accuracy: Estimate
    other_accuracy: Estimate
    reference_seeds: tuple[float, ...]
    other_seeds: tuple[float, ...]
    difference: PairedDifference
    corrected_p_value: float

    @property
    def finding(self) -> Finding:
        """Whether the other side is clearly better or worse, the correction taken into account."""
        if self.corrected_p_value >= SIGNIFICANCE or not self.difference.is_clear:
            return "not clear"
        return "better" if self.difference.difference > 0 else "worse"

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain JSON."""
        return {**asdict(self), "finding": self.finding}


def compare_sides(
    reference: Side, others: Sequence[Side], *, data_sets: Sequence[str]
) -> list[Comparison]:
    """Every other side against the reference on every data set, corrected for their number.

    DataError where two sides did not answer the same problems.
    """
    comparisons = []
    for dataset in data_sets:
        first = _read(reference, dataset)
        for side in others:
            second = _read(side, dataset)
            names = (reference.label, side.label)
            try:
                refuse_other_problems(first.answers, second.answers, names=names)
                difference = compare_by_problem(first.shares, second.shares, names=names)
            except DataError as error:
                raise DataError(f"{dataset}: {error.message}", hint=error.hint) from error
            comparisons.append(
                Comparison(
                    dataset=dataset,
                    reference=reference.label,
                    other=side.label,
                    reference_accuracy=first.accuracy,
                    other_accuracy=second.accuracy,
                    reference_seeds=first.seeds,
                    other_seeds=second.seeds,
                    difference=difference,
                    corrected_p_value=difference.p_value,
                )
            )
    corrected = holm([one.difference.p_value for one in comparisons])
    return [
        replace(one, corrected_p_value=p) for one, p in zip(comparisons, corrected, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pooled:
    """A side on one data set.

    Attributes:
        answers: of its first evaluation; the others are on the same problems.
        shares: {problem: share right} of all together.
        accuracy: their mean.
        seeds: the mean of every evaluation.
    """

    answers: Answers
    shares: Mapping[str, float]
    accuracy: Estimate
    seeds: tuple[float, ...]


def _read(side: Side, dataset: str) -> _Pooled:
    """What the evaluations of a side say together; they need the same problems."""
    answers = [
        read_answers(one.data_sets[dataset], data_set=dataset if one.by_row else None)
        for one in side.evaluations
    ]
    runs = [one.shares for one in answers]
    for place, evaluation in enumerate(side.evaluations[1:], start=1):
        names = (str(side.evaluations[0].path), str(evaluation.path))
        try:
            refuse_other_problems(answers[0], answers[place], names=names)
            compare_by_problem(runs[0], runs[place], names=names)
        except DataError as error:
            raise DataError(
                f"{dataset}: {side.label} cannot be pooled: {error.message}", hint=error.hint
            ) from error
    shares = pool_by_problem(runs)
    num_samples = sum(max(map(len, one.marks.values())) for one in answers)
    return _Pooled(
        answers=answers[0],
        shares=shares,
        accuracy=estimate(list(shares.values()), num_samples=num_samples),
        seeds=tuple(sum(run.values()) / len(run) for run in runs),
    )
