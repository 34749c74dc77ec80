"""Sweeps: what is planned, what is kept, what is tried again, and the table at the end.

A launcher of the test stands for the training: it writes the metrics that a run would leave.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from workings.config.compose import Composer, compose
from workings.config.dump import dump_yaml
from workings.errors import ConfigError, DataError
from workings.launch.local_processes import LocalProcesses, command
from workings.launch.sweep import (
    Ended,
    Sweep,
    SweepRun,
    Task,
    plan_sweep,
    read_sweep_runs,
    run_sweep,
    write_sweep,
)
from workings.launch.sweep_axes import read_grid
from workings.launch.sweep_results import draw_sweep, results_table, sweep_results

RATES = "optimizer.learning_rate=1e-5,3e-5"
REWARDS = {"1e-05": (0.1, 0.2), "3e-05": (0.1, 0.6)}


def overrides_of(task: Task) -> list[str]:
    return [a for a in task.arguments[3:] if not a.startswith("--") and a != "latest"]


class Scripted:
    """Leaves metrics as a run would; tasks whose name is in `failing` end with an error."""

    def __init__(self, failing: Sequence[str] = ()) -> None:
        self.failing = failing
        self.tasks: list[Task] = []

    def run(self, tasks: Sequence[Task], *, started: Callable[[Task], None], ended: Ended) -> None:
        for task in tasks:
            self.tasks.append(task)
            started(task)
            run = compose(["grpo"], overrides_of(task), kind="grpo")
            folder = Path(run.output_dir) / run.name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.yaml").write_text(dump_yaml(run))
            values = REWARDS.get(str(run.optimizer.learning_rate), (0.0, 0.3))
            rows = [
                {"step": step, "kind": "eval", "time": 0.0, "eval/accuracy": value}
                | {"eval/accuracy_low": value - 0.05, "eval/accuracy_high": value + 0.05}
                for step, value in zip((0, 4), values, strict=True)
            ]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
            task.log.parent.mkdir(parents=True, exist_ok=True)
            failed = task.name in self.failing
            task.log.write_text("step 1\nerror: no memory\n\nhint: less\n" if failed else "done\n")
            ended(task, 1 if failed else 0, 2.0)


class ScriptedPipeline:
    """Leaves what the phases of a pipeline would; the second one begins with the first's model."""

    def run(self, tasks: Sequence[Task], *, started: Callable[[Task], None], ended: Ended) -> None:
        for task in tasks:
            started(task)
            run = compose(["quickstart"], overrides_of(task), kind="pipeline")
            saved = run.grpo.model.model_copy(update={"adapter": "saved"})
            for phase in (run.sft, run.grpo.model_copy(update={"model": saved})):
                folder = Path(phase.output_dir) / phase.name
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "config.yaml").write_text(dump_yaml(phase))
                row = {"step": 1, "kind": "eval", "time": 0.0, "eval/accuracy": 0.5}
                (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
            ended(task, 0, 2.0)


def planned(folder: Path, *more: str) -> Sweep:
    grid = read_grid([RATES, f"output_dir={folder.parent}", *more])
    return plan_sweep(Composer(["grpo"], kind="grpo"), grid, folder=folder)


def test_every_run_is_a_command_with_its_own_folder(tmp_path: Path) -> None:
    sweep = planned(tmp_path / "s")
    assert [run.name for run in sweep.runs] == ["learning_rate_1e-05", "learning_rate_3e-05"]
    arguments = sweep.arguments(sweep.runs[1])
    assert arguments[:3] == ["grpo", "-c", "grpo"]
    assert arguments[-3:] == [
        "optimizer.learning_rate=3e-05",
        f"output_dir={tmp_path / 's'}",
        "name=learning_rate_3e-05",
    ]


def test_both_phases_of_a_pipeline_lie_in_the_runs_folder(tmp_path: Path) -> None:
    grid = read_grid(["grpo.seed=1,2"])
    sweep = plan_sweep(Composer(["quickstart"], kind="pipeline"), grid, folder=tmp_path)
    arguments = sweep.arguments(sweep.runs[0])
    assert f"grpo.output_dir={tmp_path / 'seed_1'}" in arguments
    assert "sft.name=sft" in arguments


def test_a_wrong_setting_is_found_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path / "s", "num_generations=1,x")
    assert caught.value.message.startswith("learning_rate_1e-05__num_generations_")
    assert not (tmp_path / "s").exists()


def test_finished_runs_are_kept_and_failed_ones_tried_again(tmp_path: Path) -> None:
    folder, said = tmp_path / "s", list[str]()
    first = Scripted(failing=["learning_rate_3e-05"])
    after = run_sweep(planned(folder), first, say=said.append)
    assert [run.status for run in after.runs] == ["finished", "failed"]
    assert after.runs[1].error == "no memory hint: less"
    assert any("learning_rate_3e-05: failed" in line and "no memory" in line for line in said)
    stored = json.loads((folder / "sweep.json").read_text())
    assert [run["status"] for run in stored["runs"]] == ["finished", "failed"]
    assert stored["axes"] == {"optimizer.learning_rate": ["1e-05", "3e-05"]}

    second = Scripted()
    after = run_sweep(planned(folder), second, say=said.append)
    assert [task.name for task in second.tasks] == ["learning_rate_3e-05"]
    assert second.tasks[0].arguments[-2:] == ("--resume", "latest")
    assert [run.status for run in after.runs] == ["finished", "finished"]

    third = Scripted()
    run_sweep(planned(folder), third, say=said.append)
    assert third.tasks == []
    assert said[-1] == "2 of 2 runs are finished already"


def test_other_settings_need_another_name(tmp_path: Path) -> None:
    run_sweep(planned(tmp_path / "s"), Scripted(), say=lambda _: None)
    with pytest.raises(ConfigError, match=r"other settings; now: max_steps: 7") as caught:
        planned(tmp_path / "s", "max_steps=7")
    assert caught.value.hint is not None


def planned_pipelines(folder: Path, *more: str) -> Sweep:
    grid = read_grid(["grpo.seed=1,2", *more])
    return plan_sweep(Composer(["quickstart"], kind="pipeline"), grid, folder=folder)


def test_other_settings_of_pipelines_need_another_name_too(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    run_sweep(planned_pipelines(folder), ScriptedPipeline(), say=lambda _: None)
    again = planned_pipelines(folder)
    assert {run.status for run in again.runs} == {"finished"}
    with pytest.raises(ConfigError) as caught:
        planned_pipelines(folder, "grpo.max_steps=7")
    steps = again.runs[0].settings["grpo.max_steps"]
    expected = f"seed_1 was run with other settings; now: grpo.max_steps: 7 (was {steps})"
    assert expected in caught.value.message
    assert "another name" in str(caught.value.hint)
    with pytest.raises(ConfigError, match=r"other settings; now: grpo\.model\.lora\.rank: 3 \(was"):
        planned_pipelines(folder, "grpo.model.lora.rank=3")
    with pytest.raises(ConfigError, match=r"other settings; now: control: false \(was true\)"):
        planned_pipelines(folder, "control=false")


def test_a_list_that_was_lost_does_not_hide_other_settings(tmp_path: Path) -> None:
    """Without sweep.json, or its row, the files of the runs say how they were made."""
    run_sweep(planned(tmp_path / "a"), Scripted(), say=lambda _: None)
    run_sweep(planned_pipelines(tmp_path / "b"), ScriptedPipeline(), say=lambda _: None)
    for name in ("a", "b"):
        (tmp_path / name / "sweep.json").unlink()
    assert {run.status for run in planned(tmp_path / "a").runs} == {"waiting"}
    assert {run.status for run in planned_pipelines(tmp_path / "b").runs} == {"waiting"}
    with pytest.raises(ConfigError, match=r"other settings; now: max_steps: 7"):
        planned(tmp_path / "a", "max_steps=7")
    with pytest.raises(ConfigError, match=r"other settings; now: sft\.batch_size: 3"):
        planned_pipelines(tmp_path / "b", "sft.batch_size=3")


def test_a_pipeline_that_measured_its_base_keeps_its_settings(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write_sweep(planned_pipelines(folder))
    planned_pipelines(folder, "grpo.max_steps=7")
    measured = folder / "seed_1" / "test" / "base" / "sums"
    measured.mkdir(parents=True)
    (measured / "summary.json").write_text("{}")
    with pytest.raises(ConfigError, match="other settings"):
        planned_pipelines(folder, "grpo.max_steps=7")


def test_the_best_is_first_with_its_interval(tmp_path: Path) -> None:
    sweep = run_sweep(planned(tmp_path / "s"), Scripted(), say=lambda _: None)
    found = sweep_results(sweep.runs)
    assert found is not None
    assert found.metric == "eval/accuracy"
    assert [one.value for one in found.results] == [0.6, 0.2]
    header, _, *rows = (line.split() for line in results_table(sweep, found).splitlines())
    assert header == ["learning_rate", "eval/accuracy", "step", "best", "(step)", "run"]
    assert rows == [
        ["3e-05", "0.6", "[0.55,", "0.65]", "4", "0.6", "(4)", "learning_rate_3e-05"],
        ["1e-05", "0.2", "[0.15,", "0.25]", "4", "0.2", "(4)", "learning_rate_1e-05"],
    ]
    worst = sweep_results(sweep.runs, metric="accuracy", lower_is_better=True)
    assert worst is not None
    assert worst.results[0].name == "learning_rate_1e-05"
    path = write_sweep(sweep, results=found.to_dict())
    assert json.loads(path.read_text())["results"]["results"][0]["value"] == 0.6


def recorded(run: SweepRun, *values: float | str) -> SweepRun:
    """The run as a finished one that recorded these accuracies."""
    run.folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"step": step, "kind": "eval", "time": 0.0, "eval/accuracy": value}
        for step, value in enumerate(values)
    ]
    (run.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return replace(run, status="finished")


def test_what_is_not_finite_is_last_and_null_in_the_file(tmp_path: Path) -> None:
    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    sweep = planned(tmp_path / "s", "seed=1,2")
    values = (("nan", "nan"), (0.9, "nan"), ("nan", 0.4), (0.1, 0.5))
    sweep = replace(
        sweep,
        runs=tuple(recorded(run, *some) for run, some in zip(sweep.runs, values, strict=True)),
    )
    found = sweep_results(sweep.runs)
    assert found is not None
    assert [one.value for one in found.results[:2]] == [0.5, 0.4]
    assert [(one.best, one.best_step) for one in found.results[:2]] == [(0.5, 1), (0.4, 1)]
    path = write_sweep(sweep, results=found.to_dict())
    stored = json.loads(path.read_text(), parse_constant=no_constant)["results"]["results"]
    assert [row["value"] for row in stored] == [0.5, 0.4, None, None]
    assert [(row["best"], row["best_step"]) for row in stored[2:]] == [(None, 1), (0.9, 0)]
    assert read_sweep_runs(tmp_path / "s") == list(sweep.runs)
    lowest = sweep_results(sweep.runs, lower_is_better=True)
    assert lowest is not None
    assert [one.value for one in lowest.results[:2]] == [0.4, 0.5]
    assert "nan" in results_table(sweep, found).splitlines()[-1]
    assert draw_sweep(sweep, found)[0].is_file()


def test_what_did_not_finish_is_in_the_table_too(tmp_path: Path) -> None:
    launcher = Scripted(failing=["learning_rate_3e-05"])
    sweep = run_sweep(planned(tmp_path / "s"), launcher, say=lambda _: None)
    table = results_table(sweep, sweep_results(sweep.runs))
    assert table.splitlines()[-1].split() == ["3e-05", "failed", "-", "-", "learning_rate_3e-05"]
    nothing = [replace(run, status="failed") for run in sweep.runs]
    assert sweep_results(nothing) is None


def test_an_unknown_metric_is_answered_with_the_nearest(tmp_path: Path) -> None:
    sweep = run_sweep(planned(tmp_path / "s"), Scripted(), say=lambda _: None)
    with pytest.raises(DataError, match="did you mean 'eval/accuracy'"):
        sweep_results(sweep.runs, metric="eval/accuracies")


def test_the_figure_has_a_line_for_each_setting_and_joins_seeds(tmp_path: Path) -> None:
    sweep = run_sweep(planned(tmp_path / "s", "seed=1,2"), Scripted(), say=lambda _: None)
    found = sweep_results(sweep.runs)
    assert found is not None
    files = draw_sweep(sweep, found)
    assert [file.suffix for file in files] == [".png", ".svg", ".pdf", ".txt"]
    svg = files[1].read_text()
    assert svg.count('id="line-') == 2
    assert ">learning_rate=3e-05<" in svg
    caption = files[-1].read_text()
    assert "means over 2 seeds" in caption
    assert "optimizer.learning_rate: 1e-05, 3e-05" in caption


def test_what_is_stored_is_read_back(tmp_path: Path) -> None:
    sweep = run_sweep(planned(tmp_path / "s"), Scripted(), say=lambda _: None)
    assert read_sweep_runs(tmp_path / "s") == list(sweep.runs)
    with pytest.raises(DataError, match="no sweep's folder"):
        read_sweep_runs(tmp_path)
    (tmp_path / "s" / "sweep.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        read_sweep_runs(tmp_path / "s")


# ------------------------------------------------------------------------- processes for real


def _quick(folder: Path, *names: str) -> list[Task]:
    """Tasks that end at once: a command with a wrong option, and one that prints the version."""
    arguments = {"good": ("--version",), "bad": ("grpo", "-c", "grpo", "no_such_setting=1")}
    return [
        Task(name=name, arguments=arguments[name], log=folder / f"{name}.log") for name in names
    ]


def test_processes_end_with_their_own_code_and_log(tmp_path: Path) -> None:
    codes: dict[str, int] = {}
    LocalProcesses(jobs=2, devices=["0", "1"]).run(
        _quick(tmp_path, "good", "bad"),
        started=lambda task: None,
        ended=lambda task, code, seconds: codes.update({task.name: code}),
    )
    assert codes == {"good": 0, "bad": 2}
    assert "workings" in (tmp_path / "good.log").read_text()
    assert "error: unknown key 'no_such_setting'" in (tmp_path / "bad.log").read_text()


def test_more_jobs_than_devices_are_refused() -> None:
    with pytest.raises(ConfigError, match="every run gets a device of its own"):
        LocalProcesses(jobs=2, devices=["0"])


STOPPED = """
import sys
from pathlib import Path
from workings.launch import local_processes
from workings.launch.sweep import Task
local_processes.command = lambda task: [
    sys.executable, "-c",
    "import signal, sys, time\\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\\n"
    "print('ready', flush=True)\\n"
    "time.sleep(60)",
]
log = Path(sys.argv[1])
ended = lambda task, code, seconds: print(task.name, code, flush=True)
local_processes.LocalProcesses(jobs=1).run(
    [Task(name="long", arguments=(), log=log), Task(name="never", arguments=(), log=log)],
    started=lambda task: None, ended=ended,
)
"""


def test_runs_are_asked_to_stop_and_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while not (log.is_file() and "ready" in log.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert out == "long 143\n"
    assert "StoppedBySignal" in err


def test_one_sweep_runs_in_a_folder_at_a_time(tmp_path: Path) -> None:
    class Nested(Scripted):
        def run(
            self, tasks: Sequence[Task], *, started: Callable[[Task], None], ended: Ended
        ) -> None:
            with pytest.raises(ConfigError, match="this sweep is running"):
                run_sweep(planned(tmp_path / "s"), Scripted(), say=lambda _: None)
            super().run(tasks, started=started, ended=ended)

    after = run_sweep(planned(tmp_path / "s"), Nested(), say=lambda _: None)
    assert {run.status for run in after.runs} == {"finished"}


@pytest.mark.timeout(1800)
def test_ray_runs_the_same_commands(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from workings.launch.ray_tasks import RayTasks

    codes: dict[str, int] = {}
    RayTasks(num_cpus=1).run(
        _quick(tmp_path, "good", "bad"),
        started=lambda task: None,
        ended=lambda task, code, seconds: codes.update({task.name: code}),
    )
    assert codes == {"good": 0, "bad": 2}
    assert "workings" in (tmp_path / "good.log").read_text()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from workings.launch.ray_tasks import RayTasks

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError) as caught:
        RayTasks()
    assert str(caught.value) == (
        "launcher=ray needs the ray package, which is not installed\n\n"
        "hint: pip install workings[ray], or launcher=local"
    )


def test_a_task_is_the_command_that_a_person_types(tmp_path: Path) -> None:
    (task,) = _quick(tmp_path, "good")
    assert command(task) == [sys.executable, "-m", "workings.cli.main", "--version"]
