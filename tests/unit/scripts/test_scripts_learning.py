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
    from learning_tasks import Task

    return Task(method=method, seed=seed, out=out, device="cpu")


def test_every_method_has_settings_that_begin_where_it_says(tmp_path: Path) -> None:
    from learning_tasks import METHODS, run_settings

    for name, method in METHODS.items():
        config = run_settings(task_of(name, tmp_path))
        assert (config.kind, config.seed) == (method.kind, 1)
        assert Path(config.output_dir) / config.name == tmp_path / "seed_1" / name
        begins = tmp_path / "seed_1" / method.start / "final" if method.start else "smollm2"
        assert config.model.name_or_path == str(begins)


def test_objectives_are_the_published_presets_as_they_are(tmp_path: Path) -> None:
    from learning_tasks import METHODS, run_settings

    from workings.config.objective import PRESETS

    bounds = {"max_gen_batches", "when_short"}  # how long DAPO may draw: not the objective
    without_bonus = {"luffy", "on_policy_noclip"}  # see benchmarks/learning/luffy.yaml
    for name in (name for name, method in METHODS.items() if method.kind == "grpo"):
        objective = run_settings(task_of(name, tmp_path)).objective
        given = {key for key, value in objective if value is not None} - {"preset"}
        assert objective.preset == name
        assert given <= (bounds | {"entropy_coef"} if name in without_bonus else bounds)
        assert name in PRESETS


def test_luffy_and_its_baseline_differ_by_the_demonstrations_alone(tmp_path: Path) -> None:
    from learning_tasks import run_settings

    guided = run_settings(task_of("luffy", tmp_path))
    plain = run_settings(task_of("on_policy_noclip", tmp_path))
    assert guided.off_policy.traces == guided.data.train
    assert guided.objective.entropy_coef == plain.objective.entropy_coef == 0
    left_out = {"name", "objective", "off_policy"}
    assert guided.model_dump(exclude=left_out) == plain.model_dump(exclude=left_out)


def test_pairs_are_a_right_and_a_wrong_answer_that_both_ended() -> None:
    from learning_samples import preference_rows

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
    from learning_rows import collect

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
    assert rows["processor time of a run, dapo"]["value"] == 12
    assert content["commit"] == "abc"


def test_results_say_how_much_reward_there_is_at_first(tmp_path: Path) -> None:
    from learning_rows import collect

    for seed, num_right in ((0, 0), (1, 2)):
        sampled = {"num_right": num_right, "num_samples": 100}
        write_outcome(tmp_path, "short_sums", seed, (False, False), sampled=sampled)
        plain = ({"train/rewards/answer/mean": 0.0}, {"train/rewards/answer/mean": 0.25})
        write_outcome(tmp_path, "on_policy_noclip", seed, (False, False), metrics=plain)
        guided = ({"eval/accuracy": 0.9}, {"train/off_policy/own_right": 0.5 * seed})
        write_outcome(tmp_path, "luffy", seed, (True, False), metrics=guided)
    methods = ("luffy", "on_policy_noclip")
    tasks = [task_of(method, tmp_path, seed=seed) for method in methods for seed in (0, 1)]
    content = collect(tasks, command="x", commit=None)
    rows = {row["name"]: row for row in content["results"]}
    start = rows["right samples of short_sums, as the runs draw them"]
    assert (start["value"], start["n"], start["seeds"]) == (1.0, 200, [0, 1])
    assert start["low"] < 1 < start["high"]
    assert start["note"] == "by seed: 0 of 100, 2 of 100"
    assert rows["right own samples of on_policy_noclip, first step"]["value"] == 0
    assert rows["right own samples of on_policy_noclip, last step"]["value"] == 25
    first = rows["right own samples of luffy, first step"]
    assert (first["value"], first["note"]) == (25, "% in each step; seed 0: 0; seed 1: 50")
    over = rows["luffy over on_policy_noclip, pooled by problem"]
    assert (over["value"], over["seeds"]) == (50, [0, 1])


def test_a_run_that_was_stopped_has_no_time(tmp_path: Path) -> None:
    from learning_rows import collect
    from learning_tasks import OUTCOME

    for seed in (0, 1, 2):
        write_outcome(tmp_path, "start", seed, (True, False))
    path = tmp_path / "seed_1" / "start" / OUTCOME
    path.write_text(path.read_text(encoding="utf-8").replace("7.0", "null"), encoding="utf-8")
    tasks = [task_of("start", tmp_path, seed=seed) for seed in (0, 1, 2)]
    rows = {row["name"]: row for row in collect(tasks, command="x", commit=None)["results"]}
    assert rows["time of a run, start"]["seeds"] == [0, 2]


def test_a_report_reads_the_results(tmp_path: Path) -> None:
    import report
    from learning_rows import collect

    write_outcome(tmp_path, "start", 0, (True, False))
    write_outcome(tmp_path, "gspo", 0, (True, True))
    folder = tmp_path / "results"
    folder.mkdir()
    tasks = [task_of("gspo", tmp_path, seed=0)]
    content = collect(tasks, command="x", commit=None, notes=["Chosen with seed 10."])
    (folder / "learning.json").write_text(json.dumps(content), encoding="utf-8")
    blocks = report.blocks(folder)
    assert "gspo over its start" in blocks[report.ALL_RESULTS]["all-results"]
    assert "Chosen with seed 10" in blocks[report.ALL_RESULTS]["all-results"]
    assert "gspo" not in blocks[report.README]["results"]


def write_outcome(
    out: Path,
    method: str,
    seed: int,
    right: tuple[bool, ...],
    *,
    sampled: dict[str, int] | None = None,
    metrics: tuple[dict[str, float], ...] = (),
) -> None:
    """What a finished run leaves behind, as far as the results read it."""
    from learning_tasks import OUTCOME, measured_folder

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
        "processor_seconds": 12.0,
        "device": "cpu",
        "num_threads": 2,
        "sampled": sampled,
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
    rows = "".join(json.dumps(row) + "\n" for row in metrics)
    (task.folder / "metrics.jsonl").write_text(rows, encoding="utf-8")
