"""`workings eval`: the same numbers as in training, and what happens to finished evaluations."""

from __future__ import annotations

import csv
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from processes import start_script
from workings.cli.commands import eval as eval_command
from workings.cli.main import main
from workings.errors import DataError
from workings.evaluation.reports import read_results
from workings.tracking.alone import run_alone

SummaryOf = Callable[[Path], dict[str, Any]]
Captured = pytest.CaptureFixture[str]


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


# ------------------------------------------------------------------- the same as in training


@pytest.mark.parametrize(
    ("run", "step", "dataset"),
    [
        ("sft_run", 10, "validation"),
        ("sft_run", 20, "validation"),
        ("grpo_run", 1, "arithmetic"),
        ("grpo_run", 2, "arithmetic"),
        ("lora_run", 2, "arithmetic"),
    ],
)
def test_a_saved_checkpoint_reproduces_the_score_of_its_run(
    run: str,
    step: int,
    dataset: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    summary_of: SummaryOf,
) -> None:
    folder: Path = request.getfixturevalue(run)
    checkpoint = folder / "checkpoints" / f"step_{step:06d}"
    settings = ["-c", str(folder / "config.yaml"), f"output_dir={tmp_path}"]
    assert main(["eval", "--model.name_or_path", str(checkpoint), *settings, "name=e"]) == 0
    ours, theirs = tmp_path / "e" / dataset, folder / "eval" / checkpoint.name / dataset
    assert summary_of(ours) == summary_of(theirs)
    assert _rows(ours) == _rows(theirs)


def test_the_scores_that_are_reproduced_change_in_training(
    sft_run: Path, grpo_run: Path, summary_of: SummaryOf
) -> None:
    """Else the test above would show little."""
    for folder, steps, dataset in (
        (sft_run, (10, 20), "validation"),
        (grpo_run, (1, 2), "arithmetic"),
    ):
        first, second = (
            summary_of(folder / "eval" / f"step_{step:06d}" / dataset) for step in steps
        )
        assert first["metrics"] != second["metrics"]


def test_a_run_folder_stands_for_its_model_and_settings(
    grpo_run: Path, tmp_path: Path, capsys: Captured, summary_of: SummaryOf
) -> None:
    assert main(["eval", "-c", str(grpo_run), f"output_dir={tmp_path}"]) == 0
    out, err = capsys.readouterr()
    assert f"model: {grpo_run / 'final'}, the run's final model" in err
    assert out.splitlines()[2].split()[:2] == ["arithmetic", "avg@2"]
    ours = tmp_path / "g-eval" / "final" / "arithmetic"
    assert summary_of(ours) == summary_of(grpo_run / "eval" / "step_000002" / "arithmetic")


def test_other_data_sets_under_the_settings_of_a_run(
    sft_run: Path, tmp_path: Path, capsys: Captured
) -> None:
    arguments = [
        "-c",
        str(sft_run),
        f"output_dir={tmp_path}",
        "datasets=[{path: arithmetic, name: ",
    ]
    arguments[-1] += "sums, split: test, options: {num_problems: 5, terms: 2}}]"
    assert main(["eval", *arguments, "name=other"]) == 0
    config = yaml.safe_load((tmp_path / "other" / "config.yaml").read_text())
    assert config["held_out"] is None
    assert config["template"] == "think"
    assert len(_rows(tmp_path / "other" / "sums")) == 5


def test_a_configuration_file_stands_for_settings_alone(
    sft_run: Path, tiny_folder: Path, capsys: Captured
) -> None:
    assert main(["eval", "-c", str(sft_run / "config.yaml"), "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert yaml.safe_load(out)["model"]["name_or_path"] == str(tiny_folder)
    assert "which the run starts from; model.name_or_path=FOLDER or -c FOLDER" in err


def test_the_adapter_belongs_to_the_model_of_the_file(
    tiny_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "kind: grpo\nname: g\nmodel: {name_or_path: base, adapter: sft/final}\n"
        "data: {train: {path: arithmetic}, validation_fraction: 0.1}\n"
    )
    assert main(["eval", "-c", str(file), "--dry-run"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["model"]["adapter"] == "sft/final"
    assert main(["eval", "-c", str(file), f"model.name_or_path={tiny_folder}", "--dry-run"]) == 0
    values = yaml.safe_load(capsys.readouterr().out)
    assert values["model"]["adapter"] is None
    assert values["held_out"] == {
        "fraction": 0.1,
        "rows": "problems",
        "limit": None,
        "prompt_length_percentile": None,
        "reward_max_tokens": 1024,
    }


def test_a_run_without_validation_rows_needs_a_data_set(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("kind: sft\nname: s\nmodel: {name_or_path: m}\ndata: {train: {path: p}}\n")
    assert main(["eval", "-c", str(file), "--dry-run"]) == 2
    assert capsys.readouterr().err == (
        "error: the sft run 's' has no validation rows to evaluate on\n\n"
        "hint: name other data sets, e.g. datasets=[gsm8k]\n"
    )
    assert main(["eval", "-c", str(file), "datasets=[gsm8k]", "--dry-run"]) == 0


# ------------------------------------------------------------------------------------ resume


@pytest.fixture
def arguments(tiny_folder: Path, tmp_path: Path) -> list[str]:
    """An evaluation on two data sets."""
    return [
        "eval",
        *("-c", "eval", f"model.name_or_path={tiny_folder}", f"output_dir={tmp_path}", "name=e"),
        *("template=think", "sampling.max_tokens=8", "tracking.console=false"),
        "datasets=[{path: arithmetic, name: short, options: {num_problems: 4, terms: 2}}, "
        "{path: arithmetic, name: long, options: {num_problems: 3, terms: 4}}]",
    ]


def test_a_finished_evaluation_is_refused_or_gone_on_with(
    arguments: list[str], tmp_path: Path, capsys: Captured
) -> None:
    assert main(arguments) == 0
    table = capsys.readouterr().out
    assert main(arguments) == 2
    assert capsys.readouterr().err == (
        f"error: the evaluation {tmp_path}/e exists, with results for short, long\n\n"
        "hint: --resume keeps what was sampled with the same settings and does the rest; "
        "--fresh begins anew; name=... starts another beside it\n"
    )
    stored = tmp_path / "e" / "short" / "responses.parquet"
    before = stored.stat().st_mtime_ns
    (tmp_path / "e" / "long" / "summary.json").unlink()
    assert main([*arguments, "--resume"]) == 0
    assert stored.stat().st_mtime_ns == before
    assert _without_time(capsys.readouterr().out) == _without_time(table)
    log = (tmp_path / "e" / "run.log").read_text()
    assert "short: finished before with these settings; kept" in log


def test_another_reward_grades_stored_responses_again(
    arguments: list[str], tmp_path: Path, capsys: Captured
) -> None:
    assert main(arguments) == 0
    stored = tmp_path / "e" / "short" / "responses.parquet"
    before = stored.stat().st_mtime_ns
    capsys.readouterr()
    assert main([*arguments, "--resume", "reward.mode=four_class"]) == 0
    out, err = capsys.readouterr()
    assert stored.stat().st_mtime_ns == before
    assert "note: changed since the run was started: +  mode: four_class" in err
    assert "reward.mode=four_class does" not in out
    settings = json.loads((tmp_path / "e" / "short" / "summary.json").read_text())["settings"]
    assert settings["grader"]["mode"] == "four_class"


def test_other_settings_are_refused_with_both_values_or_begun_anew(
    arguments: list[str], tmp_path: Path, capsys: Captured
) -> None:
    assert main(arguments) == 0
    stored = tmp_path / "e" / "short" / "responses.parquet"
    before = stored.read_bytes()
    other = [*arguments, "sampling.max_tokens=5", "seed=4"]
    capsys.readouterr()
    assert main([*other, "--resume"]) == 2
    assert capsys.readouterr().err.startswith(
        f"error: {tmp_path}/e/short holds responses under other settings:\n"
        "  sampling.max_tokens: 8 stored, 5 now\n"
    )
    assert stored.read_bytes() == before
    assert main([*other, "--resume", "--fresh"]) == 2
    assert "--resume and --fresh contradict each other" in capsys.readouterr().err
    assert main([*other, "--fresh"]) == 0
    assert max(row["response_tokens"] for row in _rows(stored.parent)) <= 5


@pytest.mark.parametrize(
    ("mistyped", "code"),
    [
        (["model.name_or_path=./nowhere"], 1),
        (["datasets=[{path: arithmetic, options: {num_problems: 4}}, nowhere.jsonl]"], 2),
        (["max_prompt_length=3"], 2),
        (["template=nowhere"], 1),
    ],
)
def test_a_mistyped_name_loses_nothing(
    mistyped: list[str], code: int, arguments: list[str], tmp_path: Path, capsys: Captured
) -> None:
    """--fresh removes results only once the model and all data have loaded."""
    assert main(arguments) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("e/**/*") if path.is_file()}
    capsys.readouterr()
    assert main([*arguments, *mistyped, "--fresh"]) == code
    assert capsys.readouterr().err.startswith("error: ")
    after = {path: path.read_bytes() for path in tmp_path.rglob("e/**/*") if path.is_file()}
    assert after == before
    assert len(before) > 8
    assert main([*arguments, "--fresh"]) == 0
    log = (tmp_path / "e" / "run.log").read_text()
    assert log.count("engine: transformers") == 2


def test_beginning_anew_removes_the_results_of_every_cell_at_once(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = ["--grid", "sampling.temperature=0.0,0.6"]
    assert main([*arguments, *grid]) == 0
    assert len(list(tmp_path.rglob("summary.json"))) == 4

    def stop(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("workings.cli.evaluation.run.evaluate", stop)
    main([*arguments, *grid, "--fresh"])
    assert not list(tmp_path.rglob("summary.json"))


def test_what_was_begun_is_not_gone_on_with_unasked(
    arguments: list[str], tmp_path: Path, capsys: Captured
) -> None:
    assert main(arguments) == 0
    for name in ("summary.json", "results.jsonl", "responses.parquet"):
        (tmp_path / "e" / "long" / name).unlink()
    capsys.readouterr()
    assert main(arguments) == 2
    assert "exists, with results for short and responses for long" in capsys.readouterr().err
    assert main([*arguments, "--resume"]) == 0


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _write(folder: Path, files: dict[str, str]) -> dict[Path, bytes]:
    """What the folder then holds."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return _files(folder)


SUMMARY = json.dumps({"total_examples": 1, "aggregate_metrics": {}, "settings": {}})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"config.yaml": "kind: grpo\nname: e\n", "metrics.jsonl": "{}\n"},
            "e holds the grpo run 'e'; this evaluation would overwrite its files",
        ),
        ({"metrics.jsonl": "{}\n"}, "e holds the metrics.jsonl of another run;"),
        ({"config.yaml": "name: e\n"}, "e holds a config.yaml of no kind;"),
        (
            {"long/config.yaml": "kind: sft\nname: e/long\n"},
            "e/long holds the sft run 'e/long';",
        ),
        ({"long/config.yaml": "kind: eval\n"}, "e/long holds another evaluation;"),
        ({"long/summary.json": SUMMARY}, "e exists, with results for long|there is no config.yaml"),
    ],
)
def test_another_run_is_never_overwritten(
    files: dict[str, str],
    message: str,
    arguments: list[str],
    tmp_path: Path,
    capsys: Captured,
) -> None:
    before = _write(tmp_path / "e", files)
    first, _, otherwise = message.partition("|")
    for option in ([], ["--resume"], ["--fresh"]):
        assert main([*arguments, *option]) == 2
        told = capsys.readouterr().err
        assert (otherwise if otherwise and option else first) in told
        assert "name=..." in told
        after = _files(tmp_path / "e")
        after.pop(tmp_path / "e" / ".lock", None)
        assert after == before


def test_a_grid_does_not_go_into_a_training_run(
    arguments: list[str], tmp_path: Path, capsys: Captured
) -> None:
    before = _write(tmp_path / "e", {"config.yaml": "kind: grpo\nname: e\n"})
    assert main([*arguments, "--grid", "sampling.temperature=0.0,0.6", "--fresh"]) == 2
    assert "e holds the grpo run 'e'" in capsys.readouterr().err
    assert _files(tmp_path / "e") == before


def test_a_classic_grid_may_stand_beside_the_files_of_a_run(
    arguments: list[str], tmp_path: Path
) -> None:
    """Its cells lie in output_dir itself, and none of them is that folder."""
    before = _write(tmp_path, {"config.yaml": "kind: grpo\nname: e\n", "metrics.jsonl": ""})
    assert main([*arguments, "layout=classic", "--grid", "sampling.temperature=0.0"]) == 0
    assert {path: path.read_bytes() for path in before} == before


def test_data_sets_that_are_not_asked_for_count_too(
    arguments: list[str], tmp_path: Path, capsys: Captured
) -> None:
    """They would keep their numbers under the settings of another evaluation."""
    stored = {"config.yaml": "kind: eval\nname: e\n", "gsm8k/summary.json": SUMMARY}
    before = _write(tmp_path / "e", {**stored, "short/summary.json": SUMMARY})
    for option in ([], ["--resume"], ["--fresh"]):
        assert main([*arguments, "sampling.max_tokens=5", *option]) == 2
        assert capsys.readouterr().err == (
            f"error: the evaluation {tmp_path}/e exists, with results for short, gsm8k; gsm8k is "
            "not asked for now\n\n"
            "hint: name=... starts another beside it; --resume and --fresh need all of its data "
            "sets in datasets=[...]\n"
        )
        assert {**before, tmp_path / "e" / ".lock": b""} == _files(tmp_path / "e")


def test_beginning_anew_says_what_it_replaces(
    arguments: list[str], tmp_path: Path, capsys: Captured
) -> None:
    stored = {"config.yaml": "kind: eval\nname: e\n", "short/summary.json": SUMMARY}
    _write(tmp_path / "e", {**stored, "long/sampling.json": "{}"})
    assert main([*arguments, "--fresh"]) == 0
    assert (
        f"note: --fresh replaces results for short and responses for long in {tmp_path}/e\n"
    ) in capsys.readouterr().err


def test_two_starts_of_one_name_do_not_mix(
    arguments: list[str], tmp_path: Path, capsys: Captured
) -> None:
    other = start_script(
        tmp_path,
        f"""
        import time
        from pathlib import Path
        from workings.tracking.alone import run_alone
        with run_alone(Path({str(tmp_path / "e")!r})):
            print("held", flush=True)
            time.sleep(100)
        """,
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        for option in ([], ["--resume"], ["--fresh"]):
            assert main([*arguments, *option]) == 2
            told = capsys.readouterr().err
            assert f"another process is writing {tmp_path}/e: process {other.pid} on " in told
            assert "start another run beside it with name=..." in told
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.communicate(timeout=20)
    assert [path.name for path in (tmp_path / "e").iterdir()] == [".lock"]


def test_the_folder_is_held_until_every_file_is_written(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summarise, held = eval_command._summarise, []

    def remembered(tree: Path) -> None:
        with pytest.raises(DataError, match="another process is writing") as caught:
            run_alone(tmp_path / "e").__enter__()
        held.append(caught.value)
        summarise(tree)

    monkeypatch.setattr(eval_command, "_summarise", remembered)
    assert main(arguments) == 0
    assert len(held) == 1
    with run_alone(tmp_path / "e"):
        assert main(["eval", "--regrade", str(tmp_path / "e")]) == 2
    assert main(["eval", "--regrade", str(tmp_path / "e")]) == 0


def test_only_the_reward_can_be_graded_again(
    arguments: list[str], tmp_path: Path, capsys: Captured
) -> None:
    assert main(arguments) == 0
    folder = str(tmp_path / "e")
    capsys.readouterr()
    assert main(["eval", "--regrade", folder, "sampling.max_tokens=5"]) == 2
    assert "stored responses do not change with sampling.max_tokens" in capsys.readouterr().err
    assert main(["eval", "--regrade", folder, "--fresh"]) == 2
    (tmp_path / "e" / "long" / "responses.parquet").unlink()
    capsys.readouterr()
    assert main(["eval", "--regrade", folder]) == 2
    assert "has not all responses for long" in capsys.readouterr().err
    assert main(["eval", "--regrade", str(tmp_path / "nowhere")]) == 2


# -------------------------------------------------------------------------------------- grid


def test_a_grid_has_a_folder_for_every_cell_and_one_table(
    arguments: list[str], tmp_path: Path, capsys: Captured
) -> None:
    grid = ["--grid", "sampling.temperature=0.0,0.6", "--grid", "seed=range(0,2)"]
    assert main([*arguments, *grid]) == 0
    out = capsys.readouterr().out.splitlines()
    settings = [f"T{t}_top_p1_seed{seed}" for t in ("0", "0.6") for seed in (0, 1)]
    assert [line.split()[:2] for line in out[2:]] == [["tiny", one] for one in settings]
    root = tmp_path / "e"
    with (root / "metrics_summary.csv").open() as file:
        folders = [row["folder"] for row in csv.DictReader(file)]
    assert sorted(folders) == sorted(f"tiny/{s}/{d}" for s in settings for d in ("long", "short"))
    cell = root / "tiny" / "T0.6_top_p1_seed1"
    assert yaml.safe_load((cell / "config.yaml").read_text())["sampling"]["temperature"] == 0.6
    finished = {path: path.stat().st_mtime_ns for path in root.glob("*/*/*/responses.parquet")}
    (cell / "long" / "summary.json").unlink()
    assert main([*arguments, *grid, "--resume"]) == 0
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert capsys.readouterr().out.splitlines() == out
    assert main(["eval", "--regrade", str(root), "reward.mode=four_class"]) == 0


def test_a_classic_grid_lies_by_model_and_setting(arguments: list[str], capsys: Captured) -> None:
    grid = ["--grid", "sampling.top_p=0.95,1.0", "layout=classic", "--dry-run"]
    given = [one for one in arguments if not one.startswith("output_dir")]
    assert main([*given, *grid]) == 0
    cells = [yaml.safe_load(part) for part in capsys.readouterr().out.split("---\n")]
    assert [(cell["output_dir"], cell["name"]) for cell in cells] == [
        ("eval_results", "tiny/T0_top_p0.95"),
        ("eval_results", "tiny/T0_top_p1"),
    ]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (["seed"], "--grid seed; expected KEY=A,B"),
        (["seed=1,2", "seed=3,4"], "seed is given two lists of values"),
        (["seeds=1,2"], "seeds"),
        (["name=a,b", "num_threads=1"], "would write into"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(
    grid: list[str], message: str, arguments: list[str], capsys: Captured
) -> None:
    if grid[0].startswith("name"):
        grid = ["model.name_or_path=/a/tiny,/b/tiny"]
    options = [part for text in grid for part in ("--grid", text)]
    assert main([*arguments, *options, "--dry-run"]) == 2
    assert message in capsys.readouterr().err


def test_resume_takes_no_path(arguments: list[str], capsys: Captured) -> None:
    assert main([*arguments, "--resume", "runs/x"]) == 2
    assert "--resume runs/x: an evaluation has no checkpoints" in capsys.readouterr().err


# ------------------------------------------------------------------------------------ output


def test_tables_and_files(arguments: list[str], tmp_path: Path, capsys: Captured) -> None:
    assert main([*arguments, "tracking.console=true"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split("  ")[0] == "data set"
    assert "strict accuracy, 95 % interval" in lines[0]
    assert "answer alone" in lines[0]
    assert lines[2].split()[:2] == ["short", "pass@1"]
    assert '"-": the strict reward reads no answer outside of the format' in out
    assert "sampling: greedy, max_tokens 8, stop at EOS and '</answer>'" in err
    with (tmp_path / "e" / "metrics_summary.csv").open() as file:
        assert [row["dataset"] for row in csv.DictReader(file)] == ["long", "short"]
    metrics = [json.loads(x) for x in (tmp_path / "e" / "metrics.jsonl").read_text().splitlines()]
    assert [row["eval/short/num_problems"] for row in metrics if "eval/short/accuracy" in row] == [
        4
    ]
    settings = json.loads((tmp_path / "e" / "short" / "summary.json").read_text())["settings"]
    assert settings["sampling"]["max_tokens"] == 8
    assert settings["data"]["name"] == "short"
    assert settings["versions"]["workings"]


@pytest.mark.parametrize("place", ["here", "eval_runs"])
def test_a_whole_run_file_besides(place: str, arguments: list[str], tmp_path: Path) -> None:
    assert main([*arguments, f"artefact={place}"]) == 0
    folder = tmp_path if place == "here" else tmp_path / "eval_runs" / "e" / "step_0"
    (file,) = folder.glob("e_step_0_eval_*.json")
    rows = read_results(file)
    assert len(rows) == 7
    stored = [row for name in ("short", "long") for row in _rows(tmp_path / "e" / name)]
    assert [row["response"] for row in rows] == [row["response"] for row in stored]
    assert [row["correct"] for row in rows] == [row["correct"] for row in stored]


def test_a_data_set_that_is_counted_by_an_average_takes_so_many_samples(
    arguments: list[str], tmp_path: Path
) -> None:
    datasets = "datasets=[{path: arithmetic, counted: avg@3, options: {num_problems: 2, terms: 2}}]"
    given = [*arguments[:-1], datasets]
    assert main([*given, "name=drawn", "sampling.temperature=1.0"]) == 0
    assert len(_rows(tmp_path / "drawn" / "arithmetic")) == 6
    assert main([*given, "name=greedy"]) == 0
    assert len(_rows(tmp_path / "greedy" / "arithmetic")) == 2
    assert "counted as avg@3; greedy decoding" in (tmp_path / "greedy" / "run.log").read_text()


def test_unknown_devices_are_refused(arguments: list[str], capsys: Captured) -> None:
    for devices, message in (
        ("[tpu]", "'tpu' is no device"),
        ("[0,0]", "names a card twice"),
        ("[all,cpu]", "all stands alone"),
        ("[cuda:97]", "cuda:97 is not there; torch sees"),
    ):
        assert main([*arguments, f"devices={devices}"]) == 2
        assert message in capsys.readouterr().err


def test_two_data_sets_of_one_name_are_refused(arguments: list[str], capsys: Captured) -> None:
    datasets = "datasets=[{path: arithmetic}, {path: arithmetic, split: test}]"
    assert main([*arguments[:-1], datasets]) == 2
    assert "two data sets are called 'arithmetic'" in capsys.readouterr().err


def test_a_model_that_does_not_load_leaves_the_name_free(
    arguments: list[str], capsys: Captured
) -> None:
    assert main([*arguments, "model.name_or_path=./nowhere"]) == 1
    assert "no model folder at nowhere" in capsys.readouterr().err
    assert main(arguments) == 0


def _without_time(table: str) -> list[list[str]]:
    return [line.split()[:5] for line in table.splitlines()]
