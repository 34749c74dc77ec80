"""The set-up script, without installing anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "setup_env.sh"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )


def test_it_is_bash_and_can_be_called() -> None:
    assert subprocess.run(["bash", "-n", str(SCRIPT)], check=False).returncode == 0
    assert SCRIPT.stat().st_mode & 0o111
    assert "--flash-attn" in run("--help").stdout


def test_two_steps_and_the_optional_third() -> None:
    plain = run("--dry-run", "--python", sys.executable)
    assert plain.returncode == 0, plain.stderr
    steps = [line for line in plain.stdout.splitlines() if line.startswith("+ ")]
    assert steps[-1].endswith("-m pip install --quiet -c constraints.txt -e .")
    assert "flash-attn" not in plain.stdout
    fast = run("--dry-run", "--python", sys.executable, "--flash-attn", "--extras", "wandb,demo")
    assert "-e .[wandb,demo]" in fast.stdout
    last = [line for line in fast.stdout.splitlines() if line.startswith("+ ")][-1]
    assert last.endswith("--no-build-isolation flash-attn>=2.8.3")


def test_a_build_that_fails_leaves_a_whole_environment_and_says_what_to_do(tmp_path: Path) -> None:
    """A stand-in for Python that fails to install flash-attn and does everything else."""
    repository = tmp_path / "clone"
    (repository / "scripts").mkdir(parents=True)
    (repository / "scripts" / "setup_env.sh").write_text(SCRIPT.read_text())
    python = repository / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\ncase "$*" in *flash-attn*) exit 1 ;; esac\nexit 0\n')
    python.chmod(0o755)
    command = ["bash", str(repository / "scripts" / "setup_env.sh"), "--flash-attn"]
    done = subprocess.run(
        [*command, "--python", sys.executable], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "ready without it" in done.stderr
    assert "flash-attention/releases" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--flash"], "unknown option '--flash'; known: --flash-attn"),
        (["--extras"], "--extras has no value"),
        (["--python", "--extras", "x"], "--python has no value"),
        (["--python", "/nonexistent/python"], "is not Python 3.11 or 3.12"),
    ],
)
def test_wrong_use_is_refused(arguments: list[str], message: str) -> None:
    done = run("--dry-run", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
