"""The learning benchmark's runs: what is run, gone on with, sampled, measured, and said of it."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tiny import save_tiny
from workings.errors import AlreadyFinished, DataError
from workings.types import Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
OUTCOME = {"accuracy": 0.5, "low": 0.4, "high": 0.6, "num_problems": 2, "seconds": 7.0}


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def task_of(method: str, out: Path, *, seed: int = 1, **settings: Any) -> Any:
    from learning_tasks import Task

    return Task(method=method, seed=seed, out=out, device="cpu", **settings)


def finish(task: Any, **values: Any) -> None:
    from learning_tasks import OUTCOME as FILE

    task.folder.mkdir(parents=True, exist_ok=True)
    (task.folder / FILE).write_text(json.dumps({**OUTCOME, **values}), encoding="utf-8")


# ------------------------------------------------------------------------------------ all of them


class Pool:
    """Runs what it is given at once, in this process."""

    stages: list[list[str]]

    def __init__(self, *_: Any, **__: Any) -> None:
        self.stages.append([])

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Any, task: Any) -> Future[Any]:
        self.stages[-1].append(f"{task.method} {task.seed}")
        future: Future[Any] = Future()
        try:
            future.set_result(function(task))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Which runs were started together; gspo of seed 1 fails."""
    import learning

    def run(task: Any) -> dict[str, Any]:
        if (task.method, task.seed) == ("gspo", 1):
            raise RuntimeError("no memory")
        finish(task)
        return task.outcome()

    monkeypatch.setattr(Pool, "stages", found := [], raising=False)
    monkeypatch.setattr(learning, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(learning, "run_task", run)
    return found


def test_starts_are_run_once_and_before_what_begins_from_them(
    tmp_path: Path, stages: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    from learning import run_all

    methods = ("start", "gspo", "dapo", "luffy")
    tasks = [task_of(method, tmp_path, seed=seed) for seed in (0, 1) for method in methods]
    failed = run_all(tasks, jobs=2)
    starts, rest = stages
    assert sorted(starts) == ["short_sums 0", "short_sums 1", "start 0", "start 1"]
    assert sorted(rest) == [
        f"{method} {seed}" for method in ("dapo", "gspo", "luffy") for seed in (0, 1)
    ]
    assert failed == ["gspo, seed 1: failed: RuntimeError: no memory"]
    out = capsys.readouterr().out
    assert "dapo, seed 0: 50.0 % to 50.0 %, 7 s" in out
    assert "start, seed 1: 50.0 %, 7 s" in out


def test_a_run_that_went_on_has_no_time_to_tell(tmp_path: Path) -> None:
    from learning import told

    finish(task_of("start", tmp_path), accuracy=0.25)
    future: Future[Any] = Future()
    future.set_result({**OUTCOME, "seconds": None})
    assert told(task_of("dapo", tmp_path), future) == ("dapo, seed 1: 25.0 % to 50.0 %", False)


def test_the_command_line_records_what_ran_and_ends_with_1_after_a_failure(
    tmp_path: Path,
    stages: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import learning

    collected = []

    def collect(tasks: Any, **settings: Any) -> dict[str, Any]:
        collected.append((tasks, settings))
        return {"results": []}

    monkeypatch.setattr(learning, "collect", collect)
    monkeypatch.setattr(learning, "RESULTS", tmp_path)
    arguments = ["--methods", "gspo,dapo", "--seeds", "0,1", "--out", str(tmp_path)]
    more = ["--device", "cuda:0,cuda:1", "--jobs", "2", "--threads", "3", "--note", "A sentence."]
    assert learning.main([*arguments, *more, "--record", "learning_cpu"]) == 1
    ((tasks, settings),) = collected
    assert [(task.method, task.seed, task.device, task.num_threads) for task in tasks] == [
        (method, seed, f"cuda:{seed}", 3) for seed in (0, 1) for method in ("gspo", "dapo")
    ]
    assert settings["benchmark"] == "learning_cpu"
    assert settings["notes"] == [*learning.NOTES, "A sentence."]
    assert settings["command"] == (
        "python benchmarks/learning.py --methods gspo,dapo --seeds 0,1 "
        "--device cuda:0,cuda:1 --jobs 2"
    )
    for name in ("learning", "learning_cpu"):
        assert json.loads((tmp_path / f"{name}.json").read_text()) == {"results": []}
    assert "gspo, seed 1: failed" in capsys.readouterr().err


def test_defaults_are_left_out_of_the_recorded_command() -> None:
    from learning import command, parser

    given = parser().parse_args(["--threads", "2", "--note", "x"])
    assert command(given) == "python benchmarks/learning.py --device cpu --jobs 1"


def test_an_unknown_method_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    import learning

    with pytest.raises(SystemExit):
        learning.main(["--methods", "dapo,grop"])
    assert "unknown method grop; there are start, short_sums, dapo" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------- one run


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a run would have called: the loops, the measuring, the sampling."""
    import learning_runs

    found: list[Any] = []

    def loop(kind: str) -> Any:
        def run(config: Any, *, resume: str | None) -> None:
            found.append((kind, resume))
            folder = Path(config.output_dir) / config.name
            if (folder / "finished").exists():
                raise AlreadyFinished("it is")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.yaml").write_text("", encoding="utf-8")

        return run

    for kind in ("sft", "grpo", "expert_iteration", "dpo"):
        monkeypatch.setattr(learning_runs, f"run_{kind}", loop(kind))
    accuracy = SimpleNamespace(value=0.5, low=0.25, high=0.75, num_problems=4)
    parts: dict[str, Any] = {
        "measure_stage": lambda *_: SimpleNamespace(accuracy=accuracy),
        "measuring_settings": lambda task: None,
        "test_problems": lambda task: None,
        "resulting_model": lambda task: None,
        "sampled_groups": lambda task: found.append("sampled") or [],
        "write_pairs": lambda task: found.append("pairs"),
        "environment_report": lambda: {"git": None},
    }
    for name, part in parts.items():
        monkeypatch.setattr(learning_runs, name, part)
    return found


KINDS = {"start": "sft", "dapo": "grpo", "expert_iteration": "expert-iteration", "dpo": "dpo"}


@pytest.fixture
def bare_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of a run without composing them."""
    import learning_runs

    def settings(task: Any) -> Any:
        kind = KINDS.get(task.method, "sft")
        return SimpleNamespace(kind=kind, output_dir=str(task.folder.parent), name=task.method)

    monkeypatch.setattr(learning_runs, "run_settings", settings)


@pytest.mark.usefixtures("bare_settings")
@pytest.mark.parametrize("method", KINDS)
def test_a_run_is_trained_by_its_loop_and_measured_once(
    method: str, tmp_path: Path, calls: list[Any]
) -> None:
    from learning_runs import run_task

    task = task_of(method, tmp_path)
    (task.folder / "checkpoints").mkdir(parents=True)
    outcome = run_task(task)
    wanted = [(KINDS[method].replace("-", "_"), None)]
    assert calls == (["pairs", *wanted] if method == "dpo" else wanted)
    assert outcome["seconds"] >= 0
    assert (outcome["accuracy"], outcome["num_problems"]) == (0.5, 4)
    assert (outcome["device"], outcome["sampled"]) == ("cpu", None)
    assert not (task.folder / "checkpoints").exists()
    assert run_task(task) == json.loads(json.dumps(outcome))
    assert len(calls) == (2 if method == "dpo" else 1)


@pytest.mark.usefixtures("bare_settings")
def test_a_start_for_demonstrations_is_sampled_too(tmp_path: Path, calls: list[Any]) -> None:
    from learning_runs import run_task

    outcome = run_task(task_of("short_sums", tmp_path))
    assert calls == [("sft", None), "sampled"]
    assert outcome["sampled"] == {"num_right": 0, "num_samples": 0}


@pytest.mark.usefixtures("bare_settings")
def test_a_stopped_run_goes_on_and_has_no_time(tmp_path: Path, calls: list[Any]) -> None:
    from learning_runs import run_task
    from learning_tasks import pairs_file

    task = task_of("dapo", tmp_path)
    task.folder.mkdir(parents=True)
    (task.folder / "config.yaml").write_text("", encoding="utf-8")
    (task.folder / "finished").write_text("", encoding="utf-8")  # trained, and not yet measured
    outcome = run_task(task)
    assert calls == [("grpo", "latest")]
    assert (outcome["seconds"], outcome["processor_seconds"]) == (None, None)
    dpo = task_of("dpo", tmp_path)
    pairs_file(dpo).write_text("", encoding="utf-8")
    assert run_task(dpo)["seconds"] is None
    assert calls[1:] == [("dpo", None)]  # its pairs are not sampled again


# ---------------------------------------------------------------------------------------- samples


def answered(*right: bool) -> RolloutGroup:
    problem = Problem(id="p", question="1+2", answer="3")
    rollouts = tuple(
        Rollout(
            ids=(5,),
            sampling_logprobs=(-1.0,),
            kept_mass=(1.0,),
            mask=(True,),
            off_policy=(False,),
            text=f"é{number}",
            finish_reason="stop",
            weight_version=0,
            reward=float(mark),
            components={"format": 1.0, "answer": float(mark)},
            grade=Grade(verdict=Verdict.EQUAL if mark else Verdict.DIFFERENT),
        )
        for number, mark in enumerate(right)
    )
    return RolloutGroup(prompt=Prompt(problem=problem, text="1+2", ids=(1,)), rollouts=rollouts)


def test_right_samples_are_counted() -> None:
    from learning_samples import right_samples

    groups = [answered(True, False, True), answered(False)]
    assert right_samples(groups) == {"num_right": 2, "num_samples": 4}


def test_pairs_are_of_the_start_of_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import learning_samples
    from learning_tasks import pairs_file

    asked = []

    def groups(start: Any) -> list[RolloutGroup]:
        asked.append((start.method, start.seed))
        return [answered(True, False), answered(True)]

    monkeypatch.setattr(learning_samples, "sampled_groups", groups)
    task = task_of("dpo", tmp_path, seed=3)
    learning_samples.write_pairs(task)
    assert asked == [("start", 3)]
    lines = pairs_file(task).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"prompt": "1+2", "chosen": "é0", "rejected": "é1"}
    ]
    assert [path.name for path in pairs_file(task).parent.iterdir()] == ["pairs.jsonl"]
    monkeypatch.setattr(learning_samples, "sampled_groups", lambda start: [answered(True)])
    with pytest.raises(DataError, match="seed 3 answered no problem both rightly and wrongly"):
        learning_samples.write_pairs(task)


def test_a_start_is_sampled_as_the_runs_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real engine, grader and prompts; the tiny model stands in for a trained one."""
    import learning_samples
    from learning_tasks import measuring_settings

    task = task_of("start", tmp_path, smoke=True)
    save_tiny(task.folder / "final")
    config = measuring_settings(task)
    assert (config.prompts_per_step, config.seed, config.model.dtype) == (16, 1, "float32")
    short = {"sampling": config.sampling.model_copy(update={"max_tokens": 4, "stop": ("x",)})}
    monkeypatch.setattr(
        learning_samples, "measuring_settings", lambda start: config.model_copy(update=short)
    )
    groups = learning_samples.sampled_groups(task)
    again = learning_samples.sampled_groups(task)
    assert len(groups) == 8
    assert {len(group.rollouts) for group in groups} == {config.num_generations}
    assert all(r.reward is not None for group in groups for r in group.rollouts)
    assert [[r.text for r in g.rollouts] for g in groups] == [
        [r.text for r in g.rollouts] for g in again
    ]


# ------------------------------------------------------------------------------------------- rows


def test_what_has_not_finished_is_left_out(tmp_path: Path) -> None:
    from learning_rows import collect, durations, finished, gains, over_each_other

    tasks = [task_of(method, tmp_path) for method in ("dapo", "luffy", "on_policy_noclip")]
    with pytest.raises(SystemExit, match="no run has finished"):
        collect(tasks, command="x", commit=None)
    finish(tasks[1], device="NVIDIA H100", processor_seconds=9.0)
    finish(replace(tasks[1], seed=0), device="NVIDIA H100", processor_seconds=9.0, seconds=12.4)
    done = finished([*tasks, replace(tasks[1], seed=0), tasks[1]])
    assert [task.seed for task in done["luffy"]] == [0, 1]
    assert over_each_other(done, "luffy", "on_policy_noclip") == []
    assert gains({"dapo": {}}) == []
    # A card's runs have no processor time to show.
    (row,) = durations(done)
    assert row == {
        "name": "time of a run, luffy",
        "value": 10,
        "unit": "s",
        "n": 2,
        "seeds": [0, 1],
        "note": "median; from 7 to 12 s",
    }


def test_the_smoke_run_is_one_small_step(tmp_path: Path) -> None:
    from learning_tasks import run_settings, test_problems

    task = task_of("dapo", tmp_path, smoke=True)
    config = run_settings(task)
    assert (config.max_steps, config.prompts_per_step, config.rollout_batch_size) == (1, 2, 8)
    assert test_problems(task).limit == 2
    assert test_problems(replace(task, smoke=False)).limit != 2
