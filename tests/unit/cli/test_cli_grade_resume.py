"""A half-written file of verdicts is gone on with, or refused where it does not fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import grade_files
import pytest
from grade_files import RIGHT, ROWS, WRONG, records, write_rows

import workings.cli.grade.grade_file as grade_file
from workings.cli.grade.output import GradedFile
from workings.cli.main import main

Captured = pytest.CaptureFixture[str]
NUM_ROWS = 60


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [
        {"id": n, "kind": f"k{n % 3}", "answer": "5", "response": [RIGHT, WRONG][: 1 + n % 2]}
        for n in range(NUM_ROWS)
    ]
    return write_rows(tmp_path / "responses.jsonl", rows)


def _part(file: Path) -> Path:
    return file.with_name("responses.graded.jsonl.part")


def _output(file: Path) -> Path:
    return file.with_name("responses.graded.jsonl")


def _stop(
    file: Path, how: str = "kill", at: int = 3, *more: str
) -> subprocess.CompletedProcess[str]:
    """`workings grade` in a process of its own, stopped at the `at`-th write of 8 verdicts."""
    command = [sys.executable, grade_files.__file__, how, str(at), str(file), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def _grade(file: Path, *more: str) -> int:
    return main(["grade", str(file), "--workers", "1", *more])


def _without_times(file: Path) -> tuple[list[dict[str, object]], dict[str, object]]:
    lines = [{**record, "milliseconds": 0} for record in records(file)]
    summary = json.loads(file.with_name("responses.graded.summary.json").read_text())
    for tier in summary["tiers"].values():
        del tier["milliseconds"]
    for listed in summary["listed"].values():
        for record in listed:
            record["milliseconds"] = 0
    return lines, summary


def test_after_a_kill_no_row_is_repeated_or_lost(file: Path, capsys: Captured) -> None:
    assert _stop(file).returncode == -9
    left = _part(file).read_bytes()
    assert not left.endswith(b"\n")
    assert not _output(file).exists()
    kept = left.count(b"\n")
    assert 16 < kept < 24
    assert _grade(file) == 0
    assert f"; {kept} were graded by an earlier start" in capsys.readouterr().err
    assert _output(file).read_bytes().startswith(left[: left.rindex(b"\n") + 1])
    resumed = _without_times(_output(file))
    assert not _part(file).exists()
    assert _grade(file, "--fresh") == 0
    assert resumed == _without_times(_output(file))
    assert len(resumed[0]) == NUM_ROWS + NUM_ROWS // 2


def test_twice_killed_and_then_finished(file: Path) -> None:
    for _ in range(2):
        assert _stop(file, "kill", 2).returncode == -9
    assert _grade(file) == 0
    resumed = _without_times(_output(file))
    assert _grade(file, "--fresh") == 0
    assert resumed == _without_times(_output(file))


def test_ctrl_c_says_that_the_work_is_kept(file: Path) -> None:
    done = _stop(file, "interrupt", 3)
    assert done.returncode == 130
    assert done.stderr.endswith(
        "note: what is graded is kept; the same command goes on from there\nerror: interrupted\n"
    )
    assert "Traceback" not in done.stderr
    assert len(records(_part(file))) == 16
    assert _grade(file) == 0
    assert len(records(_output(file))) == NUM_ROWS + NUM_ROWS // 2


def _half(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grade the first 16 responses and stop."""
    monkeypatch.setattr(grade_file, "FIRST_CHUNK", 8)
    monkeypatch.setattr(grade_file, "LARGEST_CHUNK", 8)
    write = GradedFile.write
    calls = []

    def stop(self: GradedFile, lines: bytes) -> None:
        calls.append(lines)
        if len(calls) == 3:
            raise KeyboardInterrupt
        write(self, lines)

    with monkeypatch.context() as patch:
        patch.setattr(GradedFile, "write", stop)
        assert _grade(file) == 130


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "tag"], "policy.extraction was boxed and is tag"),
        (["--deadline", "3"], "policy.deadline_seconds was 2.0 and is 3.0"),
        (["--bare"], "bare was False and is True"),
        (["--by", "none"], "columns.by was kind and is none"),
    ],
)
def test_other_settings_are_refused(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    arguments: list[str],
    message: str,
) -> None:
    _half(file, monkeypatch)
    before = _part(file).read_bytes()
    capsys.readouterr()
    assert _grade(file, *arguments) == 2
    err = capsys.readouterr().err
    assert f"error: {_part(file)} was made with other settings: {message}" in err
    assert "hint: --fresh grades everything anew into the same file, --out NAME into another" in err
    assert _part(file).read_bytes() == before
    assert _grade(file, *arguments, "--fresh") == 0
    assert len(records(_output(file))) == NUM_ROWS + NUM_ROWS // 2


def test_a_changed_input_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    _half(file, monkeypatch)
    with file.open("a") as stream:
        stream.write(json.dumps(ROWS[0]) + "\n")
    assert _grade(file) == 2
    assert ".part was made with other settings: sha256 was " in capsys.readouterr().err


def test_another_version_of_the_grader_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    _half(file, monkeypatch)
    monkeypatch.setattr(grade_file, "GRADER_VERSION", 999)
    assert _grade(file) == 2
    assert "grader_version was " in capsys.readouterr().err
    assert _grade(file, "--fresh") == 0
    monkeypatch.setattr(grade_file, "GRADER_VERSION", 1000)
    assert _grade(file) == 2
    assert "grader_version was 999 and is 1000" in capsys.readouterr().err


def test_a_moved_file_and_other_workers_are_no_other_settings(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    _half(file, monkeypatch)
    folder = file.parent / "moved"
    folder.mkdir()
    for path in (file, _part(file), _part(file).with_name(_part(file).name + ".json")):
        path.rename(folder / path.name)
    assert main(["grade", str(folder / file.name), "--workers", "2"]) == 0
    assert "; 16 were graded by an earlier start" in capsys.readouterr().err


def test_a_finished_file_is_kept(file: Path, capsys: Captured) -> None:
    assert _grade(file) == 0
    before = (_output(file).stat().st_mtime_ns, capsys.readouterr().out)
    assert _grade(file) == 0
    out, err = capsys.readouterr()
    assert (_output(file).stat().st_mtime_ns, out) == before
    assert "was finished before with these settings; kept" in err


def test_a_file_of_something_else_is_not_overwritten(file: Path, capsys: Captured) -> None:
    for path in (_output(file), _part(file)):
        path.write_text("mine\n")
        assert _grade(file) == 2
        err = capsys.readouterr().err
        assert f"error: {path} exists, and {path.name.removesuffix('.jsonl')}" in err
        assert path.read_text() == "mine\n"
        assert _grade(file, "--fresh") == 0
        _output(file).unlink()


def test_damaged_files_are_told(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    _half(file, monkeypatch)
    part = _part(file)
    lines = part.read_bytes().splitlines(keepends=True)
    state = part.with_name(part.name + ".json")
    capsys.readouterr()
    for content, message in (
        (b"".join([lines[0], b"x\n", *lines[2:]]), f"{part}, line 2 is no verdict: the file is"),
        (b"".join(lines[1:3]) + lines[5], "do not fit to the rows that are read"),
    ):
        part.write_bytes(content)
        assert _grade(file) == 2
        assert message in capsys.readouterr().err
    state.write_text("[")
    assert _grade(file) == 2
    assert f"error: {state} cannot be read: " in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="files are locked on Unix only")
def test_two_processes_do_not_write_one_file(file: Path, capsys: Captured) -> None:
    with GradedFile(_output(file), {}, fresh=True):
        assert _grade(file) == 2
    assert f"another process is writing {_part(file)}" in capsys.readouterr().err


def test_a_kill_while_finishing_leaves_what_can_be_finished(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the summary was written and before the file got its name."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", _interrupted_for(".part", Path.replace))
        assert _grade(file) == 130
    assert not _output(file).exists()
    assert _grade(file) == 0
    assert len(records(_output(file))) == NUM_ROWS + NUM_ROWS // 2


def _interrupted_for(suffix: str, replace: object) -> object:
    def stop(self: Path, target: Path) -> Path:
        if self.suffix == suffix:
            raise KeyboardInterrupt
        return replace(self, target)  # type: ignore[operator, no-any-return]

    return stop
