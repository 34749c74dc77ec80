"""`workings expert-iteration` on the tiny model, and the commands that read its run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import VALIDATION, run_arguments

from workings.cli.main import main

Captured = pytest.CaptureFixture[str]


def expert_arguments(model: Path, output: Path, *more: str) -> list[str]:
    """Two small rounds; a sample of a random model is "right" if it stops early."""
    return run_arguments(
        "expert-iteration",
        model,
        output,
        *(f"data.validation={VALIDATION}", "data.validation_fraction=0"),
        *("reward.overlong_buffer=9", "keep_above=-0.5", "iterations=2"),
        *("questions_per_iteration=4", "num_generations=4", "batch_size=4"),
        "sampling={temperature: 1.0, max_tokens: 10, min_tokens: 1, "
        "stop: [a, e, '3', '7', x, '+']}",
        "optimizer={learning_rate: 0.01}",
        "evaluation={limit: 4, sampling: {max_tokens: 10}}",
        *more,
    )


@pytest.fixture(scope="module")
def expert_run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("expert")
    assert main(expert_arguments(tiny_folder, output, "name=e")) == 0
    return output / "e"


def test_a_run_leaves_its_folder_in_order(expert_run: Path) -> None:
    rows = [json.loads(line) for line in (expert_run / "metrics.jsonl").read_text().splitlines()]
    rounds = [row for row in rows if "train/kept_rows" in row]
    assert [row["train/iteration"] for row in rounds] == [1, 2]
    assert all(0 < row["train/kept_fraction"] <= 1 for row in rounds)
    kept = sorted(path.name for path in (expert_run / "kept").iterdir())
    assert kept == [f"step_{row['step']:06d}.parquet" for row in rounds]
    assert sorted(path.name for path in (expert_run / "rollouts").iterdir()) == kept
    assert next(row["step"] for row in rows if row["kind"] == "eval") == 0
    assert sum(row["kind"] == "eval" for row in rows) == 3
    assert (expert_run / "final" / "model.safetensors").is_file()
    assert "workings expert-iteration -c config.yaml" in (
        (expert_run / "final" / "README.md").read_text()
    )


def test_a_finished_run_is_not_run_again(
    expert_run: Path, tiny_folder: Path, capsys: Captured
) -> None:
    arguments = expert_arguments(tiny_folder, expert_run.parent, "name=e")
    assert main(arguments) == 2
    assert main([*arguments, "--resume"]) == 3
    assert "is finished" in capsys.readouterr().err


def test_more_rounds_after_the_end(tiny_folder: Path, tmp_path: Path) -> None:
    arguments = expert_arguments(tiny_folder, tmp_path, "name=e")
    assert main([*arguments, "iterations=1"]) == 0
    assert main([*arguments, "--resume"]) == 0
    straight = expert_arguments(tiny_folder, tmp_path, "name=straight")
    assert main(straight) == 0
    files = [tmp_path / name / "final" / "model.safetensors" for name in ("e", "straight")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_dry_run_prints_settings_that_are_read_back(tmp_path: Path, capsys: Captured) -> None:
    assert main(["expert-iteration", "--dry-run", "group_size=2"]) == 0
    captured = capsys.readouterr()
    assert "kind: expert-iteration\n" in captured.out
    assert "group_size is read as num_generations=2" in captured.err
    file = tmp_path / "mine.yaml"
    file.write_text(captured.out)
    assert main(["expert-iteration", "-c", str(file), "--dry-run"]) == 0
    assert capsys.readouterr().out == captured.out


def test_help_lists_its_settings(capsys: Captured) -> None:
    assert main(["expert-iteration", "--help"]) == 0
    out = capsys.readouterr().out
    assert "Configurations: cs336_expert_iteration, expert-iteration" in out
    assert "questions_per_iteration" in out


def test_its_prompts_can_be_looked_at(expert_run: Path, capsys: Captured) -> None:
    assert main(["inspect", "data", "-c", str(expert_run), "--limit", "1"]) == 0
    assert "Nothing of a prompt is trained" in capsys.readouterr().out
    assert main(["inspect", "rollouts", str(expert_run), "--limit", "1"]) == 0


def test_it_is_evaluated_as_it_evaluates_itself(
    expert_run: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert main(["eval", "-c", str(expert_run), f"output_dir={tmp_path}", "name=again"]) == 0
    again = json.loads(next((tmp_path / "again").rglob("summary.json")).read_text())
    last = sorted((expert_run / "eval").iterdir())[-1]
    own = json.loads(next(last.rglob("summary.json")).read_text())
    assert again["metrics"] == own["metrics"]


def test_the_doctor_reads_its_settings(tiny_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    arguments = expert_arguments(tiny_folder, tmp_path, "name=e")
    code = main(["doctor", *arguments[1:]])
    out = capsys.readouterr().out
    assert code in (0, 1)
    assert "2 rounds of 4 questions x 4 samples" in out
    assert "the SFT loss nll on samples above -0.5" in out
