"""Settings of single engines are refused with the others."""

from __future__ import annotations

import pytest

from workings.config.sections import EngineConfig
from workings.errors import ConfigError


@pytest.mark.parametrize("name", ["auto", "vllm"])
def test_vllm_reads_its_own_settings(name: str) -> None:
    config = EngineConfig(name=name, max_model_len=4096, enforce_eager=True)
    assert (config.max_model_len, config.enforce_eager) == (4096, True)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("max_model_len", 64), ("enforce_eager", True), ("lora_by_adapter", True)],
)
def test_other_engines_refuse_them(setting: str, value: object) -> None:
    with pytest.raises(
        ConfigError, match=rf"engine.{setting}={value} has no effect with"
    ) as caught:
        EngineConfig(name="transformers", **{setting: value})
    assert "vllm" in str(caught.value.hint)


def test_an_adapter_for_vllm_is_asked_for_by_name() -> None:
    assert EngineConfig(name="vllm", lora_by_adapter=True).lora_by_adapter
    with pytest.raises(ConfigError, match=r"engine.lora_by_adapter=True has no effect"):
        EngineConfig(name="auto", lora_by_adapter=True)
