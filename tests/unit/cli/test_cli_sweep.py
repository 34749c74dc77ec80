"""`workings sweep`: what is listed, real runs in processes, and the table and figure at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import run_arguments

from workings.cli.main import main

Captured = pytest.CaptureFixture[str]
RATES = "optimizer.learning_rate=1e-5,3e-5"


def test_a_dry_run_lists_the_runs(tmp_path: Path, capsys: Captured) -> None:
    arguments = ["sweep", "-c", "grpo", RATES, "--seed", "1,2", "seed=1,2"]
    assert main(arguments) == 2
    assert "seed is given two lists of values" in capsys.readouterr().err
    arguments = ["sweep", "-c", "grpo", RATES, "seed=1,2", f"output_dir={tmp_path}", "--dry-run"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"4 grpo runs below {tmp_path}/sweeps/grpo-learning_rate-seed"
    assert lines[1] == f"in common: output_dir={tmp_path}"
    assert lines[5].split() == ["learning_rate_1e-05__seed_1", "1e-05", "1", "waiting"]
    assert list(tmp_path.iterdir()) == []


def test_a_name_says_where(tmp_path: Path, capsys: Captured) -> None:
    more = ["name=mine", f"output_dir={tmp_path}", "--dry-run"]
    assert main(["sweep", "-c", "quickstart/sft", RATES, *more]) == 0
    assert capsys.readouterr().out.startswith(f"2 sft runs below {tmp_path}/mine\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=1"], "nothing varies, so there is no sweep"),
        (["seed=1,2", "launcher=slurm"], "launcher=slurm; expected one of local, ray"),
        (["num_generations=8,x", "--dry-run"], "num_generations_x: num_generations"),
        (["seed=1,2", "--zip", "seed,other"], "other does not vary"),
        (["seed=1,2", "--jobs", "2", "--devices", "0"], "every run gets a device of its own"),
    ],
)
def test_what_is_no_sweep(
    arguments: list[str], message: str, tmp_path: Path, capsys: Captured
) -> None:
    assert main(["sweep", "-c", "grpo", f"output_dir={tmp_path}", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_kinds_without_an_end_are_refused(capsys: Captured) -> None:
    assert main(["sweep", "-c", "serve", "seed=1,2"]) == 2
    assert "a run of kind 'serve' cannot be swept" in capsys.readouterr().err


def test_real_runs_a_table_and_a_figure(
    tiny_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    """Two SFT runs at once, one of which cannot work; then the same command with the rest."""
    _, *settings = run_arguments("sft", tiny_folder, tmp_path, "name=s", "max_steps=2")
    settings += ["batch_size=4", "evaluation.every_steps=0", "evaluation.at_start=false"]
    settings += ["evaluation.at_end=false", "reward=r1_zero", "checkpoint.at_end=false"]
    settings += ["data.max_response_length=null", f"model.adapter=null,{tmp_path / 'missing'}"]
    assert main(["sweep", *settings, "--jobs", "2"]) == 1
    out, err = capsys.readouterr()
    sweep = json.loads((tmp_path / "s" / "sweep.json").read_text())
    states = {run["values"]["model.adapter"]: run for run in sweep["runs"]}
    assert [run["status"] for run in states.values()] == ["finished", "failed"]
    failed = states[str(tmp_path / "missing")]
    assert "missing" in failed["error"]
    assert f"failed: {failed['error']}" in err
    assert "the same command tries these again" in err
    assert sweep["results"]["metric"] == "train/loss"
    assert sweep["results"]["lower_is_better"]
    table = out.splitlines()
    assert table[2].split()[0] == "null"
    assert "failed" in table[3]
    assert (tmp_path / "s" / "plots" / "train_loss.png").is_file()
    before = (tmp_path / "s" / "adapter_null" / "metrics.jsonl").read_bytes()
    assert main(["sweep", *settings]) == 1
    assert "1 of 2 runs are finished already" in capsys.readouterr().err
    assert (tmp_path / "s" / "adapter_null" / "metrics.jsonl").read_bytes() == before
