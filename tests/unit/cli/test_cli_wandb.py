"""`workings wandb`: where a key goes, what a file of settings holds, and which runs are sent.

Nothing here reaches a network: wandb is pointed at a port of this machine where nobody listens.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from workings.cli.commands import wandb_setup
from workings.cli.main import main
from workings.config.compose import compose
from workings.tracking.wandb import offline_runs, sync_command

Captured = pytest.CaptureFixture[str]
KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, apart from the home folder; no key and no account is known."""
    for name in ("WANDB_API_KEY", "WANDB_KEY", "WANDB_ENTITY", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "home" / ".netrc"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def _holds_key(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_key_of_the_environment_is_stored_nowhere(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert main(["wandb", "setup", "--entity", "team", "--project", "sums"]) == 0
    out, err = capsys.readouterr()
    assert out == "wandb.yaml\n"
    assert "it is stored nowhere" in err
    assert "project sums, entity team, online; it holds no key" in err
    assert _holds_key(project.parent) == []
    run = compose(["grpo", "wandb.yaml"], kind="grpo")
    tracking = run.tracking
    assert (tracking.wandb, tracking.wandb_project, tracking.wandb_entity, tracking.wandb_mode) == (
        True,
        "sums",
        "team",
        "online",
    )


def test_another_key_goes_to_wandbs_own_login(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_KEY", KEY)
    assert main(["wandb", "setup", "--offline"]) == 0
    err = capsys.readouterr().err
    netrc = project.parent / "home" / ".netrc"
    assert f"the key from WANDB_KEY was handed to wandb, which keeps it in {netrc}" in err
    assert _holds_key(project.parent) == [netrc]
    assert KEY not in err


def test_a_key_never_lands_inside_of_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("WANDB_KEY", KEY)
    monkeypatch.setenv("NETRC", str(project / "netrc"))
    assert main(["wandb", "setup"]) == 2
    assert "inside of this project" in capsys.readouterr().err
    assert list(project.iterdir()) == []


def test_a_key_is_asked_for_at_a_terminal(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda *_: f" {KEY}\n")
    assert wandb_setup.find_key() == ("the terminal", KEY)


def test_without_a_key_or_a_terminal_it_says_so(project: Path, capsys: Captured) -> None:
    assert main(["wandb", "setup"]) == 2
    err = capsys.readouterr().err
    assert "WANDB_API_KEY is not set, and there is no terminal to ask at" in err
    assert not (project / "wandb.yaml").exists()


def test_what_is_no_key_is_not_repeated(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "secretbutshort")
    assert main(["wandb", "setup"]) == 2
    err = capsys.readouterr().err
    assert "WANDB_API_KEY holds no W&B key: 14 characters" in err
    assert "secret" not in err


def test_other_settings_are_not_overwritten(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    (project / "wandb.yaml").write_text("tracking: {wandb: false}\n")
    assert main(["wandb", "setup"]) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert main(["wandb", "setup", "--force"]) == 0


def _offline(folder: Path, *, sent: bool = False) -> Path:
    folder.mkdir(parents=True)
    (folder / "run-a.wandb").write_bytes(b":W&B")
    if sent:
        (folder / "run-a.wandb.synced").touch()
    return folder


def test_runs_that_were_sent_are_not_sent_again(tmp_path: Path, capsys: Captured) -> None:
    new = _offline(tmp_path / "runs" / "a" / "wandb" / "offline-run-1-a")
    old = _offline(tmp_path / "runs" / "b" / "wandb" / "offline-run-2-b", sent=True)
    assert offline_runs(tmp_path) == [new]
    assert offline_runs(tmp_path, again=True) == [new, old]
    assert main(["wandb", "sync", str(tmp_path), str(tmp_path / "runs" / "b"), "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{new}\n"
    assert "1 offline runs, all sent already; --again sends them once more" in err


def test_the_command_is_wandbs_own(tmp_path: Path) -> None:
    command = sync_command(tmp_path, project="sums", entity="team", again=True)
    assert command[1:] == [
        *("-m", "wandb", "sync", "--project", "sums", "--entity", "team"),
        *("--include-synced", str(tmp_path)),
    ]


def test_a_folder_without_runs_is_said(tmp_path: Path, capsys: Captured) -> None:
    assert main(["wandb", "sync", str(tmp_path)]) == 0
    assert "no offline run; a run makes one with tracking.wandb=true" in capsys.readouterr().err
    assert main(["wandb", "sync", str(tmp_path / "missing")]) == 2


def test_a_run_that_cannot_be_sent_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By wandb's real command, which has no key and nobody to talk to."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    place = _offline(project / "wandb" / "offline-run-1-a")
    assert main(["wandb", "sync", str(project)]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert f"{place}: wandb sync ended with exit code" in err
    assert "1 of 1 runs were not sent" in err
