"""`workings view`: what it refuses, and that it needs no torch; the page is tested elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from workings.cli.main import main

PROBE = """
import os, sys
from pathlib import Path
import workings.viewer.server as server
from workings.cli.main import main
os.execv = lambda *arguments: print(arguments[1][-1], "torch" in sys.modules)
server.check_installed = lambda: None
main(["view", sys.argv[1]])
"""


def test_a_missing_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(tmp_path / "none")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no folder" in printed.err


def test_a_missing_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(tmp_path), "--tokenizer", str(tmp_path / "none")]) == 2
    assert "no tokenizer at" in capsys.readouterr().err


def test_without_streamlit_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["view", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert "hint: pip install -e '.[view]'" in printed


def test_the_address_is_all_that_goes_to_stdout_and_no_torch_is_imported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    address, started = done.stdout.splitlines()
    assert address.startswith("http://127.0.0.1:")
    assert started == f"{tmp_path} False"
    assert "read-only" in done.stderr
