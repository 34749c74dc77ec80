"""Figures: what is drawn, what is said beside it, and what is refused."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import pytest

from workings.errors import ConfigError, DataError
from workings.evaluation import plots
from workings.evaluation.metrics import Estimate, estimate
from workings.evaluation.plots import (
    Series,
    moving_mean,
    plot_bars,
    plot_curves,
    plot_quickstart,
    read_series,
)
from workings.tracking.jsonl import MetricsFile


def of(right: int, total: int) -> Estimate:
    marks: Sequence[int] = [1] * right + [0] * (total - right)
    return estimate(marks, num_samples=1, seed=0)


@pytest.fixture
def metrics_file(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "metrics.jsonl"
    sink = MetricsFile(path)
    for step in range(13):
        if step:
            row = {"train/reward": step / 20, "train/loss": 0.001}
            sink.record(step, "train", row, time=0.0)
        if step % 4 == 0:
            accuracy = 0.4 + step / 40
            row = {
                "eval/sums/accuracy": accuracy,
                "eval/sums/accuracy_low": accuracy - 0.05,
                "eval/sums/accuracy_high": accuracy + 0.05,
            }
            sink.record(step, "eval", row, time=0.0)
    sink.close()
    return path


STAGES = {"base": of(76, 200), "SFT": of(126, 200), "GRPO": of(148, 200), "control": of(129, 200)}


def test_doctests() -> None:
    assert doctest.testmod(plots).failed == 0


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


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
def test_the_suffix_picks_the_format(tmp_path: Path, metrics_file: Path, suffix: str) -> None:
    output = tmp_path / "plots" / f"reward{suffix}"
    written = plot_curves({"run": metrics_file}, "train/reward", output)
    assert written == [output, tmp_path / "plots" / "reward.caption.txt"]
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix.lower()]
    assert output.read_bytes().startswith(start)


def test_without_a_suffix_all_three_are_written(tmp_path: Path, metrics_file: Path) -> None:
    written = plot_curves({"run": metrics_file}, "train/reward", tmp_path / "lr_1e-5")
    assert [path.name for path in written] == [
        "lr_1e-5.png",
        "lr_1e-5.svg",
        "lr_1e-5.pdf",
        "lr_1e-5.caption.txt",
    ]


def test_an_unknown_format_is_refused(tmp_path: Path, metrics_file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        plot_curves({"run": metrics_file}, "train/reward", tmp_path / "reward.gif")
    assert str(caught.value) == (
        f"cannot draw {tmp_path / 'reward.gif'}: unknown format 'gif'; expected one of .png, .svg, "
        ".pdf"
    )


def test_curves_name_axes_and_runs(tmp_path: Path, metrics_file: Path) -> None:
    output = tmp_path / "accuracy.svg"
    runs = {"lr 1e-5": metrics_file, "lr 2e-5": metrics_file}
    settings = {"seed": 0, "learning rates": "1e-5, 2e-5"}
    plot_curves(runs, "eval/sums/accuracy", output, title="Validation", settings=settings)
    text = output.read_text()
    for expected in ("Validation", "Step", "Accuracy (sums)", "lr 1e-5", "lr 2e-5"):
        assert f">{expected}<" in text
    assert (tmp_path / "accuracy.caption.txt").read_text() == (
        "Accuracy (sums) by step (eval/sums/accuracy); lr 1e-5, lr 2e-5. Bands are 95 % intervals "
        "where the run stored them.\nseed: 0\nlearning rates: 1e-5, 2e-5\n"
    )


def test_many_runs_can_be_told_apart(tmp_path: Path, metrics_file: Path) -> None:
    runs = {f"run {index}": metrics_file for index in range(14)}
    assert plot_curves(runs, "train/reward", tmp_path / "many.png", smoothing=3)[0].exists()


def test_bars_name_data_sets_and_series(tmp_path: Path) -> None:
    values = {
        "step 0": {"math500": of(190, 500), "aime24": of(2, 30)},
        "final": {"math500": of(250, 500)},
    }
    output = tmp_path / "bars.svg"
    plot_bars(values, output, title="Step 0 against final")
    text = output.read_text()
    for expected in ("math500", "aime24", "step 0", "final", "Accuracy (% of problems)"):
        assert f">{expected}<" in text
    caption = (tmp_path / "bars.caption.txt").read_text()
    assert "95 % intervals (Wilson); n = 30, 500 problems, 1 sample(s) each" in caption


def test_a_quickstart_shows_stages_and_training(tmp_path: Path, metrics_file: Path) -> None:
    output = tmp_path / "quickstart.svg"
    plot_quickstart(
        STAGES,
        metrics_file,
        output,
        validation_metric="eval/sums/accuracy",
        title="A small model learns sums",
        settings={"model": "SmolLM2-135M-Instruct", "seed": 0},
    )
    text = output.read_text()
    for expected in ("base", "SFT", "GRPO", "control", "38.0", "74.0", "GRPO step"):
        assert f">{expected}<" in text
    caption = (tmp_path / "quickstart.caption.txt").read_text()
    assert "n = 200 problems" in caption
    assert "centred mean over 5 steps" in caption
    assert "model: SmolLM2-135M-Instruct\nseed: 0\n" in caption


def test_a_quickstart_without_validation_or_long_names(tmp_path: Path, metrics_file: Path) -> None:
    stages = {"base": of(1, 10), "more SFT instead of GRPO (control)": of(5, 10)}
    assert plot_quickstart(stages, metrics_file, tmp_path / "q.png")[0].exists()


def test_the_same_numbers_give_the_same_bytes(tmp_path: Path, metrics_file: Path) -> None:
    for suffix in ("svg", "png", "pdf"):
        first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
        for output in (first, second):
            plot_curves({"run": metrics_file}, "train/reward", output)
        assert first.read_bytes() == second.read_bytes()


def test_drawing_leaves_no_trace_in_matplotlib(tmp_path: Path, metrics_file: Path) -> None:
    before = dict(mpl.rcParams)
    plot_curves({"run": metrics_file}, "train/reward", tmp_path / "a.png")
    assert dict(mpl.rcParams) == before


def test_plots_import_matplotlib_late_and_torch_never() -> None:
    program = (
        "import sys\n"
        "import workings.evaluation.plots\n"
        "heavy = {'torch', 'matplotlib', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
