"""What may be sampled ahead, and the correction that stale samples get."""

from __future__ import annotations

from typing import Any

import pytest

from workings.config.compose import compose
from workings.config.dump import dump_yaml
from workings.config.grpo import GRPOConfig
from workings.config.objective import PRESETS
from workings.config.objective_settings import ObjectiveConfig
from workings.config.sections import EngineConfig
from workings.errors import ConfigError

REQUIRED: dict[str, Any] = {
    "name": "x",
    "model": {"name_or_path": "m"},
    "data": {"train": {"path": "p"}},
    "engine": {"own_process": True},
}


def run(**settings: Any) -> GRPOConfig:
    return GRPOConfig.model_validate({**REQUIRED, "schedule": "one_step_off", **settings})


def refused(**settings: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        run(**settings)
    return caught.value


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "exgrpo"])
def test_every_preset_is_corrected(preset: str) -> None:
    config = run(objective={"preset": preset})
    assert config.objective.resolve().correction != "none"
    assert config.max_staleness == 1


def test_the_default_correction_is_truncated_importance() -> None:
    objective = run().objective.resolve()
    assert (objective.correction, objective.correction_cap) == ("tis_token", 2.0)
    for given in (ObjectiveConfig(preset="dapo"), {"preset": "dapo", "correction": None}):
        assert run(objective=given).objective.resolve().correction == "tis_token"
    assert run(objective={"correction_cap": 5.0}).objective.resolve().correction_cap == 5.0
    assert GRPOConfig.model_validate(REQUIRED).objective.resolve().correction == "none"
    assert GRPOConfig.model_validate(REQUIRED).max_staleness == 0


@pytest.mark.parametrize("given", [{"correction": "icepop"}, ObjectiveConfig(correction="icepop")])
def test_another_correction_stays(given: Any) -> None:
    assert run(objective=given).objective.resolve().correction == "icepop"


def test_it_is_in_the_resolved_configuration_and_comes_back(tmp_path: Any) -> None:
    settings = ["schedule=one_step_off", "engine.own_process=true", "name=a"]
    config = compose(["grpo"], settings, kind="grpo")
    text = dump_yaml(config)
    assert "correction: tis_token" in text
    file = tmp_path / "run.yaml"
    file.write_text(text)
    assert compose([str(file)], [], kind="grpo") == config


def test_no_correction_is_refused() -> None:
    error = refused(objective={"correction": "none"})
    assert "samples come from the weights of the step before" in error.message
    assert error.hint is not None
    assert "takes tis_token" in error.hint


def test_replay_is_refused() -> None:
    assert (
        "objective.replay chooses by these grades"
        in refused(objective={"preset": "exgrpo"}).message
    )


def test_an_engine_in_the_trainers_process_is_refused() -> None:
    error = refused(engine={"name": "transformers"})
    assert "nothing would be sampled during training" in error.message
    assert error.hint is not None
    assert "engine.own_process=true" in error.hint


def test_mistakes_elsewhere_keep_their_own_message() -> None:
    assert "unknown objective preset 'grop'" in refused(objective={"preset": "grop"}).message
    with pytest.raises((ConfigError, ValueError), match="objective"):
        run(objective=3)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"own_process": True}, "sampled by a process of its own while step k trains"),
        ({"own_process": True, "device": "cuda:1"}, "a process of its own on cuda:1 while"),
    ],
)
def test_what_happens_is_said(engine: dict[str, Any], words: str) -> None:
    line = run(engine=engine, objective={"correction": "icepop"}).describe_schedule()
    assert words in line
    assert "objective.correction=icepop weighs what is stale" in line
    usual = GRPOConfig.model_validate(REQUIRED)
    assert "with the weights that it trains" in usual.describe_schedule()


def test_settings_of_an_own_process() -> None:
    with pytest.raises(ConfigError, match=r"engine.device=cuda:1 has no effect"):
        EngineConfig(device="cuda:1")
    with pytest.raises(ConfigError, match="reads the adapter in the trainer's process"):
        EngineConfig(name="vllm", own_process=True, lora_by_adapter=True)
    assert EngineConfig(own_process=True, device="cuda:1").device == "cuda:1"
