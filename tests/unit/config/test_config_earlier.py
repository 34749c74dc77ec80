"""Files of earlier programs, rewritten in our terms."""

from __future__ import annotations

import pytest

from workings.config.earlier import rename
from workings.config.trees import Tree
from workings.errors import ConfigError


def test_values_move_and_the_sections_they_leave_empty_go() -> None:
    tree: Tree = {
        "model": {"model_name_or_path": "a/b", "lora_r": 16},
        "grpo_training": {"learning_rate": 5e-6, "num_generations": 2},
        "seed": 1,
    }
    notes = rename(tree, "grpo", "old.yaml")
    assert tree == {
        "model": {"name_or_path": "a/b", "lora": {"rank": 16}},
        "optimizer": {"learning_rate": 5e-6},
        "num_generations": 2,
        "seed": 1,
    }
    assert notes == [
        "old.yaml: model.model_name_or_path is read as model.name_or_path=a/b",
        "old.yaml: model.lora_r is read as model.lora.rank=16",
        "old.yaml: grpo_training.learning_rate is read as optimizer.learning_rate=5e-06",
        "old.yaml: grpo_training.num_generations is read as num_generations=2",
    ]


def test_a_file_in_our_terms_is_left_alone() -> None:
    tree: Tree = {
        "data": {"train": {"path": "x", "options": {"a": {"b": 1}}}, "validation": "gsm8k"},
        "model": {"lora": None},
        "reward": {"weights": {"answer": 1.0}},
    }
    before = repr(tree)
    assert rename(tree, "grpo", "mine.yaml") == []
    assert repr(tree) == before


def test_entries_of_a_list_of_sections_are_known() -> None:
    tree: Tree = {"datasets": [{"path": "x", "limit": 3}], "template": "think"}
    assert rename(tree, "eval", "mine.yaml") == []


def test_an_unknown_key_stays_for_validation_to_report() -> None:
    tree: Tree = {"nope": {"deep": 1}, "model": {"colour": "red"}}
    assert rename(tree, "grpo", "mine.yaml") == []
    assert tree == {"nope": {"deep": 1}, "model": {"colour": "red"}}


def test_a_value_that_asks_for_nothing_goes() -> None:
    tree: Tree = {"load_in_4bit": False, "report_to": "none", "eval_strategy": "steps"}
    assert rename(tree, "grpo", "old.yaml") == []
    assert tree == {}


def test_older_values_wait_for_the_settings_around_them() -> None:
    tree: Tree = {"gradient_accumulation_steps": 4}
    assert rename(tree, "sft", "old.yaml") == []
    assert tree == {"__older__": {"accumulation": 4}}
    pipeline: Tree = {"grpo_training": {"gradient_accumulation_steps": 4}}
    rename(pipeline, "pipeline", "old.yaml")
    assert pipeline == {"grpo": {"__older__": {"accumulation": 4}}}


def test_a_pipelines_shared_value_goes_to_both_phases() -> None:
    tree: Tree = {"model": {"model_name_or_path": "a/b"}}
    rename(tree, "pipeline", "old.yaml")
    assert tree == {
        "sft": {"model": {"name_or_path": "a/b"}},
        "grpo": {"model": {"name_or_path": "a/b"}},
    }


def test_names_that_disagree() -> None:
    with pytest.raises(ConfigError) as caught:
        rename({"lr": 1e-5, "learning_rate": 2e-5}, "sft", "old.yaml")
    assert str(caught.value) == (
        "old.yaml: lr=1e-05 and learning_rate=2e-05 both set optimizer.learning_rate\n\n"
        "hint: keep one of them"
    )
    agreeing: Tree = {"lr": 1e-5, "learning_rate": 1e-5}
    rename(agreeing, "sft", "old.yaml")
    assert agreeing == {"optimizer": {"learning_rate": 1e-5}}


def test_a_refused_name_is_refused_in_a_file_too() -> None:
    with pytest.raises(ConfigError, match="use_unsloth=true has no counterpart"):
        rename({"use_unsloth": True}, "grpo", "old.yaml")
