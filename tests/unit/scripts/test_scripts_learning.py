"""The learning benchmark: every method's settings compose, and results become rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workings.types import Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def task_of(method: str, out: Path, *, seed: int = 1) -> Any:
    from learning_runs import Task

    return Task(method=method, seed=seed, out=out, device="cpu")


def test_every_method_has_settings_that_begin_where_it_says(tmp_path: Path) -> None:
    from learning_runs import METHODS, run_settings

    for name, method in METHODS.items():
        config = run_settings(task_of(name, tmp_path))
        assert (config.kind, config.seed) == (method.kind, 1)
        assert Path(config.output_dir) / config.name == tmp_path / "seed_1" / name
        begins = tmp_path / "seed_1" / method.start / "final" if method.start else "smollm2"
        assert config.model.name_or_path == str(begins)


def test_objectives_are_the_published_presets_as_they_are(tmp_path: Path) -> None:
    from learning_runs import METHODS, run_settings

    from workings.config.objective import PRESETS

    bounds = {"max_gen_batches", "when_short"}  # how long DAPO may draw: not the objective
    for name in (name for name, method in METHODS.items() if method.kind == "grpo"):
        objective = run_settings(task_of(name, tmp_path)).objective
        given = {key for key, value in objective if value is not None} - {"preset"}
        assert objective.preset == name
        assert given <= bounds
        assert name in PRESETS


def test_luffy_and_its_baseline_differ_by_the_demonstrations_alone(tmp_path: Path) -> None:
    from learning_runs import run_settings

    guided = run_settings(task_of("luffy", tmp_path))
    plain = run_settings(task_of("on_policy_noclip", tmp_path))
    assert guided.off_policy.traces == guided.data.train
    left_out = {"name", "objective", "off_policy"}
    assert guided.model_dump(exclude=left_out) == plain.model_dump(exclude=left_out)


def test_pairs_are_a_right_and_a_wrong_answer_that_both_ended() -> None:
    from learning_runs import preference_rows

    def answer(text: str, reward: float, finish_reason: str = "stop") -> Rollout:
        return Rollout(
            ids=(5,),
            sampling_logprobs=(-1.0,),
            kept_mass=(1.0,),
            text=text,
            finish_reason=finish_reason,  # type: ignore[arg-type]
            weight_version=0,
            mask=(True,),
            off_policy=(False,),
            reward=reward,
            components={"format": 1.0, "answer": reward},
            grade=Grade(verdict=Verdict.EQUAL if reward else Verdict.DIFFERENT),
        )

    problem = Problem(id="p", question="1+2", answer="3")
    prompt = Prompt(problem=problem, text="1+2\n<think>", ids=(1, 2))
    answers = (
        *(answer("3", 1.0), answer("3", 1.0), answer("three", 1.0)),
        *(answer("cut", 0.0, "length"), answer("4", 0.0), answer("5", 0.0), answer("6", 0.0)),
    )
    groups = [
        RolloutGroup(prompt=prompt, rollouts=answers),
        RolloutGroup(prompt=prompt, rollouts=answers[:3]),
    ]
    rows = preference_rows(groups, most=2)
    assert rows == [
        {"prompt": "1+2", "chosen": "3", "rejected": "4"},
        {"prompt": "1+2", "chosen": "three", "rejected": "5"},
    ]


def test_results_pair_each_method_with_the_start_of_its_seed(tmp_path: Path) -> None:
    from learning import collect

    right = {"start": (True, False, False, False), "dapo": (True, True, True, False)}
    for seed in (0, 1):
        for method, marks in right.items():
            write_outcome(tmp_path, method, seed, marks)
    tasks = [task_of("dapo", tmp_path, seed=seed) for seed in (0, 1)]
    content = collect(tasks, command="python benchmarks/learning.py", commit="abc")
    rows = {row["name"]: row for row in content["results"]}
    pooled = rows["dapo over its start, pooled by problem"]
    assert (pooled["value"], pooled["n"], pooled["seeds"]) == (50.0, 4, [0, 1])
    assert pooled["low"] <= 50 <= pooled["high"]
    assert rows["accuracy, dapo, seed 1"]["value"] == 75
    assert rows["time of a run, dapo"]["value"] == 7
    assert content["commit"] == "abc"


def test_a_report_reads_the_results(tmp_path: Path) -> None:
    import report
    from learning import collect

    write_outcome(tmp_path, "start", 0, (True, False))
    write_outcome(tmp_path, "gspo", 0, (True, True))
    folder = tmp_path / "results"
    folder.mkdir()
    content = collect([task_of("gspo", tmp_path, seed=0)], command="x", commit=None)
    (folder / "learning.json").write_text(json.dumps(content), encoding="utf-8")
    blocks = report.blocks(folder)
    assert "gspo over its start" in blocks[report.ALL_RESULTS]["all-results"]
    assert "gspo" not in blocks[report.README]["results"]


def write_outcome(out: Path, method: str, seed: int, right: tuple[bool, ...]) -> None:
    """What a finished run leaves behind, as far as the results read it."""
    from learning_runs import OUTCOME, measured_folder

    task = task_of(method, out, seed=seed)
    folder = measured_folder(task)
    folder.mkdir(parents=True)
    lines = [json.dumps({"id": f"p{n}", "correct": mark}) for n, mark in enumerate(right)]
    (folder / "results.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    task.folder.mkdir(parents=True)
    outcome = {
        "accuracy": sum(right) / len(right),
        "low": 0.0,
        "high": 1.0,
        "num_problems": len(right),
        "seconds": 7.0,
        "device": "cpu",
        "environment": {
            "git": None,
            "processor": "p",
            "num_usable_cpus": 2,
            "memory_gb": 1.0,
            "python": "3.12",
            "packages": {},
        },
    }
    (task.folder / OUTCOME).write_text(json.dumps(outcome), encoding="utf-8")
