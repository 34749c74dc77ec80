"""pass@k, avg@k, maj@k and paired differences against brute force."""

from __future__ import annotations

import dataclasses
import doctest
import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workings.errors import ConfigError, DataError
from workings.evaluation import metrics
from workings.evaluation.bootstrap import bootstrap_interval
from workings.evaluation.intervals import difference_interval, mean_interval, wilson_interval
from workings.evaluation.metrics import (
    avg_at_k,
    estimate,
    maj_at_k,
    paired_difference,
    pass_at_k,
    pool_by_problem,
    same_text,
    sample_estimates,
)


def test_doctests() -> None:
    assert doctest.testmod(metrics).failed == 0


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [(8, 2, 1, 0.25), (8, 2, 4, 0.785714), (8, 0, 4, 0.0), (8, 5, 4, 1.0), (10, 3, 5, 0.916667)],
)
def test_pass_at_k_e31(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=5e-7)


def test_pass_at_k_counts_the_subsets() -> None:
    for n in range(1, 8):
        for c in range(n + 1):
            marks = [index < c for index in range(n)]
            for k in range(1, n + 1):
                subsets = list(itertools.combinations(marks, k))
                share = sum(any(subset) for subset in subsets) / len(subsets)
                assert pass_at_k(n, c, k) == pytest.approx(share, abs=1e-14)


@given(st.integers(1, 3000), st.data())
def test_pass_at_k_equals_the_ratio_of_binomials(n: int, data) -> None:
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    exact = 1 - math.comb(n - c, k) / math.comb(n, k)
    assert pass_at_k(n, c, k) == pytest.approx(exact, abs=1e-10)


def test_pass_at_k_refuses_what_it_cannot_know() -> None:
    with pytest.raises(ConfigError) as caught:
        pass_at_k(4, 1, 8)
    assert str(caught.value) == (
        "pass@8 of 4 samples per problem; it needs between 1 and 4\n\n"
        "hint: set num_samples to 8 or more"
    )
    with pytest.raises(ConfigError, match="pass@0 of 4 samples"):
        pass_at_k(4, 1, 0)
    with pytest.raises(DataError, match="5 right samples of 4"):
        pass_at_k(4, 5, 1)


def test_avg_at_k_is_a_mean_of_means() -> None:
    assert avg_at_k([[1, 0, 0, 0], [1, 1]]) == pytest.approx(0.625)
    with pytest.raises(DataError, match=r"avg@k of no problem"):
        avg_at_k([])
    with pytest.raises(DataError, match=r"problem without a sample"):
        avg_at_k([[1], []])


def test_samples_without_an_answer_do_not_vote() -> None:
    answers = [None, None, None, "4"]
    assert maj_at_k(answers, [False, False, False, True], equal=same_text) == 1.0
    assert maj_at_k([None, None], [False, False], equal=same_text) == 0.0


def test_ties_share_the_credit() -> None:
    answers = ["4", "5", "6", "4", "5", "6"]
    correct = [answer == "4" for answer in answers]
    assert maj_at_k(answers, correct, equal=same_text) == pytest.approx(1 / 3)


def test_answers_are_grouped_by_the_given_equality() -> None:
    def same_number(first: str, second: str) -> bool:
        return float(first) == float(second)

    answers, correct = ["0.5", ".5", "1", "1"], [True, True, False, False]
    assert maj_at_k(answers, correct, equal=same_number) == 0.5
    assert maj_at_k([*answers, "0.50"], [*correct, True], equal=same_number) == 1.0
    assert maj_at_k([*answers, "0.50"], [*correct, True], equal=same_text) == 0.0


@given(st.lists(st.sampled_from(["1", "2", "3", None]), max_size=8))
def test_maj_at_k_is_the_chance_of_a_random_most_frequent_answer(answers: list[str | None]) -> None:
    correct = [answer == "1" for answer in answers]
    counts = {text: answers.count(text) for text in ("1", "2", "3") if text in answers}
    best = [text for text, count in counts.items() if count == max(counts.values())]
    expected = best.count("1") / len(best) if best else 0.0
    assert maj_at_k(answers, correct, equal=same_text) == pytest.approx(expected)


def test_maj_at_k_needs_a_mark_per_answer() -> None:
    with pytest.raises(DataError, match="2 answers and 1 marks"):
        maj_at_k(["1", "2"], [True], equal=same_text)


def test_single_samples_get_wilson_and_several_the_effective_size() -> None:
    one = estimate([1, 1, 0, 1], num_samples=1)
    assert (one.value, one.interval, one.num_problems) == (0.75, "wilson", 4)
    assert (one.low, one.high) == wilson_interval(3, 4)
    values = [0.5, 0.75, 0.0, 1.0]
    several = estimate(values, num_samples=4)
    assert several.interval == "effective"
    assert (several.low, several.high) == mean_interval(values)
    assert estimate([1, 1, 0, 1], num_samples=4) == dataclasses.replace(one, num_samples=4)


def test_the_bootstrap_where_it_is_asked_for() -> None:
    values = [0.5, 0.75, 0.0, 1.0]
    drawn = estimate(values, num_samples=4, seed=1, method="bootstrap")
    assert drawn.interval == "bootstrap"
    assert (drawn.low, drawn.high) == bootstrap_interval(values, seed=1)
    assert estimate([1, 0, 1], num_samples=1, method="bootstrap").interval == "wilson"
    assert estimate([0.5, 0.5], num_samples=2, method="bootstrap").interval == "effective"
    difference = paired_difference([0.0] * 4, values, seed=1, method="bootstrap")
    assert (difference.low, difference.high) == bootstrap_interval(values, seed=1)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_problems_that_all_agree_still_leave_doubt(value: float) -> None:
    found = estimate([value] * 30, num_samples=8, seed=0)
    assert found.interval == "wilson"
    assert found.high - found.low == pytest.approx(0.1135, abs=1e-4)


def test_an_estimate_needs_a_problem() -> None:
    with pytest.raises(DataError, match="no problem to take a mean over"):
        estimate([], num_samples=1, seed=0)


def test_estimates_of_single_samples() -> None:
    found = sample_estimates([[True], [False], [True], [True]], seed=0)
    assert list(found) == ["pass@1"]
    assert found["pass@1"].value == 0.75


def test_estimates_of_several_samples() -> None:
    correct = [[True] * 2 + [False] * 4, [False] * 6, [True] * 6]
    answers = [["1", "1", "2", "3", None, None], ["9"] * 6, ["7"] * 6]
    found = sample_estimates(correct, answers=answers, seed=0)
    assert list(found) == ["avg@6", "pass@1", "pass@2", "pass@4", "pass@6", "maj@6"]
    assert found["avg@6"].value == pytest.approx((1 / 3 + 0 + 1) / 3)
    assert dataclasses.replace(found["pass@1"]) == found["avg@6"]
    assert found["pass@2"].value == pytest.approx((1 - math.comb(4, 2) / math.comb(6, 2) + 1) / 3)
    assert found["pass@6"].value == pytest.approx(2 / 3)
    assert found["maj@6"].value == pytest.approx(2 / 3)
    assert "maj@6" not in sample_estimates(correct, seed=0)
    for one in found.values():
        assert one.low <= one.value <= one.high


def test_problems_need_the_same_number_of_samples() -> None:
    with pytest.raises(DataError, match=r"problems with \[1, 2\] samples"):
        sample_estimates([[True], [True, False]], seed=0)


def test_a_paired_difference_is_the_difference_of_means() -> None:
    draw = random.Random(0)
    a = [float(draw.random() < 0.4) for _ in range(200)]
    b = [float(draw.random() < 0.7) for _ in range(200)]
    found = paired_difference(a, b, seed=0)
    assert found.difference == pytest.approx(sum(b) / 200 - sum(a) / 200, abs=1e-12)
    assert found.num_better == sum(x < y for x, y in zip(a, b, strict=True))
    assert found.num_worse == sum(x > y for x, y in zip(a, b, strict=True))
    assert found.is_clear
    turned = paired_difference(b, a, seed=0)
    assert turned.difference == pytest.approx(-found.difference, abs=1e-12)


def test_pairing_removes_what_problems_share() -> None:
    """Both models solve the same half; b solves 5 % more. Unpaired intervals would overlap."""
    a = [1.0] * 500 + [0.0] * 500
    b = [1.0] * 550 + [0.0] * 450
    found = paired_difference(a, b, seed=0)
    # Variance of the differences: 0.05 * 0.95 / 1000, so one sigma is 0.69 points. A score interval
    # is longer upwards, where the variance is larger.
    assert found.low == pytest.approx(0.05 - 1.96 * 0.0069, abs=0.002)
    assert found.high == pytest.approx(0.05 + 1.96 * 0.0069, abs=0.002)
    assert found.high - 0.05 > 0.05 - found.low
    assert found.is_clear
    assert wilson_interval(500, 1000)[1] > wilson_interval(550, 1000)[0]


def test_the_same_model_twice_makes_no_difference() -> None:
    found = paired_difference([1.0, 0.0, 1.0], [1.0, 0.0, 1.0])
    assert (found.difference, found.is_clear, found.p_value) == (0.0, False, 1.0)
    assert (found.low, found.high) == difference_interval([0.0] * 3)
    assert found.high > 0.5


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 1), min_size=3, max_size=3), min_size=2, max_size=5))
def test_pooling_is_the_mean_over_runs(marks: list[list[int]]) -> None:
    runs = [{"a": row[0], "b": row[1], "c": row[2]} for row in marks]
    pooled = pool_by_problem(runs)
    assert sum(pooled.values()) / 3 == pytest.approx(sum(map(sum, marks)) / (3 * len(marks)))


def test_runs_over_other_problems_are_not_pooled() -> None:
    with pytest.raises(DataError) as caught:
        pool_by_problem([{"a": 1.0}, {"a": 1.0, "b": 0.0}])
    assert str(caught.value) == ("run 1 and run 0 answered other problems: 1 differ, 'b' for one")
    with pytest.raises(DataError, match="no run to pool"):
        pool_by_problem([])


def test_unpaired_lists_are_refused() -> None:
    with pytest.raises(DataError, match="2 values against 1; expected one per problem"):
        paired_difference([1.0, 0.0], [1.0], seed=0)
