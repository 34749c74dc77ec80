"""Metrics of graded groups, counted by hand."""

from __future__ import annotations

import dataclasses

import pytest

from workings.errors import DataError
from workings.evaluation.intervals import wilson_interval
from workings.evaluation.result import summarise, with_entropies
from workings.evaluation.sample_metrics import usable_groups
from workings.types import Grade, Verdict


def test_single_samples_counted_by_hand(make_group) -> None:
    groups = [
        make_group("a", "11", lengths=[2]),
        make_group("b", "10", lengths=[4], finish_reasons=["length"]),
        make_group("c", "00", lengths=[8], extracted=[None], finish_reasons=["length"]),
        make_group("d", "01", lengths=[6]),
    ]
    result = summarise(groups, dataset="sums", seed=0, seconds=3.0)
    metrics = dict(result.metrics)
    assert (metrics.pop("accuracy_low"), metrics.pop("accuracy_high")) == wilson_interval(1, 4)
    assert metrics == {
        "accuracy": 0.25,
        "reward": 0.25,
        "format_reward": 0.5,
        "answer_reward": 0.5,
        "format_accuracy": 0.5,
        "answer_accuracy": 0.5,
        "truncation_rate": 0.5,
        "num_problems": 4.0,
        "num_samples": 4.0,
        "avg_response_length/total": 5.0,
        "avg_response_length/correct": 2.0,
        "avg_response_length/incorrect": 6.0,
        "category_1_format1_answer1": 0.25,
        "category_2_format1_answer0": 0.25,
        "category_3_format0_answer0": 0.25,
        "category_4_format0_answer1": 0.25,
        "no_answer_rate": 0.25,
        "undecided_rate": 0.0,
        "refused_rate": 0.0,
        "timeout_rate": 0.0,
        "internal_error_rate": 0.0,
        "num_unusable": 0.0,
    }
    assert list(result.estimates) == ["pass@1"]
    assert result.accuracy.value == 0.25
    assert result.seconds == 3.0


def test_several_samples_per_problem(make_group) -> None:
    groups = [
        make_group("a", "11", "11", "10", "10", extracted=["4", "4", "7", "8"]),
        make_group("b", "10", "10", "10", "11", extracted=["5", "5", None, "4"]),
    ]
    result = summarise(groups, dataset="sums", seed=0)
    assert result.accuracy is result.estimates["avg@4"]
    assert result.metrics["accuracy"] == pytest.approx(3 / 8)
    assert result.estimates["maj@4"].value == pytest.approx(0.5)
    assert result.estimates["pass@4"].value == 1.0
    assert result.estimates["pass@2"].value == pytest.approx(((1 - 1 / 6) + (1 - 3 / 6)) / 2)


def test_the_equality_of_the_grader_decides_the_vote(make_group) -> None:
    group = make_group("a", "11", "11", "10", extracted=["4", "4.0", "5"])
    exact = summarise([group], dataset="sums", seed=0)
    assert exact.estimates["maj@3"].value == pytest.approx(2 / 3)

    def same_number(first: str, second: str) -> bool:
        return float(first) == float(second)

    numeric = summarise([group], dataset="sums", seed=0, equal=same_number)
    assert numeric.estimates["maj@3"].value == 1.0


def test_lengths_of_what_is_not_there_are_left_out(make_group) -> None:
    metrics = summarise([make_group("a", "10")], dataset="sums", seed=0).metrics
    assert "avg_response_length/correct" not in metrics
    assert metrics["avg_response_length/incorrect"] == 4.0


def test_problems_with_unusable_golds_leave_the_statistics(make_group) -> None:
    groups = [make_group("a", "11"), make_group("b", "bad gold"), make_group("c", "10")]
    result = summarise(groups, dataset="sums", seed=0)
    assert result.metrics["accuracy"] == 0.5
    assert result.metrics["num_unusable"] == 1.0
    assert result.num_unusable == 1
    assert len(result.groups) == 3


def test_tag_rewards_count_by_their_own_components(make_group) -> None:
    (rollout,) = make_group("a", "11").rollouts
    components = {
        "match_format_exactly": 3.0,
        "match_format_approximately": 1.5,
        "check_answer": 5.0,
        "check_numbers": 3.0,
    }
    tagged = dataclasses.replace(
        rollout, reward=12.5, components=components, grade=Grade(verdict=Verdict.EQUAL)
    )
    group = dataclasses.replace(make_group("a", "11"), rollouts=(tagged,))
    metrics = summarise([group], dataset="tags", seed=0).metrics
    assert metrics["reward"] == 12.5
    assert (metrics["format_reward"], metrics["answer_reward"], metrics["accuracy"]) == (1, 1, 1)


def test_rows_for_the_recorder(make_group) -> None:
    groups = [make_group("a", "11", "10"), make_group("b", "11", "11")]
    result = summarise(groups, dataset="sums", seed=0)
    row = result.recorded()
    assert row["sums/accuracy"] == 0.75
    assert row["sums/accuracy_low"] == result.accuracy.low
    assert row["sums/pass@2"] == 1.0
    assert row["sums/pass@2_low"] == result.estimates["pass@2"].low
    assert "sums/avg@2" not in row
    assert result.recorded(prefix="")["accuracy"] == 0.75
    assert result.recorded(prefix="validation")["validation/accuracy"] == 0.75
    assert all(isinstance(value, float) for value in row.values())


def test_nothing_usable_is_an_error(make_group) -> None:
    with pytest.raises(DataError, match="none of 1 problems has a reward"):
        usable_groups([make_group("a", "bad gold")])
    with pytest.raises(DataError, match="1 of 2 samples of 'a' have no reward"):
        usable_groups([make_group("a", "bad gold", "11")])


def test_entropies_are_averaged_over_the_samples_that_count(make_group) -> None:
    groups = [make_group("a", "11", "10"), make_group("b", "bad gold", "bad gold")]
    groups.append(make_group("c", "00", "11"))
    result = summarise(groups, dataset="sums", seed=0)
    entropies = [[1.0, 2.0], [50.0, 50.0], [float("nan"), 6.0]]
    found = with_entropies(result, entropies)
    assert found.metrics == {**result.metrics, "avg_token_entropy": 3.0}
    assert found.entropies[:2] == ((1.0, 2.0), (50.0, 50.0))
    with pytest.raises(ValueError, match="zip"):
        with_entropies(result, entropies[:2])
    nothing = with_entropies(result, [[float("nan")] * 2] * 3)
    assert nothing.metrics == result.metrics
