from __future__ import annotations

import pytest

from workings.config.grpo import GRPOConfig
from workings.config.pipeline import PipelineConfig
from workings.config.sft import SFTConfig
from workings.errors import ConfigError


@pytest.mark.parametrize(
    ("run_type", "name"),
    [(SFTConfig, "cs336_sft"), (GRPOConfig, "cs336_grpo"), (PipelineConfig, "tags_pipeline")],
)
def test_a_run_goes_to_a_file_and_comes_back(run_type, name, tmp_path):
    run = run_type.from_yaml(name)
    assert type(run) is run_type
    file = run.to_yaml(tmp_path / "deep" / "run.yaml")
    assert run_type.from_yaml(file) == run


def test_overrides_are_read_and_unknown_keys_refused(tmp_path):
    assert PipelineConfig.from_yaml("pipeline", ["grpo.max_steps=0"]).grpo.max_steps == 0
    with pytest.raises(ConfigError, match="max_stepz"):
        PipelineConfig.from_yaml("pipeline", ["grpo.max_stepz=1"])
    file = tmp_path / "run.yaml"
    file.write_text("defaults: [pipeline, _self_]\nskip_sfd: true\n")
    with pytest.raises(ConfigError, match="skip_sfd"):
        PipelineConfig.from_yaml(file)


def test_a_file_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="of kind 'sft', not 'grpo'"):
        GRPOConfig.from_yaml("cs336_sft")
