"""Data to stdout, everything else to stderr."""

from __future__ import annotations

import pytest

from workings.cli.console import stderr_console, write_data, write_error, write_note
from workings.errors import ConfigError


def test_data_goes_to_stdout_and_ends_in_one_newline(capsys: pytest.CaptureFixture[str]) -> None:
    write_data("a")
    write_data("b\n")
    assert capsys.readouterr() == ("a\nb\n", "")


def test_an_error_then_a_blank_line_then_the_hint(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKINGS_TRACEBACK", raising=False)
    write_error(ConfigError("x is wrong", hint="do y"))
    write_error("plain")
    write_note("that")
    assert capsys.readouterr() == (
        "",
        "error: x is wrong\n\nhint: do y\nerror: plain\nnote: that\n",
    )


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("0", False), ("", False)])
def test_the_traceback_is_shown_on_request(
    value: str,
    shown: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORKINGS_TRACEBACK", value)
    try:
        raise ConfigError("x is wrong")
    except ConfigError as error:
        write_error(error)
    written = capsys.readouterr().err
    assert ("Traceback (most recent call last)" in written) is shown
    assert written.endswith("error: x is wrong\n")


def test_the_console_writes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    stderr_console().print("hello [bold]there[/bold]")
    assert capsys.readouterr() == ("", "hello there\n")
