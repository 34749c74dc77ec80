"""`workings plot`: which figures are drawn of which runs, where they go, and their captions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workings.cli.main import main
from workings.cli.plotted_runs import labels

Captured = pytest.CaptureFixture[str]


def _run(folder: Path, *, kind: str = "grpo", rate: float = 0.1, points: int = 3) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        f"kind: {kind}\nname: {folder.name}\nseed: 4\nmodel: {{name_or_path: m}}\n"
        f"optimizer: {{learning_rate: {rate}}}\n"
    )
    (folder / "environment.json").write_text(json.dumps({"git": {"commit": "abc", "dirty": False}}))
    names = {"grpo": "train/reward", "sft": "train/loss"}
    rows = [
        {"step": step, "kind": "train", "time": 0.0, names[kind]: 0.1 * step, "train/grad_norm": 1}
        for step in range(1, points + 1)
    ]
    rows.append({"step": 1, "kind": "eval", "time": 0.0, "eval/accuracy": 0.5})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_the_figures_of_a_real_run(grpo_run: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(["plot", str(grpo_run), "--output", str(tmp_path)]) == 0
    files = [Path(line) for line in capsys.readouterr().out.splitlines()]
    stems = list(dict.fromkeys(path.name.partition(".")[0] for path in files))
    wanted = ["train_reward", "eval_accuracy", "train_policy_loss", "train_clip_fraction"]
    assert stems[:2] == wanted[:2]
    assert set(wanted) <= set(stems)
    assert {path.suffix for path in files} == {".png", ".svg", ".pdf", ".txt"}
    assert all(path.stat().st_size > 0 for path in files)


def test_the_default_place_and_only_what_was_recorded_twice(
    tmp_path: Path, capsys: Captured
) -> None:
    run = _run(tmp_path / "a")
    assert main(["plot", str(run)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == str(run / "plots" / "train_reward.png")
    assert "eval_accuracy" not in out
    assert "train_grad_norm" in out


def test_several_runs_and_what_they_differ_in(tmp_path: Path, capsys: Captured) -> None:
    runs = [_run(tmp_path / "a", rate=0.1), _run(tmp_path / "b", rate=0.3)]
    file = tmp_path / "reward.svg"
    arguments = ["plot", *map(str, runs), "--metric", "reward", "--output", str(file)]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{file}\n{tmp_path / 'reward.caption.txt'}\n"
    assert file.read_text().count(">a<") == 1
    assert (tmp_path / "reward.caption.txt").read_text().splitlines()[1:] == [
        "kind: grpo",
        "model.name_or_path: m",
        "seed: 4",
        "commit: abc",
        "a: optimizer.learning_rate=0.1",
        "b: optimizer.learning_rate=0.3",
    ]


def test_runs_of_two_kinds(tmp_path: Path, capsys: Captured) -> None:
    runs = [_run(tmp_path / "s", kind="sft"), _run(tmp_path / "g")]
    assert main(["plot", *map(str, runs)]) == 0
    out, err = capsys.readouterr()
    assert "note: train/loss was not recorded by g\n" in err
    assert str(tmp_path / "s" / "plots" / "train_reward.png") in out.splitlines()


def test_long_curves_are_smoothed(tmp_path: Path) -> None:
    run = _run(tmp_path / "a", points=100)
    assert main(["plot", str(run), "--metric", "train/reward"]) == 0
    caption = (run / "plots" / "train_reward.caption.txt").read_text()
    assert "Lines are centred means over 11 steps" in caption


def test_evaluations_are_bars(tiny_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    for name, tokens in (("one", 4), ("two", 6)):
        arguments = ["eval", f"model.name_or_path={tiny_folder}", f"output_dir={tmp_path}"]
        arguments += [f"name={name}", "template=think", f"sampling.max_tokens={tokens}"]
        arguments += ["datasets=[{path: arithmetic, options: {num_problems: 3, terms: 3}}]"]
        assert main([*arguments, "tracking.console=false"]) == 0
    capsys.readouterr()
    assert main(["plot", str(tmp_path / "one"), str(tmp_path / "two")]) == 0
    files = capsys.readouterr().out.splitlines()
    assert files[0] == str(tmp_path / "one" / "plots" / "accuracy.png")
    caption = Path(files[-1]).read_text()
    assert "Accuracy of one, two on arithmetic" in caption
    assert "one: sampling.max_tokens=4" in caption


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", "--metric", "rewards"], "unknown metric 'rewards'; did you mean 'train/reward'?"),
        (["RUN", "--output", "x.gif", "--metric", "reward"], "unknown format 'gif'; expected one"),
        (["RUN", "--output", "x.png"], "x.png is one file, and there are 2 figures to draw"),
        (["PARENT"], "it holds no metrics.jsonl\n\nhint: it holds runs: a, b"),
        (["RUN", "B", "--metric", "train/loss"], "unknown metric 'train/loss'"),
    ],
)
def test_what_cannot_be_drawn(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"RUN": _run(tmp_path / "a"), "B": _run(tmp_path / "b", kind="sft")}
    places["PARENT"] = tmp_path
    assert main(["plot", *(str(places.get(word, word)) for word in arguments)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("content", ['{"git": {"com', "[]", '{"git": 3}', ""])
def test_a_damaged_environment_is_named(tmp_path: Path, content: str, capsys: Captured) -> None:
    run = _run(tmp_path / "a")
    (run / "environment.json").write_text(content)
    assert main(["plot", str(run)]) == 2
    err = capsys.readouterr().err
    assert f"error: {run / 'environment.json'} is no record of a run's environment: " in err
    assert "remove it to plot without" in err


def test_a_damaged_metric_is_named_with_its_line(tmp_path: Path, capsys: Captured) -> None:
    run = _run(tmp_path / "a")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9, "train/reward": null}\n')
    assert main(["plot", str(run)]) == 2
    expected = "metrics.jsonl line 5: train/reward is null; expected a number"
    assert expected in capsys.readouterr().err


def test_labels_are_as_short_as_they_can_be() -> None:
    runs = [Path("x/a/grpo"), Path("x/a/sft"), Path("x/b/grpo")]
    assert labels(runs) == ["a/grpo", "a/sft", "b/grpo"]
    assert labels(runs[:1]) == ["grpo"]
