"""`workings plot --figure`: every figure of the mission from small stored metrics."""

from __future__ import annotations

import doctest
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from workings.cli import figures
from workings.cli.figures import CURVES, line_labels
from workings.cli.main import main

Captured = pytest.CaptureFixture[str]
RECORDED = {
    "train": (
        *("train/loss", "train/completion_length/mean", "train/token_entropy"),
        *("train/clip_fraction", "train/grad_norm"),
    ),
    "eval": ("eval/reward", "eval/format_reward"),
}


def _run(folder: Path, settings: Mapping[str, object], *, seed: int = 0) -> Path:
    """A run's folder with every metric that a figure draws, and samples of two evaluations."""
    folder.mkdir(parents=True)
    config = {"kind": "grpo", "name": folder.name, "seed": seed, **settings}
    (folder / "config.yaml").write_text(json.dumps(config))
    rows = [
        {"step": step, "kind": kind, "time": 0.0} | dict.fromkeys(names, step / 10)
        for step in range(1, 5)
        for kind, names in RECORDED.items()
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for step in range(1, 5):
        place = folder / "eval" / f"step_{step:06d}" / "sums"
        place.mkdir(parents=True)
        samples = [
            {"id": f"p{i}", "metrics": {"reward": float(i < step), "format_reward": 1.0}}
            for i in range(10)
        ]
        (place / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in samples))
    return folder


SETTINGS: dict[str, list[dict[str, object]]] = {
    "sft-loss": [{"data": {"train": {"limit": n}}} for n in (128, None)],
    "rl-reward": [{"optimizer": {"learning_rate": rate}} for rate in (1e-5, 3e-5)],
    "module-ablation": [{"objective": {"reduction": r}} for r in ("token_mean", "sequence_mean")],
    "grpo-reward": [{"epochs_per_rollout": n, "train_batch_size": 64} for n in (1, 2)],
    "grpo-format-reward": [{"model": {"name_or_path": m}} for m in ("hub/base", "runs/sft/final")],
}
LABELS = {
    "sft-loss": ["128 samples", "all samples"],
    "rl-reward": ["lr 1e-05", "lr 3e-05"],
    "module-ablation": ["reduction token mean", "reduction sequence mean"],
    "grpo-reward": ["1 epoch a rollout", "2 epochs a rollout"],
    "grpo-format-reward": ["from hub/base", "from sft/final"],
}


@pytest.mark.parametrize("figure", list(SETTINGS))
def test_lines_are_called_by_what_the_figure_is_about(
    figure: str, tmp_path: Path, capsys: Captured
) -> None:
    runs = [_run(tmp_path / f"run_{i}", one) for i, one in enumerate(SETTINGS[figure])]
    output = tmp_path / "figure.svg"
    assert main(["plot", *map(str, runs), "--figure", figure, "--output", str(output)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == str(output)
    text = output.read_text()
    assert text.count('id="line-') == 2
    for expected in (*LABELS[figure], "Step", CURVES[figure].title):
        assert f">{expected}<" in text
    # Rewards of an evaluation have the interval of the samples that were stored with it.
    assert text.count('id="band-') == (0 if figure == "sft-loss" else 2)


@pytest.mark.parametrize("figure", ["length", "entropy", "clip-fraction", "grad-norm"])
def test_curves_of_one_metric_in_every_format(
    figure: str, tmp_path: Path, capsys: Captured
) -> None:
    run = _run(tmp_path / "run", {})
    assert main(["plot", str(run), "--figure", figure]) == 0
    files = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [file.name for file in files] == [
        f"{figure}.png",
        f"{figure}.svg",
        f"{figure}.pdf",
        f"{figure}.caption.txt",
    ]
    assert files[0].parent == run / "plots"


def test_a_metric_of_training_and_of_evaluation_say_which_they_are(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", {})
    lengths = "".join(
        json.dumps({"step": n, "kind": "eval", "time": 0.0, "eval/avg_response_length/total": n})
        + "\n"
        for n in range(5)
    )
    with (run / "metrics.jsonl").open("a") as file:
        file.write(lengths)
    assert main(["plot", str(run), "--figure", "length", "--output", str(tmp_path / "out")]) == 0
    shown = {
        "length_train_completion_length_mean.svg": (
            *("Length of completions, in training", "Completion length, mean (tokens)"),
        ),
        "length_eval_avg_response_length_total.svg": (
            *("Length of completions, in evaluation", "Avg response length, total (tokens)"),
        ),
    }
    for name, texts in shown.items():
        text = (tmp_path / "out" / name).read_text()
        assert all(f">{expected}<" in text for expected in texts)


def test_step_0_against_the_end(tmp_path: Path, capsys: Captured) -> None:
    runs = [
        _run(tmp_path / name, {"optimizer": {"learning_rate": rate}})
        for name, rate in (("a", 0.1), ("b", 0.2))
    ]
    output = tmp_path / "pair.svg"
    arguments = ["plot", *map(str, runs), "--figure", "step0-final", "--output", str(output)]
    assert main(arguments) == 0
    text = output.read_text()
    assert text.count('id="bar-') == 4
    for expected in ("lr 0.1", "lr 0.2", "+30.0"):
        assert f">{expected}<" in text


def _evaluation(folder: Path, model: str, temperature: float, right: int) -> Path:
    (folder / "sums").mkdir(parents=True)
    (folder / "config.yaml").write_text(f"kind: eval\nname: {folder.name}\n")
    (folder / "metrics.jsonl").write_text('{"step": 0, "kind": "eval", "time": 0.0}\n')
    estimate = {"value": right / 10, "low": 0.0, "high": 0.9, "num_problems": 10}
    summary = {
        "dataset": "sums",
        "estimates": {"pass@1": {**estimate, "num_samples": 1, "interval": "wilson"}},
        "settings": {"model": model, "sampling": {"temperature": temperature, "top_p": 1.0}},
        "total_examples": 10,
        "aggregate_metrics": {},
        "category_breakdown": {},
    }
    (folder / "sums" / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.mark.parametrize(
    ("figure", "panels", "series"),
    [
        ("bars", ["T = 0.0, top_p = 1.0", "T = 1.0, top_p = 1.0"], ["base", "tuned"]),
        ("bars-by-model", ["base", "tuned"], ["T = 0.0, top_p = 1.0", "T = 1.0, top_p = 1.0"]),
    ],
)
def test_bars_by_sampling_and_by_model(
    figure: str, panels: list[str], series: list[str], tmp_path: Path
) -> None:
    folders = [
        _evaluation(tmp_path / f"{model}_{temperature}", model, temperature, right)
        for right, (model, temperature) in enumerate(
            (m, t) for m in ("base", "tuned") for t in (0.0, 1.0)
        )
    ]
    output = tmp_path / "bars.svg"
    arguments = ["plot", *map(str, folders), "--figure", figure, "--output", str(output)]
    assert main(arguments) == 0
    text = output.read_text()
    assert text.count('id="bar-') == 4
    for expected in (*panels, *series):
        assert f">{expected}<" in text
    repeated = [*arguments, str(folders[0])]
    assert main(repeated) == 2


def test_a_grid_of_evaluations_stands_for_its_cells(tmp_path: Path) -> None:
    grid, output = tmp_path / "grid", tmp_path / "bars.svg"
    arguments = ["plot", str(grid), "--figure", "bars", "--output", str(output)]
    grid.mkdir()
    (grid / "metrics_summary.csv").write_text("folder\n")
    assert main(arguments) == 2
    for right, model in enumerate(("base", "tuned")):
        _evaluation(grid / model / "T0_top_p1", model, 0.0, right)
    assert main(arguments) == 0
    text = output.read_text()
    assert text.count('id="bar-') == 2
    assert all(f">{name}<" in text for name in ("base", "tuned", "T = 0.0, top_p = 1.0"))


def test_the_memory_of_a_profile(tmp_path: Path, capsys: Captured) -> None:
    rows = [{"optimizer": "adamw", "sequence_length": n, "max_batch_size": 8} for n in (64, 128)]
    (tmp_path / "profile").mkdir()
    file = tmp_path / "profile" / "largest.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["plot", str(tmp_path), "--figure", "memory"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == str(tmp_path / "plots" / "memory.png")
    assert ">rows that fit<" in (tmp_path / "plots" / "memory.svg").read_text()
    assert main(["plot", str(tmp_path / "profile" / "none"), "--figure", "memory"]) == 2


def test_a_sweep_stands_for_its_finished_runs(tmp_path: Path) -> None:
    runs = []
    for name, rate, status in (("a", 0.1, "finished"), ("b", 0.2, "finished"), ("c", 1, "failed")):
        _run(tmp_path / name, {"optimizer": {"learning_rate": rate}})
        runs.append(
            {
                "name": name,
                "folder": name,
                "status": status,
                "values": {},
                "error": "",
                "seconds": 1,
            }
        )
    (tmp_path / "sweep.json").write_text(json.dumps({"runs": runs}))
    output = tmp_path / "sweep.svg"
    assert main(["plot", str(tmp_path), "--figure", "rl-reward", "--output", str(output)]) == 0
    assert output.read_text().count('id="line-') == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--figure", "rl-rewards"], "unknown figure 'rl-rewards'; did you mean 'rl-reward'?"),
        (["--figure", "memory", "--metric", "x"], "draws no metric that --metric could name"),
        (["--figure", "sft-loss", "--metric", "train/x"], "unknown metric 'train/x'"),
    ],
)
def test_what_cannot_be_drawn(
    arguments: list[str], message: str, tmp_path: Path, capsys: Captured
) -> None:
    assert main(["plot", str(_run(tmp_path / "run", {})), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_doctests() -> None:
    assert doctest.testmod(figures).failed == 0


def test_seeds_share_a_name_and_much_difference_does_not() -> None:
    rates = [{"optimizer.learning_rate": r, "seed": s} for r in (0.1, 0.2) for s in (0, 1)]
    folders = ["a", "b", "c", "d"]
    assert line_labels(rates, folders) == ["lr 0.1", "lr 0.1", "lr 0.2", "lr 0.2"]
    many = [{f"s{i}": run for i in range(5)} for run in range(2)]
    assert line_labels(many, ["a", "b"]) == ["a", "b"]
    assert line_labels(many, ["a", "b"], by=["s1"]) == ["s1 0", "s1 1"]
    assert line_labels([{"a": 1}, {"a": 1}], ["x", "y"]) == ["x", "y"]
