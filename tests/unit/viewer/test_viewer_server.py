"""What is started: bound to loopback, without telemetry, on a port that is free."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from workings.errors import ConfigError, NotFound
from workings.viewer import server


def test_the_command_binds_to_loopback_and_sends_nothing() -> None:
    command = server.server_command(Path("/runs"), port=8600)
    assert "--server.address=127.0.0.1" in command
    assert "--browser.gatherUsageStats=false" in command
    assert "--server.port=8600" in command
    assert "--server.headless=true" in command
    assert command[-2:] == ["--", "/runs"]
    assert Path(command[4]).is_file()
    assert "--server.headless=false" in server.server_command(
        Path("/runs"), port=8600, open_browser=True
    )


def test_streamlit_knows_every_option() -> None:
    config = pytest.importorskip("streamlit.config")
    known = set(config.get_config_options())
    assert {*server.OPTIONS, "server.allowedHosts"} <= known


def test_ports() -> None:
    with socket.socket() as taken:
        taken.bind((server.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is in use"):
            server.free_port(port)
    assert server.free_port(port) == port
    assert server.free_port(None) > 1024


def test_a_missing_folder_and_a_missing_streamlit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound):
        server.check_folder(tmp_path / "none")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs streamlit") as raised:
        server.check_installed()
    assert raised.value.hint == "pip install -e '.[view]'"
