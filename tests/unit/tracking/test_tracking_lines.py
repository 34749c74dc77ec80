"""Rows of metrics as text."""

from __future__ import annotations

import doctest

from workings.tracking import lines
from workings.tracking.lines import KEY_METRICS, evaluation_lines, select_metrics


def test_doctests() -> None:
    assert doctest.testmod(lines).failed == 0


def test_training_metrics_keep_the_order_of_the_list() -> None:
    row = {"train/loss": 0.25, "train/other": 9.0, "train/reward": 0.5}
    assert select_metrics(row, KEY_METRICS) == "reward 0.5  loss 0.25"


def test_every_data_set_has_its_own_line() -> None:
    row = {
        "eval/gsm8k/accuracy": 0.5,
        "eval/math500/accuracy": 0.25,
        "eval/math500/format_reward": 1.0,
        "eval/math500/avg_response_length/total": 120.0,
        "eval/math500/accuracy_low": 0.2,
        "eval/math500/accuracy_high": 0.3,
    }
    assert evaluation_lines(row) == [
        "gsm8k: accuracy 50.0 %",
        "math500: accuracy 25.0 % [20.0, 30.0]  format_reward 1  avg_response_length 120",
    ]


def test_a_single_set_without_a_name() -> None:
    assert evaluation_lines({"eval/answer_accuracy": 0.125}) == ["answer_accuracy 12.5 %"]


def test_unknown_evaluation_metrics_are_shown_all_the_same() -> None:
    assert evaluation_lines({"eval/perplexity": 3.5}) == ["perplexity 3.5"]
