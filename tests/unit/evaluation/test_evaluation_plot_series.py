"""Metrics over steps as they were stored, with the intervals that stored samples allow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workings.errors import DataError
from workings.evaluation.intervals import mean_interval, wilson_interval
from workings.evaluation.plot_series import Series, finite_of, mean_of, moving_mean, read_series
from workings.tracking.jsonl import MetricsFile


def test_a_series_is_what_was_recorded(metrics_file: Path) -> None:
    reward = read_series(metrics_file, "train/reward")
    assert reward.steps == tuple(range(1, 13))
    assert reward.values == tuple(step / 20 for step in range(1, 13))
    assert reward.lows == ()
    accuracy = read_series(metrics_file, "eval/sums/accuracy")
    assert accuracy == Series(
        steps=(0, 4, 8, 12),
        values=(0.4, 0.5, 0.6000000000000001, 0.7),
        lows=tuple(value - 0.05 for value in (0.4, 0.5, 0.6000000000000001, 0.7)),
        highs=tuple(value + 0.05 for value in (0.4, 0.5, 0.6000000000000001, 0.7)),
    )


def test_an_unknown_metric_is_answered_with_the_nearest(metrics_file: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_series(metrics_file, "train/rewards")
    assert str(caught.value) == (
        f"{metrics_file}: unknown metric 'train/rewards'; did you mean 'train/reward'? Known: "
        "eval/sums/accuracy, eval/sums/accuracy_high, eval/sums/accuracy_low, train/loss, "
        "train/reward"
    )


def test_a_moving_mean_keeps_the_length_and_constant_values() -> None:
    assert moving_mean([0.5] * 9, 5) == [0.5] * 9
    assert moving_mean([1.0, 2.0, 3.0], 1) == [1.0, 2.0, 3.0]
    assert moving_mean([], 5) == []


def _evaluated(run: Path, step: int, rewards: dict[str, list[float]]) -> None:
    """One evaluation's samples, as a training run stores them."""
    folder = run / "eval" / f"step_{step:06d}" / "sums"
    folder.mkdir(parents=True)
    rows = [
        {"id": name, "sample": sample, "metrics": {"reward": value, "format_reward": 1.0}}
        for name, values in rewards.items()
        for sample, value in enumerate(values)
    ]
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _recorded(run: Path, values: dict[int, float], metric: str = "eval/reward") -> Path:
    sink = MetricsFile(run / "metrics.jsonl")
    for step, value in values.items():
        sink.record(step, "eval", {metric: value}, time=0.0)
    sink.close()
    return sink.path


def test_the_interval_of_a_reward_comes_from_the_stored_samples(tmp_path: Path) -> None:
    _evaluated(tmp_path, 0, {"a": [0.0], "b": [1.0], "c": [0.0], "d": [0.0]})
    _evaluated(tmp_path, 4, {"a": [1.0], "b": [1.0], "c": [1.0], "d": [0.0]})
    series = read_series(_recorded(tmp_path, {0: 0.25, 4: 0.75}), "eval/reward")
    assert series.num_problems == 4
    expected = [wilson_interval(1, 4), wilson_interval(3, 4)]
    assert list(zip(series.lows, series.highs, strict=True)) == expected


def test_several_samples_count_by_problem(tmp_path: Path) -> None:
    _evaluated(tmp_path, 2, {"a": [0.0, 1.0], "b": [1.0, 1.0], "c": [0.0, 0.0]})
    series = read_series(_recorded(tmp_path, {2: 0.5}), "eval/reward")
    assert (series.lows[0], series.highs[0]) == mean_interval([0.5, 1.0, 0.0])


def test_no_band_where_a_step_or_the_range_is_missing(tmp_path: Path) -> None:
    _evaluated(tmp_path / "a", 0, {"a": [0.0], "b": [1.0]})
    file = _recorded(tmp_path / "a", {0: 0.5, 4: 0.75})
    assert read_series(file, "eval/reward").lows == ()
    _evaluated(tmp_path / "b", 0, {"a": [-6.5], "b": [1.0]})
    file = _recorded(tmp_path / "b", {0: -2.75})
    assert read_series(file, "eval/reward").lows == ()


def test_the_samples_of_the_named_data_set_alone(tmp_path: Path) -> None:
    _evaluated(tmp_path, 0, {"a": [0.0], "b": [1.0]})
    file = _recorded(tmp_path, {0: 0.5}, metric="eval/sums/reward")
    assert read_series(file, "eval/sums/reward").num_problems == 2
    other = _recorded(tmp_path / "other", {0: 0.5}, metric="eval/primes/reward")
    assert read_series(other, "eval/primes/reward").lows == ()


def test_a_cut_file_of_samples_is_named_with_its_line(tmp_path: Path) -> None:
    _evaluated(tmp_path, 0, {"a": [0.0], "b": [1.0]})
    samples = tmp_path / "eval/step_000000/sums/results.jsonl"
    samples.write_bytes(samples.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"sums/results\.jsonl line 2 is not JSON"):
        read_series(_recorded(tmp_path, {0: 0.5}), "eval/reward")


def test_values_that_are_not_finite_are_read_and_then_left_out(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    series = read_series(_recorded(tmp_path, {0: 0.5, 1: nan, 2: 1.0, 3: -inf}), "eval/reward")
    assert series.steps == (0, 1, 2, 3)
    assert finite_of(series) == Series(steps=(0, 2), values=(0.5, 1.0), num_not_finite=2)
    banded = Series(steps=(1, 2), values=(nan, 0.5), lows=(0.0, 0.25), highs=(1.0, 0.75))
    kept = finite_of(banded)
    assert (kept.lows, kept.highs) == ((0.25,), (0.75,))
    assert mean_of([kept, kept]).num_not_finite == 2


def test_seeds_are_averaged_over_the_steps_that_all_have() -> None:
    first = Series(steps=(0, 2, 4), values=(0.0, 1.0, 2.0))
    second = Series(steps=(0, 4), values=(2.0, 3.0))
    assert mean_of([first, second]) == Series(
        steps=(0, 4), values=(1.0, 2.5), lows=(0.0, 2.0), highs=(2.0, 3.0), num_runs=2
    )
    assert mean_of([first]) is first
