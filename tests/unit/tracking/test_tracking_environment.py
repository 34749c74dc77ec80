"""The conditions of a number."""

from __future__ import annotations

import doctest
import json
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from workings.tracking import environment
from workings.tracking.environment import (
    command_line,
    environment_report,
    git_state,
    package_versions,
)


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_doctests() -> None:
    assert doctest.testmod(environment).failed == 0


def test_the_report_can_be_written_as_json() -> None:
    report = environment_report(device={"name": "cpu", "num_devices": 0})
    assert json.loads(json.dumps(report)) == report
    assert report["python"] == platform.python_version()
    assert report["packages"]["numpy"] == version("numpy")
    assert report["device"] == {"name": "cpu", "num_devices": 0}
    assert report["memory_gb"] > 0
    assert 1 <= report["num_usable_cpus"] <= report["num_cpus"]
    assert report["command"]


def test_packages_that_are_not_installed_are_left_out() -> None:
    assert package_versions(["numpy", "surely-not-installed"]) == {"numpy": version("numpy")}


def test_the_commit_of_a_tracked_folder(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "package").mkdir()
    source = tmp_path / "package" / "code.py"
    source.write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert git_state(tmp_path / "package") == {"commit": head, "dirty": False}
    source.write_text("x = 2\n")
    assert git_state(tmp_path / "package") == {"commit": head, "dirty": True}


def test_a_folder_that_a_checkout_does_not_track_has_no_commit(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    git(tmp_path, "init", "-q")
    (tmp_path / "readme").write_text("")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "code.py").write_text("")
    assert git_state(tmp_path / "installed") is None


def test_credentials_are_blanked_and_ordinary_settings_are_not() -> None:
    line = command_line(["x", "hf_token=abc", "WANDB_API_KEY=s3", "pad_token=<pad>", "key=a"])
    assert line == "x 'hf_token=***' 'WANDB_API_KEY=***' 'pad_token=<pad>' key=a"


def test_no_torch_is_needed() -> None:
    program = (
        "import sys\n"
        "from workings.tracking.environment import environment_report\n"
        "assert environment_report()['packages']['torch']\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
