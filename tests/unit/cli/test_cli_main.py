"""The shell of the command: what it hands over, what it prints, which code it ends with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import workings
from workings.cli.grade.columns import AskedFor
from workings.cli.main import main
from workings.config.compose import compose
from workings.config.grpo import GRPOConfig
from workings.config.pipeline import PipelineConfig
from workings.config.sample import SampleConfig
from workings.errors import (
    ConfigError,
    DataError,
    EngineError,
    StoppedBySignal,
    TrainingError,
)

COMMANDS = (
    *("sft", "grpo", "pipeline", "eval", "quickstart", "sample", "plot", "export", "doctor"),
    *("inspect", "grade"),
)
Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]
Replace = Callable[..., Calls]


@pytest.fixture
def replace(monkeypatch: pytest.MonkeyPatch) -> Replace:
    """Put a recording `run` in the place of a command's; it returns or raises `result`."""

    def replace(command: str, result: int | BaseException = 0) -> Calls:
        calls: Calls = []

        def run(*arguments: Any, **options: Any) -> int:
            calls.append((arguments, options))
            if isinstance(result, BaseException):
                raise result
            return result

        module = ModuleType(command)
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, f"workings.cli.commands.{command}", module)
        return calls

    return replace


# -------------------------------------------------------------------------------- --dry-run


@pytest.mark.parametrize("kind", ["sft", "grpo", "pipeline", "eval"])
def test_dry_run_prints_what_reads_back_to_the_same_run(
    kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([kind, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    (tmp_path / "config.yaml").write_text(out)
    assert compose([str(tmp_path)], kind=kind) == compose([], kind=kind)


def test_dry_run_with_files_options_and_overrides_in_any_order(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("max_steps: 7\nseed: 2\n")
    arguments = ["--top-k", "-1", "-c", "quickstart", "seed=0", "--config", str(mine)]
    assert main(["grpo", *arguments, "--dry-run", "--model.dtype=float32"]) == 0
    values = yaml.safe_load(capsys.readouterr().out)
    assert (values["max_steps"], values["seed"], values["model"]["dtype"]) == (7, 0, "float32")


def test_notes_about_earlier_names_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grpo", "-c", "quickstart", "--dry-run", "--group-size", "4"]) == 0
    out, err = capsys.readouterr()
    assert err == "note: group_size is read as num_generations=4\n"
    assert yaml.safe_load(out)["num_generations"] == 4


def test_a_flag_does_not_swallow_what_follows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "--skip-sft", "grpo.max_steps=3", "--dry-run"]) == 0
    values = yaml.safe_load(capsys.readouterr().out)
    assert (values["skip_sft"], values["grpo"]["max_steps"]) == (True, 3)


@pytest.mark.parametrize("kind", ["grpo", "pipeline"])
def test_dry_run_says_what_is_sampled_ahead(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["schedule=one_step_off", "engine.own_process=true"]
    if kind == "pipeline":
        settings = [f"grpo.{setting}" for setting in settings]
    assert main([kind, *settings, "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert "note: schedule one_step_off: step k + 1 is sampled" in captured.err
    assert "correction: tis_token" in captured.out
    assert main([kind, "--dry-run"]) == 0
    assert "schedule" not in capsys.readouterr().err
    assert main([kind, settings[0], "--dry-run"]) == 2
    assert "samples in the trainer's process" in capsys.readouterr().err


def test_every_command_that_composes_has_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstart", "--dry-run"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["kind"] == "pipeline"
    assert main(["sample", "a/b", "1+1?", "-n", "3", "--dry-run"]) == 0
    values = yaml.safe_load(capsys.readouterr().out)
    assert (values["model"]["name_or_path"], values["num_samples"]) == ("a/b", 3)


# ------------------------------------------------------------------------------ handing over


@pytest.mark.parametrize("kind", ["sft", "grpo", "pipeline", "eval"])
def test_a_run_is_handed_to_its_command(kind: str, replace: Replace) -> None:
    calls = replace(kind, 0)
    assert main([kind]) == 0
    fresh = {"fresh": False} if kind == "eval" else {}
    assert calls == [((compose([], kind=kind),), {"resume": None, **fresh})]


@pytest.mark.parametrize(
    ("arguments", "resume"),
    [([], None), (["--resume"], "latest"), (["--resume", "runs/x"], "runs/x")],
)
def test_resume(arguments: list[str], resume: str | None, replace: Replace) -> None:
    calls = replace("grpo")
    assert main(["grpo", "-c", "quickstart", *arguments, "max_steps=3"]) == 0
    ((run,), options) = calls[0]
    assert isinstance(run, GRPOConfig)
    assert (run.max_steps, options) == (3, {"resume": resume})


def test_quickstart(replace: Replace) -> None:
    calls = replace("quickstart")
    assert main(["quickstart", "--fresh", "--resume", "grpo.max_steps=1"]) == 0
    ((run,), options) = calls[0]
    assert isinstance(run, PipelineConfig)
    assert (run.grpo.max_steps, options) == (1, {"resume": "latest", "fresh": True})


def test_sample(replace: Replace) -> None:
    calls = replace("sample")
    question = "What is 2 = 1 + x? --max"
    assert main(["sample", "out/final", question, "-n", "4", "--temperature", "0.2"]) == 0
    ((run,), options) = calls[0]
    assert isinstance(run, SampleConfig)
    assert (run.model.name_or_path, run.num_samples, run.sampling.temperature) == (
        "out/final",
        4,
        0.2,
    )
    assert options == {"question": question}
    assert main(["sample", "out/final", "?", "--template=think", "engine=transformers"]) == 0
    assert calls[1][0][0].template == "think"


def test_grade(replace: Replace) -> None:
    calls = replace("grade", 1)
    assert main(["grade", "a.jsonl", "-", "--by", "kind", "--by", "level", "--policy", "tag"]) == 1
    (files,), options = calls[0]
    assert files == ["a.jsonl", "-"]
    assert options["asked"] == AskedFor(by=("kind", "level"))
    assert (options["policy"], options["deadline"], options["num_workers"]) == ("tag", 2.0, None)
    assert main(["grade", "--strict", "--explain", "-x", "--y"]) == 1
    assert calls[1][0] == ([],)
    assert (calls[1][1]["pair"], calls[1][1]["strict"]) == (("-x", "--y"), True)


def test_plot_and_export(replace: Replace) -> None:
    plots, exports = replace("plot"), replace("export")
    assert main(["plot", "runs/a", "runs/b", "--metric", "x", "--output", "o.png"]) == 0
    unasked = {"figure": None, "by": (), "smoothing": None, "title": None}
    assert plots == [
        (
            ([Path("runs/a"), Path("runs/b")],),
            {"metrics": ("x",), "output": Path("o.png"), **unasked},
        )
    ]
    assert main(["export", "runs/a", "out", "--format", "adapter"]) == 0
    assert exports == [((Path("runs/a"), Path("out")), {"format": "adapter"})]


def test_inspect(replace: Replace) -> None:
    data, rollouts = replace("inspect_data"), replace("inspect_rollouts")
    assert main(["inspect", "data", "-c", "cs336_grpo", "--limit", "2", "seed=3"]) == 0
    assert data == [((compose(["cs336_grpo"], ["seed=3"], kind="grpo"),), {"limit": 2})]
    assert main(["inspect", "rollouts", "runs/x", "--step", "3"]) == 0
    assert rollouts[0] == ((Path("runs/x"),), {"config": None, "step": 3, "limit": 3})
    assert main(["inspect", "rollouts", "-c", "quickstart", "seed=1"]) == 0
    assert rollouts[1] == (
        (None,),
        {"config": compose(["quickstart"], ["seed=1"], kind="grpo"), "step": None, "limit": 3},
    )


def test_doctor(replace: Replace) -> None:
    calls = replace("doctor")
    assert main(["doctor"]) == 0
    assert main(["doctor", "-c", "cs336_sft"]) == 0
    assert main(["doctor", "max_steps=1"]) == 0
    assert [arguments for arguments, _ in calls] == [
        (None,),
        (compose(["cs336_sft"], kind="sft"),),
        (compose([], ["max_steps=1"], kind="grpo"),),
    ]


# -------------------------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("result", "code", "message"),
    [
        (0, 0, ""),
        (3, 3, ""),
        (ConfigError("a", hint="b"), 2, "error: a\n\nhint: b\n"),
        (DataError("a"), 2, "error: a\n"),
        (EngineError("a"), 1, "error: a\n"),
        (TrainingError("a"), 1, "error: a\n"),
        (StoppedBySignal(15, "stopped"), 143, "error: stopped\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
    ],
)
def test_exit_codes(
    result: int | BaseException,
    code: int,
    message: str,
    replace: Replace,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WORKINGS_TRACEBACK", raising=False)
    replace("grpo", result)
    assert main(["grpo", "-c", "quickstart"]) == code
    assert capsys.readouterr().err.strip() == message.strip()


def test_a_fault_of_the_program_is_not_hidden(replace: Replace) -> None:
    replace("grpo", TypeError("a bug"))
    with pytest.raises(TypeError, match="a bug"):
        main(["grpo", "-c", "quickstart"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["grpo", "--max-stepz", "3"],
            "error: unknown key 'max-stepz'; did you mean 'max_steps'?\n\n"
            "hint: `workings grpo --help` lists every setting\n",
        ),
        (
            ["grpo", "-c", "quickstart", "sampling.top_p=2", "--dry-run"],
            "error: sampling.top_p=2; expected a number, above 0, at most 1\n",
        ),
        (
            ["grpo", "-c", "cs336_sft", "--dry-run"],
            "error: 'cs336_sft' describes a run of kind 'sft', not 'grpo'\n\n"
            "hint: workings sft -c cs336_sft\n",
        ),
        (
            ["inspect", "rollouts"],
            "error: give a run's folder, or -c NAME_OR_FILE and settings\n",
        ),
        (
            ["inspect", "rollouts", "runs/x", "seed=1"],
            "error: give a run's folder, or -c NAME_OR_FILE and settings\n",
        ),
    ],
)
def test_messages_of_a_wrong_command_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "trian"),
        (["plot", "--colour"], "--colour"),
        (["export", "only-one"], "destination"),
        (["grpo", "-c"], "-c"),
        (["inspect", "data", "--limit", "0"], "--limit"),
    ],
)
def test_a_wrong_use_of_an_option_ends_with_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert words in err.lower()


# ------------------------------------------------------------------------------------- help


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        assert main(arguments) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert all(f"\n  {command} " in out for command in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"workings {workings.__version__}\n"


def test_the_help_of_a_run_lists_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grpo", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--resume" in out
    assert "optimizer.learning_rate" in out


def test_arguments_of_the_process_are_the_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["workings", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("workings ")
