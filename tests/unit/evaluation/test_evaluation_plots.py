"""Figures: what is drawn, what is said beside it, and what is refused."""

from __future__ import annotations

import doctest
import itertools
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import pytest

from workings.errors import ConfigError
from workings.evaluation import plot_series, plot_style, plots, plots_memory
from workings.evaluation.metrics import Estimate, estimate
from workings.evaluation.plot_style import COLOURS, LINES, MARKERS, lightness
from workings.evaluation.plots import metric_label, plot_curves, plot_quickstart
from workings.evaluation.plots_points import plot_points
from workings.tracking.jsonl import MetricsFile


def of(right: int, total: int) -> Estimate:
    marks: Sequence[int] = [1] * right + [0] * (total - right)
    return estimate(marks, num_samples=1, seed=0)


STAGES = {"base": of(76, 200), "SFT": of(126, 200), "GRPO": of(148, 200), "control": of(129, 200)}


@pytest.mark.parametrize("module", [plots, plot_style, plot_series, plots_memory])
def test_doctests(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


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
        "where the run stored what they need.\nseed: 0\nlearning rates: 1e-5, 2e-5\n"
    )


def parts(svg: Path, kind: str) -> list[str]:
    """The groups of an SVG whose id begins with `kind`, each with what is inside."""
    found = re.findall(rf'<g id="{kind}-.*?</g>', svg.read_text(), re.DOTALL)
    return [re.sub(r"\s+", " ", part) for part in found]


def test_a_line_and_a_band_for_every_run(tmp_path: Path, metrics_file: Path) -> None:
    output = tmp_path / "curves.svg"
    runs = {"a": metrics_file, "b": metrics_file, "c": metrics_file}
    plot_curves(runs, "eval/sums/accuracy", output)
    assert len(parts(output, "line")) == len(parts(output, "band")) == 3
    plot_curves(runs, "train/reward", output)
    assert len(parts(output, "line")) == 3
    assert parts(output, "band") == []
    assert "no bands" in (tmp_path / "curves.caption.txt").read_text()


def test_lines_are_told_apart_without_colour(tmp_path: Path, metrics_file: Path) -> None:
    """By dashes and marker, for more lines than there are colours."""
    output = tmp_path / "many.svg"
    plot_curves({f"run {i}": metrics_file for i in range(14)}, "train/reward", output)
    styles = []
    for part in parts(output, "line"):
        dashes = re.search(r"stroke-dasharray: ([\d., ]+)", part)
        styles.append(
            (dashes[1] if dashes else "solid", re.findall(r'<path id="m\w+" d="(.*?)"', part))
        )
    assert len(styles) == 14
    assert len({str(style) for style in styles}) == 14


def test_several_seeds_are_one_line_with_their_range(tmp_path: Path) -> None:
    files = []
    for seed in range(3):
        sink = MetricsFile(tmp_path / f"seed_{seed}" / "metrics.jsonl")
        for step in (1, 2):
            sink.record(step, "train", {"train/reward": step + seed / 10}, time=0.0)
        sink.close()
        files.append(sink.path)
    output = tmp_path / "seeds.svg"
    plot_curves({"three seeds": files}, "train/reward", output)
    assert len(parts(output, "line")) == len(parts(output, "band")) == 1
    caption = (tmp_path / "seeds.caption.txt").read_text()
    assert "Lines are means over 3 seeds, bands reach from the lowest to the highest." in caption


def _diverging(folder: Path, values: Sequence[float]) -> Path:
    sink = MetricsFile(folder / "metrics.jsonl")
    for step, value in enumerate(values, start=1):
        sink.record(step, "train", {"train/reward": value}, time=0.0)
    sink.close()
    return sink.path


def test_values_that_are_not_finite_are_counted_in_the_caption(tmp_path: Path) -> None:
    """One NaN costs its own point alone, not those that a moving mean would put it into."""
    nan = float("nan")
    file = _diverging(tmp_path / "a", [0.1, 0.2, nan, 0.4, 0.5])
    plot_curves({"a": file}, "train/reward", tmp_path / "a.svg", smoothing=3)
    assert "1 value is NaN or infinite and not drawn." in (tmp_path / "a.caption.txt").read_text()
    (line,) = parts(tmp_path / "a.svg", "line")
    path = re.search(r'<path d="(.*?)"', line)
    assert path is not None
    assert len(re.findall("[ML]", path[1])) == 4
    both = {"a": file, "b": _diverging(tmp_path / "b", [nan, float("inf")])}
    plot_curves(both, "train/reward", tmp_path / "b.svg")
    caption = (tmp_path / "b.caption.txt").read_text()
    assert "3 values are NaN or infinite and not drawn." in caption
    plot_quickstart(STAGES, file, tmp_path / "q.svg")
    assert "1 value is NaN or infinite" in (tmp_path / "q.caption.txt").read_text()
    plot_points({"a": [(nan, None, None)], "b": [(0.5, 0.4, 0.6)]}, "x/y", tmp_path / "p.svg")
    assert "1 value is NaN or infinite" in (tmp_path / "p.caption.txt").read_text()


def test_a_loss_has_no_unit_because_each_kind_of_run_has_another() -> None:
    assert metric_label("train/loss") == "Loss"
    assert metric_label("train/token_entropy") == "Token entropy (nats per token)"


def test_neighbours_of_the_palette_differ_in_greyscale() -> None:
    """Lightness against an independent sum of products, and by at least 5 of 100 side by side."""
    pairs = itertools.pairwise([*COLOURS, COLOURS[0]])
    assert min(abs(lightness(a) - lightness(b)) for a, b in pairs) >= 5
    for colour, published in (("#FF0000", 53.24), ("#00FF00", 87.73), ("#0000FF", 32.30)):
        assert lightness(colour) == pytest.approx(published, abs=0.01)
    assert len(LINES) == 5
    assert len(set(MARKERS)) == len(MARKERS) == 7


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
