"""Every example runs, on a tiny model, and prints what it promises."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tiny import save_tiny
from workings import read_metrics

EXAMPLES = Path(__file__).parents[2] / "examples"
Run = Callable[..., str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs an example's `main` and gives what it printed."""

    def run_example(name: str, *arguments: str) -> str:
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.main(*([list(arguments)] if arguments else []))
        return capsys.readouterr().out

    return run_example


def test_grade_answers(run: Run) -> None:
    lines = run("grade_answers").splitlines()
    verdicts = [re.search(r"gold \S+ +(\w+)", line) for line in lines[:-1]]
    assert [match[1] for match in verdicts if match] == [
        *("equal", "equal", "equal", "different", "no_answer", "refused"),
    ]
    assert lines[-1] == "{'format_reward': 1.0, 'answer_reward': 1.0, 'reward': 1.0}"


def test_advantages_and_loss(run: Run) -> None:
    out = run("advantages_and_loss")
    assert re.findall(r"loss +(-?[\d.]+)  \|gradient\|", out) == ["0.00", "0.50", "0.25", "2.00"]
    assert "[0.866, -0.866, -0.866, 0.866], [0.0, 0.0, 0.0, 0.0]" in out
    assert "at once 1.75, in two microbatches 1.75" in out


def test_sample_and_grade(run: Run, model: Path) -> None:
    scripted = run("sample_and_grade", str(model), "--scripted")
    assert re.findall(r"reward (\S+)", scripted) == ["1.0", "0.0", "0.0", "0.0", "0.0", "0.0"]
    sampled = run("sample_and_grade", str(model))
    assert len(re.findall(r"reward 0\.0", sampled)) == 6
    assert sampled.endswith("the next batch begins at cursor 2\n")


def test_own_reward(run: Run) -> None:
    rewards = [float(line.split()[0]) for line in run("own_reward").splitlines()]
    assert rewards == [0.835, 0.685, -0.165]


@pytest.mark.parametrize(("kind", "metric"), [("sft", "loss"), ("grpo", "reward")])
def test_training(run: Run, model: Path, tmp_path: Path, kind: str, metric: str) -> None:
    out = run(f"train_{kind}", str(model), "--steps", "2", "--output", str(tmp_path))
    assert len(re.findall(rf"step \d: {metric} \d\.\d", out)) == 2
    assert out.endswith(f"the model is in {tmp_path / 'final'}\n")
    assert (tmp_path / "final" / "model.safetensors").is_file()
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2]


def test_every_example_is_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    names = [path.stem for path in EXAMPLES.glob("*.py")]
    missing = [name for name in names if name.replace("train_", "") not in text]
    assert names
    assert missing == []
