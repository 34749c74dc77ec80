"""The list of settings: paths, types in words, what stands below open mappings and lists."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from workings.config.fields import describe_type, find_setting, settings_of
from workings.config.kinds import RUN_TYPES
from workings.config.sections import LoraConfig, SamplingConfig


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("name", "text"),
        ("seed", "a whole number, at least 0"),
        ("max_steps", "a whole number, at least 0"),
        ("model.adapter", "text, or null"),
        ("model.dtype", "one of auto, float32, bfloat16"),
        ("sampling.top_p", "a number, above 0, at most 1"),
        ("optimizer.warmup_ratio", "a number, at least 0, below 1"),
        ("optimizer.betas", "a list of 2 numbers"),
        ("model.lora.targets", "a list of texts, with at least 1 entry"),
        ("model.trust_remote_code", "true or false"),
        ("data.train.columns", "a mapping"),
        ("data.train.limit", "a whole number, at least 1, or null"),
    ],
)
def test_a_type_in_words(path: str, expected: str) -> None:
    assert settings_of("grpo")[path].expected == expected


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Literal["one"], "one"),
        (list[int], "a list of whole numbers"),
        (str | int | list[str], "text, a whole number or a list of texts"),
        (LoraConfig, "a section with rank, alpha, dropout, targets"),
        (tuple[SamplingConfig, ...], "a list of sections"),
        (dict[str, int], "a mapping"),
        (complex, "<class 'complex'>"),
    ],
)
def test_other_types_in_words(annotation: Any, words: str) -> None:
    assert describe_type(annotation) == words


@pytest.mark.parametrize("kind", list(RUN_TYPES))
def test_paths_are_unique_and_dotted_from_the_run(kind: str) -> None:
    settings = settings_of(kind)
    assert list(settings) == [setting.path for setting in settings.values()]
    assert settings["kind"].default == kind


def test_defaults_nullability_and_sections() -> None:
    settings = settings_of("sft")
    assert settings["name"].required
    assert settings["batch_size"].default == 32
    assert settings["model.lora"].nullable
    assert settings["model.lora"].section is LoraConfig
    assert settings["model.lora.rank"].default == 32
    assert settings["data.train.options"].default == {}
    assert settings["optimizer"].section is not None
    assert settings["batch_size"].description == "Rows in one optimizer step."


def test_what_kind_of_value_a_setting_takes() -> None:
    settings = settings_of("grpo")
    assert settings["name"].is_text
    assert settings["model.dtype"].is_text
    assert not settings["seed"].is_text
    assert settings["tracking.wandb"].is_flag
    assert settings["sampling.stop"].is_list
    assert settings["data.train.options"].open


def test_a_key_below_an_open_mapping_is_the_mappings() -> None:
    found = find_setting("data.train.columns.question", "grpo")
    assert found is settings_of("grpo")["data.train.columns"]
    assert find_setting("data.train.path.x", "grpo") is None
    assert find_setting("nope", "grpo") is None
    assert find_setting("", "grpo") is None


def test_entries_of_a_list_of_sections_are_listed_with_a_star() -> None:
    settings = settings_of("eval")
    assert settings["datasets.*.limit"].expected == "a whole number, at least 1, or null"
    assert settings["datasets"].is_list


def test_a_pipeline_has_the_settings_of_its_phases() -> None:
    pipeline = settings_of("pipeline")
    for kind in ("sft", "grpo"):
        assert {f"{kind}.{path}" for path in settings_of(kind)} <= set(pipeline)
