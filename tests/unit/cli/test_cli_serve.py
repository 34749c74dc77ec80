"""What `workings serve` refuses before anything heavy loads."""

from __future__ import annotations

import pytest

from workings.cli.commands.serve import check_token
from workings.cli.main import main
from workings.config.compose import compose
from workings.config.sections import EngineConfig
from workings.config.serve import ServeConfig
from workings.errors import ConfigError


def test_the_default_is_this_host_alone() -> None:
    run = compose([], [], kind="serve")
    assert isinstance(run, ServeConfig)
    assert (run.host, run.allow_remote, run.engine.name) == ("127.0.0.1", False, "auto")


def test_dry_run_prints_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "engine.name=vllm", "--port", "0", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "kind: serve" in printed
    assert "port: 0" in printed


def test_another_address_has_to_be_meant() -> None:
    with pytest.raises(ConfigError, match=r"host=0\.0\.0\.0 lets other hosts in"):
        compose([], ["host=0.0.0.0"], kind="serve")
    assert compose([], ["host=0.0.0.0", "allow_remote=true"], kind="serve").host == "0.0.0.0"


@pytest.mark.parametrize(
    "settings",
    [["engine.name=server", "engine.server_url=http://h:1"], ["engine.own_process=true"]],
)
def test_a_server_has_an_engine_of_its_own(settings: list[str]) -> None:
    with pytest.raises(ConfigError, match="which has to have an engine of its own"):
        compose([], settings, kind="serve")


def test_a_token_is_needed_for_others_and_has_to_be_one() -> None:
    check_token(None, needed=False)
    check_token("0123456789abcdef", needed=True)
    with pytest.raises(ConfigError, match="WORKINGS_SERVER_TOKEN is not set") as caught:
        check_token(None, needed=True)
    assert "openssl rand" in str(caught.value.hint)
    for needed in (True, False):
        with pytest.raises(ConfigError, match="has 5 characters; expected 16 or more"):
            check_token("short", needed=needed)


def test_serving_to_others_without_a_token_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKINGS_SERVER_TOKEN", raising=False)
    assert main(["serve", "host=0.0.0.0", "allow_remote=true"]) == 2
    assert "WORKINGS_SERVER_TOKEN is not set" in capsys.readouterr().err


def test_a_trainer_names_its_server_and_leaves_the_servers_settings_alone() -> None:
    with pytest.raises(ConfigError, match=r"engine\.name=server needs engine\.server_url"):
        EngineConfig(name="server")
    url = "http://127.0.0.1:8650"
    for name, value in (("max_batch_size", 4), ("dtype", "bfloat16"), ("own_process", True)):
        with pytest.raises(ConfigError, match=rf"engine\.{name}={value} has no effect") as caught:
            EngineConfig(name="server", server_url=url, **{name: value})
        assert "workings serve" in str(caught.value.hint)
    with pytest.raises(ConfigError, match=r"engine\.server_url=http://\S+ has no effect"):
        EngineConfig(name="auto", server_url=url)
