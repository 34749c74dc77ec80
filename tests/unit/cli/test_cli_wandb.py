"""`workings wandb`: where a key goes, what a file of settings holds, and which runs are sent.

Nothing here reaches a network: wandb is pointed at a port of this machine, where nobody listens or
a server that answers as W&B's does.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from workings.cli.commands import wandb_setup
from workings.cli.main import main
from workings.config.compose import compose
from workings.tracking.wandb import WandbSink, offline_runs, sync_command

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


def test_runs_that_were_recorded_online_are_left_alone(tmp_path: Path, capsys: Captured) -> None:
    online = _offline(tmp_path / "wandb" / "run-20261128_070331-a")
    assert offline_runs(tmp_path, again=True) == offline_runs(online, again=True) == []
    assert main(["wandb", "sync", str(tmp_path)]) == 0
    assert "no offline run" in capsys.readouterr().err


def test_the_folder_of_a_run_may_be_named_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = _offline(tmp_path / "wandb" / "offline-run-1-a")
    monkeypatch.chdir(place)
    assert offline_runs(place) == [place]
    assert offline_runs(Path(".")) == [Path(".")]


class _Answers(BaseHTTPRequestHandler):
    """What wandb asks of a server while it sends a run; `refused` ends paths answered with 403."""

    refused: tuple[str, ...] = ()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        answer = self._data(json.loads(body)) if self.path == "/graphql" else {}
        self.send_response(403 if self.path.endswith(self.refused) else 200)
        self.send_header("Content-Type", "application/json")
        text = json.dumps(answer).encode()
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_PUT(self) -> None:
        self.do_POST()

    def do_GET(self) -> None:
        self.do_POST()

    def _data(self, asked: dict[str, Any]) -> dict[str, Any]:
        values = asked.get("variables", {})
        if "CreateRunFiles" in asked["query"]:
            place = f"http://{self.headers['Host']}/upload"
            files = [{"name": name, "uploadUrl": f"{place}/{name}"} for name in values["files"]]
            return {"data": {"createRunFiles": {"runID": "1", "uploadHeaders": [], "files": files}}}
        project = {"id": "2", "name": "sums", "entity": {"id": "3", "name": "team"}}
        bucket = {"id": "1", "name": values.get("name"), "config": "{}", "project": project}
        return {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Answers]]:
    """A server of this machine that wandb takes for W&B's; what it refuses may be set."""

    class Answers(_Answers):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as listening:
        thread = Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{listening.server_port}")
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        yield Answers
        listening.shutdown()
        thread.join()


@pytest.fixture
def recorded(project: Path) -> Path:
    """The folder of a run that was recorded offline."""
    pytest.importorskip("wandb")
    sink = WandbSink(project / "runs" / "a", project="sums", name="a")
    sink.record(1, "train", {"train/loss": 0.5}, time=0.0)
    sink.close()
    (place,) = (project / "runs" / "a" / "wandb").glob("offline-run-*")
    return place


def test_a_run_that_the_server_refuses_is_not_told_as_sent(
    recorded: Path, server: type[_Answers], capfd: pytest.CaptureFixture[str]
) -> None:
    """wandb's own command ends with exit code 0 here."""
    server.refused = ("/graphql",)
    assert main(["wandb", "sync", "."]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    place = recorded.relative_to(Path.cwd())
    assert f"note: {place}: wandb sync ended with exit code 0 but marked nothing as sent" in err
    assert "wandb said: ERROR" in err
    assert "1 of 1 runs were not sent" in err


def test_a_run_that_was_sent_is_listed_and_a_later_failure_told(
    recorded: Path, server: type[_Answers], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["wandb", "sync", str(recorded)]) == 0
    assert capfd.readouterr().out == f"{recorded}\n"
    assert offline_runs(recorded) == []
    server.refused = ("/graphql",)
    assert main(["wandb", "sync", str(recorded), "--again"]) == 1
    out, err = capfd.readouterr()
    assert (out, "marked nothing as sent" in err) == ("", True)
    server.refused = ()
    assert main(["wandb", "sync", str(recorded), "--again"]) == 0


def test_a_run_of_which_a_part_was_refused_counts_as_not_sent(
    recorded: Path, server: type[_Answers], capfd: pytest.CaptureFixture[str]
) -> None:
    """wandb marks it as sent, ends with exit code 0 and only prints that data are missing."""
    server.refused = ("/file_stream",)
    assert main(["wandb", "sync", str(recorded)]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "ended with exit code 0 but told of an error; wandb said: ERROR" in err
    assert offline_runs(recorded) == [recorded]
