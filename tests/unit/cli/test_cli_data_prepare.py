"""`workings data prepare` as a command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from processes import wait_until
from workings.cli.commands.data_prepare import _token_counter
from workings.cli.main import main
from workings.data.encoding import encode_demonstration
from workings.data.preparation.recipe import Settings
from workings.data.templates import load_template
from workings.models.tokenizer import load_tokenizer
from workings.types import Demonstration

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """30 rows of OpenMathReasoning with thoughts of growing length."""
    path = tmp_path / "cot.jsonl"
    rows = [
        {
            "problem": f"What is {n} times one?",
            "generated_solution": f"<think>\n{'so ' * n}\n</think>\nIt is {n}.",
            "expected_answer": str(n),
            "pass_rate_72b_tir": "n/a" if n % 10 == 9 else str(n / 32),
        }
        for n in range(30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_set_is_prepared_and_trained_on_as_it_is(
    source: Path, tiny_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    tokenizer, template = load_tokenizer(str(tiny_folder)), load_template("r1_zero")

    def length(number: int) -> int:
        row = Demonstration(
            id="",
            question=f"What is {number} times one?",
            response=f"{'so ' * number}\n</think> <answer>It is {number}.</answer>",
        )
        return len(encode_demonstration(row, template, tokenizer).ids)

    limit = length(17)
    out = tmp_path / "OMR12k-2048"
    arguments = ["data", "prepare", "omr12k-2048", "--from", str(source), "--out", str(out)]
    arguments += ["--tokenizer", str(tiny_folder), "--size", "10", "--held-out", "2"]
    arguments += ["--max-length", str(limit)]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{out}\n"
    assert "of 30 rows: train.jsonl 8, validation.jsonl 2; dropped: " in captured.err
    assert f"by the tokenizer {tiny_folder}" in (out / "README.md").read_text()
    kept = [
        json.loads(line)
        for part in out.glob("*.jsonl")
        for line in part.read_text().split("\n")[:-1]
    ]
    fitting = [n for n in range(30) if n % 10 != 9 and length(n) <= limit]
    assert len(fitting) == 17
    assert sorted(int(row["answer"]) for row in kept) == fitting[-10:]
    # The command in the card makes the same again, and there is nothing left to do.
    command = json.loads((out / "preparation.json").read_text())["command"].split()
    before = (out / "README.md").read_bytes()
    assert main(command[1:]) == 0
    assert "holds this already" in capsys.readouterr().err
    assert main([*command[1:], "--force"]) == 0
    assert (out / "README.md").read_bytes() == before


def test_traces_are_counted_without_a_prompt(tiny_folder: Path) -> None:
    count = _token_counter(Settings(tokenizer=str(tiny_folder)))
    assert count is not None
    assert count("", "hello") == 2  # one token and EOS
    assert count("Why?", "hello") > 100


def test_dry_run_and_help_are_quick_and_import_no_torch(tmp_path: Path) -> None:
    script = (
        "import sys; from workings.cli.main import main;"
        "code = main(['data', 'prepare', 'openr1_46k', '--dry-run', '--max-length', '9']);"
        "sys.exit(code or 'torch' in sys.modules or 'transformers' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "from: open-r1/OpenR1-Math-220k (data/train-*.parquet)" in done.stdout
    assert "at most 9 tokens" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["omr"], "unknown recipe 'omr'; did you mean 'omr12k'"),
        (["dapo_math", "--size", "3"], "--size does nothing for dapo_math"),
        (["dapo_math", "--sets", "gsm8k"], "--sets is for benchmarks"),
        (["benchmarks", "--limit", "3"], "--limit does nothing for benchmarks"),
        (["dapo_math", "--drop-contaminated"], "needs --check-contamination"),
        (["dapo_math", "--from", "./none.jsonl"], "none.jsonl does not exist"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: list[str],
    said: str,
    capsys: Captured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", "prepare", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_another_file_in_a_folder_that_exists_is_an_error(
    source: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out"
    arguments = ["data", "prepare", "omr12k", "--from", str(source), "--out", str(out)]
    assert main([*arguments, "--held-out", "3"]) == 0
    assert main([*arguments, "--held-out", "4"]) == 2
    error = capsys.readouterr().err
    assert f"{out} exists, and is not what this would make: its --held-out is 3, not 4" in error
    assert "--force" in error


def test_benchmarks_and_a_check_against_them(
    source: Path, shared_data: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "eval"
    arguments = ["data", "prepare", "benchmarks", "--from", str(shared_data), "--out", str(out)]
    assert main([*arguments, "--sets", "aime24,math500"]) == 0
    assert capsys.readouterr().out == f"{out / 'aime24'}\n{out / 'math500'}\n"
    assert main([*arguments, "--sets", "math500"]) == 0
    assert "is there and stays" in capsys.readouterr().err
    mine = tmp_path / "mine.jsonl"
    mine.write_text(json.dumps({"problem": "what is 3 TIMES one", "answer": "3"}) + "\n")
    against = ["--check-contamination", f"{out / 'math500'},{mine}", "--drop-contaminated"]
    arguments = ["data", "prepare", "omr12k", "--from", str(source), "--held-out", "0"]
    assert main([*arguments, "--out", str(tmp_path / "omr"), *against]) == 0
    captured = capsys.readouterr()
    assert "contaminated 1 (first: line 4)" in captured.err
    card = json.loads((tmp_path / "omr/preparation.json").read_text())
    assert card["contamination"]["asked"]["benchmarks"] == {"math500": 500, "mine": 1}


def test_a_killed_command_leaves_no_half_file(tmp_path: Path, capsys: Captured) -> None:
    """kill -9 while rows are written; the same command then finishes."""
    source, out = tmp_path / "many.jsonl", tmp_path / "out"
    with source.open("w") as file:
        for number in range(20_000):
            trace = "thought " * 40
            row = {
                "problem": f"What is {number}?",
                "response": f"{trace}</think> <answer>{number}</answer>",
                "answer": str(number),
            }
            file.write(json.dumps(row) + "\n")
    arguments = ["data", "prepare", "math_sft", "--from", str(source), "--out", str(out)]
    script = f"from workings.cli.main import main; main({arguments!r})"
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    part = tmp_path / ".out.part/train.jsonl"
    try:
        assert wait_until(lambda: part.is_file() and part.stat().st_size > 100_000, seconds=60)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(20)
    assert not out.exists()
    assert main(arguments) == 0
    assert (out / "train.jsonl").read_text().count("\n") == 20_000
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
