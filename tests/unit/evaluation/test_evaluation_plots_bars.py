"""Bars with intervals, paired bars with differences, points, and heat maps."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from workings.errors import DataError
from workings.evaluation.compare import compare_by_problem
from workings.evaluation.metrics import Estimate, estimate
from workings.evaluation.plots_bars import plot_bar_panels, plot_bars
from workings.evaluation.plots_before_after import plot_before_after, read_before_after
from workings.evaluation.plots_memory import plot_memory, read_largest
from workings.evaluation.plots_points import plot_points


def of(right: int, total: int) -> Estimate:
    marks: Sequence[int] = [1] * right + [0] * (total - right)
    return estimate(marks, num_samples=1, seed=0)


def shown(svg: Path) -> str:
    return svg.read_text()


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


def test_a_bar_for_every_estimate(tmp_path: Path) -> None:
    values = {"one": {"a": of(1, 4), "b": of(2, 4)}, "two": {"b": of(3, 4)}}
    output = tmp_path / "bars.svg"
    plot_bars(values, output)
    ids = re.findall(r'id="(bar-\S+?)"', shown(output))
    assert ids == ["bar-one-0", "bar-one-1", "bar-two-0"]
    assert "url(#h" in shown(output)  # the second series is hatched


def test_panels_share_a_legend(tmp_path: Path) -> None:
    base, tuned = {"sums": of(3, 10)}, {"sums": of(8, 10)}
    panels = {
        "T = 0, top_p = 1": {"base": base, "tuned": tuned},
        "T = 1, top_p = 0.95": {"base": base, "tuned": tuned},
    }
    output = tmp_path / "panels.svg"
    plot_bar_panels(panels, output, settings={"seed": 0})
    text = shown(output)
    for expected in (*panels, "sums"):
        assert f">{expected}<" in text
    assert text.count(">tuned<") == 1
    assert len(re.findall(r'id="bar-', text)) == 4
    assert "n = 10 problems" in (tmp_path / "panels.caption.txt").read_text()


def _run(folder: Path, marks: dict[int, dict[str, int]]) -> Path:
    for step, right in marks.items():
        place = folder / "eval" / f"step_{step:06d}" / "sums"
        place.mkdir(parents=True)
        rows = [
            {"id": name, "sample": 0, "metrics": {"reward": float(value)}}
            for name, value in right.items()
        ]
        (place / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_before_and_after_are_paired_by_problem(tmp_path: Path) -> None:
    first = {f"p{i}": int(i < 5) for i in range(20)}
    middle = dict.fromkeys(first, 0)
    last = {f"p{i}": int(i < 15) for i in range(20)}
    found = read_before_after(_run(tmp_path / "run", {0: first, 5: middle, 10: last}))["sums"]
    assert (found.first_step, found.last_step) == (0, 10)
    assert (found.before, found.after) == (of(5, 20), of(15, 20))
    expected = compare_by_problem(
        {name: float(value) for name, value in first.items()},
        {name: float(value) for name, value in last.items()},
    )
    assert found.difference == expected
    output = tmp_path / "pair.svg"
    plot_before_after({"sums": found}, output, title="Before and after")
    text = shown(output)
    for label in ("step 0", "final", "+50.0", "sums", "Before and after"):
        assert f">{label}<" in text
    assert len(re.findall(r'id="bar-', text)) == 2
    caption = (tmp_path / "pair.caption.txt").read_text()
    assert "sums: steps 0 and 10" in caption
    assert "paired by problem" in caption


def test_before_and_after_of_other_problems_are_refused(tmp_path: Path) -> None:
    run = _run(tmp_path, {0: {"a": 1}, 5: {"a": 1}})
    for step, gold in (("step_000000", "4"), ("step_000005", "5")):
        file = run / "eval" / step / "sums" / "results.jsonl"
        file.write_text(json.dumps({**json.loads(file.read_text()), "ground_truth": gold}))
    with pytest.raises(DataError, match="'a': '4' in step 0, '5' in step 5"):
        read_before_after(run)


def test_a_folder_of_no_step_is_left_out(tmp_path: Path) -> None:
    run = _run(tmp_path, {0: {"a": 1, "b": 0}, 5: {"a": 1, "b": 1}})
    (run / "eval/step_000005").rename(run / "eval/step_best")
    with pytest.raises(DataError, match="no two evaluations"):
        read_before_after(run)


def test_one_evaluation_is_no_pair(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no two evaluations") as caught:
        read_before_after(_run(tmp_path, {0: {"a": 1}}))
    assert caught.value.hint is not None


def test_points_carry_whiskers_and_seeds(tmp_path: Path) -> None:
    output = tmp_path / "points.svg"
    points = {"lr 1e-5": [(0.5, 0.4, 0.6), (0.55, 0.45, 0.65)], "lr 3e-5": [(0.7, None, None)]}
    plot_points(points, "eval/accuracy", output)
    text = shown(output)
    for label in (*points, "Accuracy"):
        assert f">{label}<" in text
    assert "95 % intervals" in (tmp_path / "points.caption.txt").read_text()


def test_a_heat_map_of_the_largest_batches(tmp_path: Path) -> None:
    """The reference figures of evaluation.md section 8."""
    table = {"adamw": (31, 14, 7), "adamw offloaded": (36, 14, 7), "adamw plain": (7, 2, 0)}
    rows = [
        {
            "model_name": "m",
            "optimizer": optimizer,
            "gradient_checkpointing": optimizer != "adamw plain",
            "sequence_length": length,
            "max_batch_size": size,
        }
        for optimizer, sizes in table.items()
        for length, size in zip((2048, 4096, 8192), sizes, strict=True)
    ]
    file = tmp_path / "largest.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = tmp_path / "memory.svg"
    plot_memory(read_largest(file), output, title="Memory")
    text = shown(output)
    for label in ("2,048", "4,096", "8,192", "31", "36", "adamw plain, no gradient checkpointing"):
        assert f">{label}<" in text
    assert "a cross is none" in (tmp_path / "memory.caption.txt").read_text()


@pytest.mark.parametrize(
    ("line", "message"),
    [("{", "line 1 is not JSON"), ("{}", "needs sequence_length"), ("", "holds no rows")],
)
def test_what_is_no_memory_profile_is_refused(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "largest.jsonl"
    file.write_text(line)
    with pytest.raises(DataError, match=message):
        read_largest(file)
