"""Curves: what is recorded, smoothing, and the charts made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from viewer_files import write_jsonl

from workings.evaluation.plots import moving_mean
from workings.viewer.curves import (
    MOST_POINTS,
    chart,
    colours_of,
    differing_settings,
    first_runs,
    read_curves,
    read_lines,
    recorded_metrics,
    smooth,
    usual_metrics,
    without_curves,
)

values = st.lists(st.floats(-1e3, 1e3), max_size=40)


@given(values, st.integers(1, 21))
def test_smoothing_is_the_moving_mean_of_the_figures(numbers: list[float], window: int) -> None:
    steps = range(len(numbers))
    np.testing.assert_allclose(
        smooth(numbers, steps, window), moving_mean(numbers, window), atol=1e-9
    )


def test_smoothing_counts_steps_and_survives_steps_that_go_back() -> None:
    assert smooth([1.0, 2.0, 3.0], [0, 50, 100], 11) == [1.0, 2.0, 3.0]
    assert np.isfinite(smooth([1.0, 2.0, 3.0, 4.0], [5, 6, 2, 3], 3)).all()


def _metrics(folder: Path, count: int) -> Path:
    rows = []
    for step in range(count):
        row = {"step": step, "kind": "train", "time": 0.0}
        rows.append(row | {"train/loss": "nan" if step == 3 else float(step)})
    end = {"eval/sums/accuracy": 0.5, "eval/sums/accuracy_low": 0.4, "eval/sums/accuracy_high": 0.6}
    rows += [{"step": step, "kind": "eval", "time": 0.0, **end} for step in (1, count)]
    rows.append({"step": count, "kind": "train", "time": 0.0, "final/once": 1.0})
    return write_jsonl(folder / "metrics.jsonl", rows)


def test_recorded_metrics_and_intervals(tmp_path: Path) -> None:
    file = _metrics(tmp_path / "a", 10)
    assert recorded_metrics([file]) == ["eval/sums/accuracy", "train/loss"]
    curves = read_curves(file)
    assert curves["train/loss"].num_not_finite == 1
    assert curves["train/loss"].steps == (0, 1, 2, 4, 5, 6, 7, 8, 9)
    assert curves["eval/sums/accuracy"].lows == (0.4, 0.4)
    assert usual_metrics(recorded_metrics([file])) == ["train/loss", "eval/sums/accuracy"]
    assert usual_metrics(["eval/accuracy", "train/reward"]) == ["train/reward", "eval/accuracy"]
    assert usual_metrics(["x/y"]) == ["x/y"]


def test_the_first_runs_are_those_with_curves(tmp_path: Path) -> None:
    _metrics(tmp_path / "a", 5)
    write_jsonl(
        tmp_path / "b/metrics.jsonl", [{"step": 1, "kind": "e", "time": 0.0, "eval/x": 1.0}]
    )
    assert first_runs(tmp_path, ["b", "a"]) == ["a"]
    assert first_runs(tmp_path, ["b"]) == ["b"]


def test_a_metric_that_is_never_finite_is_offered_and_counted(tmp_path: Path) -> None:
    rows = [{"step": n, "kind": "train", "time": 0.0, "train/loss": "nan"} for n in (1, 2)]
    file = write_jsonl(tmp_path / "a/metrics.jsonl", rows)
    assert recorded_metrics([file]) == ["train/loss"]
    curve = read_curves(file)["train/loss"]
    assert (curve.steps, curve.num_not_finite) == ((), 2)
    spec = chart({"a": curve}, "train/loss", colours={"a": "#000"}, smoothing=11)
    assert spec["data"]["values"] == []


def test_a_run_at_its_first_step_has_no_curve_yet(tmp_path: Path) -> None:
    rows = [{"step": 1, "kind": "train", "time": 0.0, "train/loss": 0.5}]
    files = {
        "new": write_jsonl(tmp_path / "new/metrics.jsonl", rows),
        "empty": write_jsonl(tmp_path / "empty/metrics.jsonl", []),
        "old": _metrics(tmp_path / "old", 5),
    }
    lines, problems = read_lines(files)
    assert problems == []
    assert without_curves(lines) == ["new", "empty"]


def test_a_name_that_only_sounds_like_an_end_is_a_metric(tmp_path: Path) -> None:
    rows = [{"step": n, "kind": "train", "time": 0.0, "train/clip_low": 0.1} for n in (1, 2)]
    assert recorded_metrics([write_jsonl(tmp_path / "metrics.jsonl", rows)]) == ["train/clip_low"]


def test_ends_that_are_not_finite_make_no_band(tmp_path: Path) -> None:
    row = {"kind": "eval", "time": 0.0, "eval/x": 1.0, "eval/x_low": "nan", "eval/x_high": 2.0}
    file = write_jsonl(tmp_path / "metrics.jsonl", [{"step": n, **row} for n in (1, 2)])
    assert read_curves(file)["eval/x"].lows == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"step": 2, "kind"', "line 2 is not JSON"),
        ('{"step": 2, "train/loss": null}', "line 2: train/loss is null; expected a number"),
        ('{"step": 2, "train/loss": "high"}', 'line 2: train/loss is "high"; expected a number'),
    ],
)
def test_a_damaged_file_is_named_and_the_others_are_read(
    tmp_path: Path, line: str, message: str
) -> None:
    damaged = _metrics(tmp_path / "a", 5)
    lines = damaged.read_text().splitlines(keepends=True)
    damaged.write_text("".join([lines[0], line + "\n", *lines[2:]]))
    files = {"a": damaged, "b": _metrics(tmp_path / "b", 5), "gone": tmp_path / "gone.jsonl"}
    curves, problems = read_lines(files)
    assert list(curves) == ["b"]
    assert f"{damaged} {message}" in problems[0]
    assert "gone.jsonl cannot be read" in problems[1]
    assert first_runs(tmp_path, ["a", "b"]) == ["b"]


def test_a_chart_of_two_runs(tmp_path: Path) -> None:
    curves = {name: read_curves(_metrics(tmp_path / name, 5 * MOST_POINTS)) for name in "ab"}
    for metric, marks in (
        ("train/loss", ["line", "line"]),
        ("eval/sums/accuracy", ["area", "line"]),
    ):
        lines = {name: one[metric] for name, one in curves.items()}
        smoothing = 1 if metric.startswith("eval") else 11
        spec = chart(lines, metric, colours=colours_of(list(lines)), smoothing=smoothing)
        assert [layer["mark"]["type"] for layer in spec["layer"]] == marks
        points = spec["data"]["values"]
        assert len(points) <= 2 * (MOST_POINTS + 2)
        assert {point["run"] for point in points} == {"a", "b"}
    assert points[-1]["step"] == 5 * MOST_POINTS
    colours = spec["encoding"]["color"]["scale"]["range"]
    assert len(set(colours)) == 2


def test_smoothed_points_keep_the_recorded_value(tmp_path: Path) -> None:
    curve = read_curves(_metrics(tmp_path, 9))["train/loss"]
    spec = chart({"a": curve}, "train/loss", colours={"a": "#000"}, smoothing=3)
    first = spec["data"]["values"][0]
    assert (first["raw"], first["value"]) == (0.0, 0.5)


def test_settings_that_differ(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.2)):
        (tmp_path / name).mkdir()
        text = f"name: {name}\nseed: 1\noptimizer:\n  learning_rate: {rate}\n"
        (tmp_path / name / "config.yaml").write_text(text)
    folders = {name: tmp_path / name for name in "ab"}
    assert differing_settings(folders) == [("optimizer.learning_rate", ["0.1", "0.2"])]
    assert differing_settings({"none": tmp_path}) == []


def test_colours_are_told_apart() -> None:
    assert len(set(colours_of(list("abcdef")).values())) == 6
