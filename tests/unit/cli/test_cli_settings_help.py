"""The settings under a command's help."""

from __future__ import annotations

import pytest

from workings.cli.settings_help import describe_settings
from workings.config.fields import settings_of


@pytest.mark.parametrize("kind", ["sft", "grpo", "eval", "sample"])
def test_every_setting_is_listed_once(kind: str) -> None:
    lines = describe_settings(kind).splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    for path, setting in settings_of(kind).items():
        is_leaf = setting.section is None or setting.is_list
        shown = (is_leaf or setting.nullable) and "*" not in path and path != "kind"
        assert listed.count(path) == int(shown), path


def test_a_setting_shows_its_type_its_default_and_its_meaning() -> None:
    text = describe_settings("sft")
    lines = [line.strip() for line in text.splitlines()]
    at = next(i for i, line in enumerate(lines) if line.startswith("batch_size "))
    assert lines[at].split(None, 1)[1] == "a whole number, at least 1; default 32"
    assert lines[at + 1] == "Rows in one optimizer step."
    assert any(line.split(None, 1)[1:] == ["text"] for line in lines if line.startswith("name "))
    assert any(
        line.split(None, 1)[1:] == ["null, or a section; default null"]
        for line in lines
        if line.startswith("model.lora ")
    )


def test_shipped_configurations_are_listed() -> None:
    assert describe_settings("grpo").splitlines()[0] == (
        "Configurations: cs336_grpo, dapo, dr_grpo, exgrpo, grpo, gspo, luffy, luffy_on_policy, "
        "luffy_rl_sft, quickstart"
    )


def test_a_pipeline_points_to_its_phases() -> None:
    text = describe_settings("pipeline")
    assert "sft.* and grpo.*: see workings sft --help and workings grpo --help" in text
    assert "skip_sft" in text
    assert "sft.batch_size" not in text
