"""What a key leads to: full paths first, then earlier names, then the one path that ends so."""

from __future__ import annotations

import pytest

from workings.config.fields import settings_of
from workings.config.keys import find_key, resolve_key, unknown_key
from workings.config.kinds import RUN_TYPES
from workings.errors import ConfigError


def _paths(key: str, kind: str) -> list[str]:
    return [f"{place.prefix}{place.path}" for place in resolve_key(key, kind)]


@pytest.mark.parametrize("kind", list(RUN_TYPES))
def test_every_full_path_means_itself_with_underscores_and_with_dashes(kind: str) -> None:
    for path in settings_of(kind):
        if "*" not in path and (kind, path) != ("grpo", "data.max_response_length"):
            assert _paths(path, kind) == [path]
            assert _paths(path.replace("_", "-"), kind) == [path]


def test_a_path_without_effect_here_is_read_as_an_earlier_programs() -> None:
    """GRPO samples and has no use for SFT's limit; verl calls the sampling limit by that path."""
    assert _paths("data.max_response_length", "grpo") == ["sampling.max_tokens"]


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("learning_rate", "optimizer.learning_rate"),
        ("learning-rate", "optimizer.learning_rate"),
        ("lora.rank", "model.lora.rank"),
        ("train.path", "data.train.path"),
        ("name_or_path", "model.name_or_path"),
        ("model.rank", "model.lora.rank"),
        ("data.train.columns.my-column", "data.train.columns.my-column"),
    ],
)
def test_a_field_may_stand_without_its_section_where_one_setting_ends_so(
    key: str, path: str
) -> None:
    assert _paths(key, "grpo") == [path]


def test_a_name_that_several_settings_end_in_is_refused_with_all_of_them() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_key("limit", "grpo")
    assert str(caught.value) == (
        "'limit' could be any of data.train.limit, data.validation.limit, "
        "off_policy.traces.limit, evaluation.limit\n\n"
        "hint: write the one you mean in full"
    )


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("max_stepz", "max_steps"),
        ("optimizer.lr_rate", "optimizer.learning_rate"),
        ("model.lora.r", "model.lora.rank"),
        ("sampling.temprature", "sampling.temperature"),
        ("optimiser.weight_decay", "optimizer.weight_decay"),
    ],
)
def test_an_unknown_key_names_the_nearest_full_path(key: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_key(key, "grpo")
    assert str(caught.value) == (
        f"unknown key {key!r}; did you mean {near!r}?\n\n"
        "hint: `workings grpo --help` lists every setting"
    )


def test_an_unknown_key_without_a_near_one() -> None:
    assert unknown_key("zzz", "sft") == "unknown key 'zzz'"
    assert find_key("zzz", "sft") == ()


def test_an_earlier_name_inside_one_of_our_sections_has_to_belong_there() -> None:
    assert _paths("model.lora_r", "sft") == ["model.lora.rank"]
    assert find_key("model.lr", "sft") == ()
    assert find_key("reward.lora_r", "sft") == ()
    assert find_key("model.use_unsloth", "sft")[0].refusal is not None


def test_sections_of_earlier_programs_are_dropped() -> None:
    assert _paths("actor_rollout_ref.rollout.temperature", "grpo") == ["sampling.temperature"]
    assert _paths("trainer.max_steps", "sft") == ["max_steps"]
    assert find_key("actor.clip_ratio", "sft") == ()


# --------------------------------------------------------------------------------- pipeline


def test_a_pipeline_sets_both_phases_where_they_share_a_setting() -> None:
    assert _paths("model.name_or_path", "pipeline") == [
        "sft.model.name_or_path",
        "grpo.model.name_or_path",
    ]
    assert _paths("seed", "pipeline") == ["sft.seed", "grpo.seed"]
    assert _paths("backend", "pipeline") == ["sft.engine.name", "grpo.engine.name"]
    assert _paths("data.template", "pipeline") == ["sft.data.template", "grpo.data.template"]


def test_a_pipeline_takes_the_one_phase_that_has_a_setting() -> None:
    assert _paths("epochs", "pipeline") == ["sft.epochs"]
    assert _paths("num_train_epochs", "pipeline") == ["sft.epochs"]
    assert _paths("num_generations", "pipeline") == ["grpo.num_generations"]
    assert _paths("sft_dataset_name", "pipeline") == ["sft.data.train.path"]
    assert _paths("skip_sft", "pipeline") == ["skip_sft"]


def test_sections_of_the_earlier_pipeline_name_a_phase() -> None:
    assert _paths("grpo_training.learning_rate", "pipeline") == ["grpo.optimizer.learning_rate"]
    assert _paths("sft_training.num_train_epochs", "pipeline") == ["sft.epochs"]
    assert _paths("sft.lr", "pipeline") == ["sft.optimizer.learning_rate"]
    assert _paths("grpo_training.gradient_accumulation_steps", "pipeline") == [
        "grpo.__older__.accumulation"
    ]


def test_the_step_count_of_a_pipeline_is_that_of_grpo_and_says_so() -> None:
    (place,) = resolve_key("max_steps", "pipeline")
    assert f"{place.prefix}{place.path}" == "grpo.max_steps"
    assert place.alias is not None


def test_a_pipeline_refuses_what_each_phase_has_for_itself() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_key("learning_rate", "pipeline")
    assert caught.value.message == (
        "'learning_rate' could be any of sft.optimizer.learning_rate, grpo.optimizer.learning_rate"
    )
    with pytest.raises(ConfigError) as caught:
        resolve_key("gradient_accumulation_steps", "pipeline")
    assert caught.value.message == (
        "'gradient_accumulation_steps' could be any of sft.gradient_accumulation_steps, "
        "grpo.gradient_accumulation_steps"
    )


def test_a_flag_is_known_also_by_its_earlier_name() -> None:
    assert all(place.is_flag for place in resolve_key("skip_sft", "pipeline"))
    assert all(place.is_flag for place in resolve_key("bf16", "pipeline"))
    assert all(place.is_flag for place in resolve_key("use_std_normalization", "grpo"))
    assert not any(place.is_flag for place in resolve_key("scale_rewards", "grpo"))
    assert not any(place.is_flag for place in resolve_key("max_steps", "grpo"))
