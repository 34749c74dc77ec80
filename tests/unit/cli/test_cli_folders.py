"""The folder of a run: whose it is, and that one process writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_runs import grpo_arguments

from workings.cli import folders
from workings.cli.main import main
from workings.config.compose import compose
from workings.tracking.alone import run_alone


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "e"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("kind: eval\nname: e\n", encoding="utf-8")
    (folder / "metrics.jsonl").write_text('{"step": 0, "eval/accuracy": 0.5}\n', encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", ["sft", "grpo", "dpo", "expert-iteration"])
def test_training_does_not_go_on_with_a_run_of_another_kind(
    kind: str, evaluation: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in evaluation.iterdir()}
    arguments = [kind, "-c", kind, f"output_dir={evaluation.parent}", "name=e", "--resume"]
    assert main([*arguments, f"model.name_or_path={tiny_folder}", "data.train=rows.jsonl"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"holds a run of kind eval, and this one is of kind {kind}" in told
    assert "name=..." in told
    after = {path.name: path.read_bytes() for path in evaluation.iterdir()}
    assert {name: text for name, text in after.items() if name != ".lock"} == before


def test_a_folder_that_a_process_trains_in_is_not_taken(
    tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = grpo_arguments(tiny_folder, tmp_path, "name=run")
    with run_alone(tmp_path / "run"):
        assert main(arguments) == 2
        told = " ".join(capsys.readouterr().err.split())
        assert f"another process is writing {tmp_path / 'run'}: process {os.getpid()}" in told
        assert not (tmp_path / "run" / "config.yaml").exists()
    assert main(arguments) == 0
    assert (tmp_path / "run" / ".lock").read_text() == ""


def test_a_start_that_is_cut_off_leaves_the_settings_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = compose([], [f"output_dir={tmp_path}", "name=run"], kind="sft")
    folders.open_folder(run, resume=None)
    stored = (tmp_path / "run" / "config.yaml").read_text()

    def cut_off(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", cut_off)
    with pytest.raises(KeyboardInterrupt):
        folders.open_folder(run.model_copy(update={"seed": 7}), resume="latest")
    assert (tmp_path / "run" / "config.yaml").read_text() == stored
