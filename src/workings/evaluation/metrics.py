"""pass@k, avg@k and maj@k of several samples per problem, each with an interval over problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from workings.errors import ConfigError, DataError
from workings.evaluation.bootstrap import bootstrap_interval
from workings.evaluation.intervals import (
    difference_interval,
    difference_p_value,
    mean_interval,
    wilson_interval,
)

Equality = Callable[[str, str], bool]
IntervalMethod = Literal["score", "bootstrap"]
"""How intervals are found: "score" by Wilson and Tango, "bootstrap" by BCa over problems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A share or mean over problems with its 95 % interval.

    Attributes:
        value, low, high: e.g. 0.824, 0.788, 0.855.
        num_problems: what the mean runs over.
        num_samples: samples per problem.
        interval: how low and high were found: "wilson" where every value is 0 or 1, "effective" by
            Wilson's interval on the effective sample size, "bootstrap" where that was asked for.
    """

    value: float
    low: float
    high: float
    num_problems: int
    num_samples: int
    interval: Literal["wilson", "effective", "bootstrap"]

    def to_dict(self) -> dict[str, Any]:
        """The fields as they stand in summary.json."""
        return asdict(self)


def estimate(
    values: Sequence[float],
    *,
    num_samples: int,
    seed: int = 0,
    method: IntervalMethod = "score",
) -> Estimate:
    """The mean of one value per problem, in [0, 1], with its interval.

    `seed` draws the bootstrap, where `method` asks for it; values that all agree have none.

    >>> estimate([1, 1, 0, 1], num_samples=1).interval
    'wilson'
    >>> estimate([0.5, 1, 0.25, 0.75], num_samples=4).interval
    'effective'
    """
    if not values:
        raise DataError("no problem to take a mean over", hint="were all of them dropped?")
    n, total = len(values), sum(values)
    interval: Literal["wilson", "effective", "bootstrap"] = "effective"
    if all(value in (0, 1) for value in values):
        interval = "wilson"
    if method == "bootstrap" and len(set(values)) > 1 and (num_samples > 1 or interval != "wilson"):
        interval = "bootstrap"
    if interval == "wilson":
        low, high = wilson_interval(round(total), n)
    elif interval == "effective":
        low, high = mean_interval(values)
    else:
        low, high = bootstrap_interval(values, seed=seed)
    return Estimate(
        value=total / n,
        low=low,
        high=high,
        num_problems=n,
        num_samples=num_samples,
        interval=interval,
    )


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that k of n samples, drawn without replacement, hold one of the c right ones.

    1 - C(n - c, k) / C(n, k), as a product that stays in floating point for any n (Chen et al.,
    2021, arXiv:2107.03374, equation 1).

    >>> [round(pass_at_k(*case), 6) for case in [(8, 2, 1), (8, 2, 4), (8, 0, 4), (8, 5, 4)]]
    [0.25, 0.785714, 0.0, 1.0]
    >>> round(pass_at_k(10, 3, 5), 6)
    0.916667
    """
    if not 0 <= c <= n:
        raise DataError(f"{c} right samples of {n}; expected 0 <= right <= samples")
    if not 1 <= k <= n:
        raise ConfigError(
            f"pass@{k} of {n} samples per problem; it needs between 1 and {n}",
            hint=f"set num_samples to {k} or more" if k > n else None,
        )
    if n - c < k:
        return 1.0
    all_wrong = 1.0
    for i in range(n - c + 1, n + 1):
        all_wrong *= 1 - k / i
    return 1 - all_wrong


def avg_at_k(correct: Sequence[Sequence[float]]) -> float:
    """The mean over the samples of a problem, then over problems.

    >>> avg_at_k([[1, 0], [1, 1], [0, 0, 0, 1]])
    0.5833333333333334
    """
    if not correct or not all(correct):
        raise DataError("avg@k of no problem, or of a problem without a sample")
    return sum(sum(row) / len(row) for row in correct) / len(correct)


def maj_at_k(answers: Sequence[str | None], correct: Sequence[bool], *, equal: Equality) -> float:
    """The credit of one problem when its samples vote: 1, 0, or a share of it in a tie.

    `answers[i]` is what sample i says (None: nothing, so it does not vote) and `correct[i]` whether
    it is right. Answers that are `equal` to the first of a party join it; the right ones among the
    largest parties share the credit. A party is as right as its first member.

    >>> def same(a: str, b: str) -> bool: return float(a) == float(b)
    >>> maj_at_k(["2", "2.0", "3", None], [True, True, False, False], equal=same)
    1.0
    >>> maj_at_k(["2", "3", None], [True, False, False], equal=same)
    0.5
    """
    if len(answers) != len(correct):
        raise DataError(f"{len(answers)} answers and {len(correct)} marks; expected as many")
    parties: list[_Party] = []
    for answer, right in zip(answers, correct, strict=True):
        if answer is None:
            continue
        joined = next((party for party in parties if equal(party.answer, answer)), None)
        if joined is None:
            joined = _Party(answer=answer, right=right)
            parties.append(joined)
        joined.votes += 1
    if not parties:
        return 0.0
    most = max(party.votes for party in parties)
    winners = [party for party in parties if party.votes == most]
    return sum(party.right for party in winners) / len(winners)


@dataclass(slots=True, kw_only=True)
class _Party:
    answer: str
    right: bool
    votes: int = 0


def same_text(first: str, second: str) -> bool:
    """Equality of answers where no grader is at hand: the same text but for white space.

    >>> same_text("1, 2", "1,2"), same_text("0.5", "1/2")
    (True, False)
    """
    return "".join(first.split()) == "".join(second.split())


def sample_estimates(
    correct: Sequence[Sequence[bool]],
    *,
    answers: Sequence[Sequence[str | None]] | None = None,
    equal: Equality = same_text,
    seed: int = 0,
    method: IntervalMethod = "score",
) -> dict[str, Estimate]:
    """pass@1 of single samples; avg@n, pass@k for k = 1, 2, 4, ..., n and maj@n of n samples.

    `correct` and `answers` are [problems][samples]; maj@n is left out without answers. Every
    problem needs the same number of samples. `seed` and `method` are those of `estimate`.
    """
    sizes = sorted({len(row) for row in correct})
    if len(sizes) != 1 or sizes[0] == 0:
        raise DataError(f"problems with {sizes} samples; expected the same number of each, above 0")
    n = sizes[0]
    counts = [sum(row) for row in correct]
    if n == 1:
        return {"pass@1": estimate(counts, num_samples=1, seed=seed, method=method)}
    values = {f"avg@{n}": [count / n for count in counts]}
    for k in _powers_of_two(n):
        values[f"pass@{k}"] = [pass_at_k(n, count, k) for count in counts]
    if answers is not None:
        values[f"maj@{n}"] = [
            maj_at_k(row, marks, equal=equal) for row, marks in zip(answers, correct, strict=True)
        ]
    return {
        name: estimate(row, num_samples=n, seed=seed, method=method) for name, row in values.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """How much better b is than a on the same problems.

    Attributes:
        value_a, value_b: their means over the problems.
        difference, low, high: b - a with its 95 % interval.
        p_value: of "no difference", two-sided; below 0.05 where the interval leaves zero out.
        num_problems: problems that both answered.
        num_better, num_worse: problems where b is above a, and below.
    """

    value_a: float
    value_b: float
    difference: float
    low: float
    high: float
    p_value: float
    num_problems: int
    num_better: int
    num_worse: int

    @property
    def is_clear(self) -> bool:
        """True when the interval leaves zero out."""
        return self.low > 0 or self.high < 0


def paired_difference(
    correct_a: Sequence[float],
    correct_b: Sequence[float],
    *,
    seed: int = 0,
    method: IntervalMethod = "score",
) -> PairedDifference:
    """The difference b - a over the same problems in the same order, one value per problem.

    A value is 0 or 1, or a mean over samples or seeds (`pool_by_problem`). Pairing removes what
    problems have in common, so the interval is narrower than that of two separate accuracies.
    `seed` draws the bootstrap, where `method` asks for it; the p value is always the score test's.

    >>> found = paired_difference([0, 0, 1, 1] * 25, [1, 0, 1, 1] * 25)
    >>> found.difference, found.num_better, found.num_worse, found.is_clear
    (0.25, 25, 0, True)
    """
    if len(correct_a) != len(correct_b) or not correct_a:
        raise DataError(
            f"{len(correct_a)} values against {len(correct_b)}; expected one per problem, the "
            "same problems on both sides, and at least one"
        )
    differences = [b - a for a, b in zip(correct_a, correct_b, strict=True)]
    n = len(differences)
    if method == "bootstrap" and len(set(differences)) > 1:
        low, high = bootstrap_interval(differences, seed=seed)
    else:
        low, high = difference_interval(differences)
    return PairedDifference(
        value_a=sum(correct_a) / n,
        value_b=sum(correct_b) / n,
        difference=sum(differences) / n,
        low=low,
        high=high,
        p_value=difference_p_value(differences),
        num_problems=n,
        num_better=sum(difference > 0 for difference in differences),
        num_worse=sum(difference < 0 for difference in differences),
    )


def pool_by_problem(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean over runs (seeds) of each problem's value, by problem id.

    The interval of pooled values speaks about other problems, with these seeds; how seeds differ
    is seen from the runs one by one.

    >>> pool_by_problem([{"a": 1, "b": 0}, {"a": 0, "b": 0}])
    {'a': 0.5, 'b': 0.0}
    """
    if not runs:
        raise DataError("no run to pool")
    for index, run in enumerate(runs):
        if run.keys() != runs[0].keys():
            differing = sorted(run.keys() ^ runs[0].keys())
            raise DataError(
                f"run {index} and run 0 answered other problems: {len(differing)} differ, "
                f"{differing[0]!r} for one"
            )
    return {name: sum(run[name] for run in runs) / len(runs) for name in runs[0]}


def _powers_of_two(n: int) -> list[int]:
    powers = [1]
    while 2 * powers[-1] <= n:
        powers.append(2 * powers[-1])
    return powers if powers[-1] == n else [*powers, n]
