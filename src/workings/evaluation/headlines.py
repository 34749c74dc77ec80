"""One number for several benchmarks: the unweighted means of the LUFFY table, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workings.errors import DataError
from workings.evaluation.metrics import Estimate

MATHEMATICS = ("aime24", "aime25", "amc", "math500", "minerva", "olympiad_bench")
OUT_OF_DISTRIBUTION = ("arc_c", "gpqa", "mmlu_pro")
SPELLINGS = {
    "aime2024": "aime24",
    "aime2025": "aime25",
    "math_500": "math500",
    "minerva_math": "minerva",
    "olympiad": "olympiad_bench",
    "olympiadbench": "olympiad_bench",
    "arc": "arc_c",
    "gpqa_diamond": "gpqa",
}
"""Other names of these sets, in lower case with underscores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """The unweighted mean of the accuracies of `data_sets`, with its 95 % interval."""

    value: float
    low: float
    high: float
    data_sets: tuple[str, ...]


def average_of(estimates: Mapping[str, Estimate]) -> Average:
    """The unweighted mean over data sets: each counts the same, however many problems it has.

    Data sets are fixed and their problems independent, so squared distances of the ends add up and
    their root over the number of sets is the distance of the mean's end (the MOVER of Zou and
    Donner, 2008, Statistics in Medicine 27, equation 8).

    >>> from workings.evaluation.metrics import estimate
    >>> average_of({"a": estimate([1, 0], num_samples=1), "b": estimate([1], num_samples=1)}).value
    0.75
    """
    if not estimates:
        raise DataError("no data set to average over")
    ones, count = list(estimates.values()), len(estimates)
    value = sum(one.value for one in ones) / count
    below = sum((one.value - one.low) ** 2 for one in ones) ** 0.5 / count
    above = sum((one.high - one.value) ** 2 for one in ones) ** 0.5 / count
    return Average(value=value, low=value - below, high=value + above, data_sets=tuple(estimates))


def mathematics_average(estimates: Mapping[str, Estimate]) -> Average | None:
    """LUFFY's "avg" over its six mathematics benchmarks; None unless all six are there."""
    return _average_over(MATHEMATICS, estimates)


def out_of_distribution_average(estimates: Mapping[str, Estimate]) -> Average | None:
    """The mean over ARC-c, GPQA and MMLU-Pro; None unless all three are there."""
    return _average_over(OUT_OF_DISTRIBUTION, estimates)


def headline_averages(estimates: Mapping[str, Estimate]) -> dict[str, Average]:
    """By title: "avg" over all data sets where there are two or more, and those of the LUFFY table.

    A mean over exactly the sets of another is not said twice.
    """
    found = {}
    for title, average in (
        ("mathematics avg", mathematics_average(estimates)),
        ("out-of-distribution avg", out_of_distribution_average(estimates)),
    ):
        if average is not None:
            found[title] = average
    everything = set(estimates)
    if len(everything) > 1 and all(set(one.data_sets) != everything for one in found.values()):
        found["avg"] = average_of(estimates)
    return found


def _average_over(names: Sequence[str], estimates: Mapping[str, Estimate]) -> Average | None:
    spelled = {_plain(name): name for name in estimates}
    if any(name not in spelled for name in names):
        return None
    return average_of({spelled[name]: estimates[spelled[name]] for name in names})


def _plain(name: str) -> str:
    """The name by which a set is listed above.

    >>> _plain("MATH-500"), _plain("olympiad_bench")
    ('math500', 'olympiad_bench')
    """
    lowered = name.lower().replace("-", "_")
    return SPELLINGS.get(lowered, lowered)
