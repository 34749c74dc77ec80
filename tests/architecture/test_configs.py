"""Every shipped YAML file parses as what its place says it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from workings.config.compose import compose, compose_with_notes
from workings.config.evaluation import EvalConfig
from workings.config.kinds import RUN_TYPES
from workings.config.objective import PRESETS
from workings.config.objective_settings import ObjectiveConfig
from workings.config.pipeline import PipelineConfig
from workings.config.sample import SampleConfig
from workings.config.sections import (
    DataConfig,
    DatasetConfig,
    EngineConfig,
    ModelConfig,
    RewardConfig,
    TrackingConfig,
)
from workings.config.serve import ServeConfig
from workings.config.sources import read_yaml, shipped_folder, shipped_names
from workings.data.templates import template_names
from workings.errors import WorkingsError

CONF = shipped_folder()
GROUPS: dict[str, type[BaseModel]] = {
    "model": ModelConfig,
    "data": DataConfig,
    "objective": ObjectiveConfig,
    "reward": RewardConfig,
    "engine": EngineConfig,
    "benchmark": DatasetConfig,
    "tracker": TrackingConfig,
}
RUNS = [(kind, name) for kind in RUN_TYPES for name in shipped_names(kind)]
GROUP_FILES = [(group, path) for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]


def problem_with_choice(path: Path, model: type[BaseModel]) -> str:
    """What is wrong with a group's file as its section; empty if nothing."""
    try:
        model.model_validate(read_yaml(path))
    except (ValidationError, WorkingsError) as error:
        return f"{path.name}: {error}"
    return ""


def problem_with_run(name_or_file: str, kind: str) -> str:
    """What is wrong with a run's file as the kind it names; empty if nothing."""
    try:
        composition = compose_with_notes([name_or_file], kind=kind)
    except WorkingsError as error:
        return f"{name_or_file}: {error}"
    return "".join(composition.notes)  # a shipped file is written in our own terms


@pytest.mark.parametrize(("kind", "name"), RUNS)
def test_a_run_parses_as_the_kind_that_it_names(kind: str, name: str) -> None:
    assert problem_with_run(name, kind) == ""
    assert isinstance(compose([name], kind=kind), RUN_TYPES[kind])


@pytest.mark.parametrize(("group", "path"), GROUP_FILES)
def test_a_choice_parses_as_its_section(group: str, path: Path) -> None:
    assert problem_with_choice(path, GROUPS[group]) == ""


def test_no_file_is_left_out() -> None:
    tested = {path for _, path in GROUP_FILES}
    for kind, name in RUNS:
        tested |= {CONF / f"{name}.yaml", CONF / name / f"{kind}.yaml"}
    assert set(CONF.rglob("*.yaml")) <= tested


@pytest.mark.parametrize("kind", list(RUN_TYPES))
def test_every_kind_has_a_default_run(kind: str) -> None:
    assert kind in shipped_names(kind)


@pytest.mark.parametrize(("kind", "name"), RUNS)
def test_templates_exist(kind: str, name: str) -> None:
    run = compose([name], kind=kind)
    if isinstance(run, ServeConfig):
        return
    phases = (run.sft, run.grpo) if isinstance(run, PipelineConfig) else (run,)
    for phase in phases:
        template = (
            phase.template if isinstance(phase, EvalConfig | SampleConfig) else phase.data.template
        )
        assert template in template_names()


def test_there_is_one_objective_file_for_each_preset() -> None:
    files = {path.stem: read_yaml(path) for group, path in GROUP_FILES if group == "objective"}
    assert files == {preset: {"preset": preset} for preset in PRESETS}


# --------------------------------------------------------------- the checkers, shown to fail


def test_a_bad_choice_is_found(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name_or_path: x\ndtypes: auto\n")
    assert problem_with_choice(bad, ModelConfig).startswith("bad.yaml: ")


def test_a_bad_run_is_found(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("defaults: [quickstart/grpo, _self_]\nmax_stepz: 3\n")
    assert "unknown key 'max_stepz'; did you mean 'max_steps'?" in problem_with_run(
        str(bad), "grpo"
    )
    bad.write_text("defaults: [quickstart/grpo, _self_]\ngroup_size: 4\n")
    assert problem_with_run(str(bad), "grpo").endswith("group_size is read as num_generations=4")
