"""Overrides in Hydra's grammar, read for where they go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workings.config.overrides import read_overrides
from workings.config.sources import shipped_folder
from workings.errors import ConfigError


def _read(*overrides: str, kind: str = "grpo") -> dict[str, Any]:
    given = read_overrides(overrides, kind, [shipped_folder()])
    return {new.path: new.value for new in given.assignments}


def _error(*overrides: str, kind: str = "grpo") -> str:
    with pytest.raises(ConfigError) as caught:
        read_overrides(overrides, kind, [shipped_folder()])
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("max_steps=0", "max_steps", 0),
        ("optimizer.learning_rate=0", "optimizer.learning_rate", 0),
        ("optimizer.learning_rate=1e-5", "optimizer.learning_rate", 1e-5),
        ("data.train.limit=null", "data.train.limit", None),
        ("name=null", "name", None),
        ("tracking.wandb=true", "tracking.wandb", True),
        ("optimizer.betas=[0.9,0.99]", "optimizer.betas", [0.9, 0.99]),
        ("data.train.options.terms=[2,3]", "data.train.options.terms", [2, 3]),
        ("data.train.options={num_problems: 5}", "data.train.options", {"num_problems": 5}),
        ("+optimizer.eps=1e-6", "optimizer.eps", 1e-6),
        ("++optimizer.eps=1e-6", "optimizer.eps", 1e-6),
        ("data.train.columns.question=q", "data.train.columns.question", "q"),
        ("model.lora={rank: 8}", "model.lora", {"rank": 8}),
        ("model={dtype: float32}", "model", {"dtype": "float32"}),
        ("seed=${num_threads}", "seed", "${num_threads}"),
    ],
)
def test_values(override: str, path: str, value: object) -> None:
    assert _read(override) == {path: value}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("007", "007"),
        ("1e5", "1e5"),
        ("2024_01", "2024_01"),
        ("true", "true"),
        ("a=b", "a=b"),
        ("Hello, (world)!", "Hello, (world)!"),
        ("'quoted, text'", "quoted, text"),
        ('"quoted"', "quoted"),
        ("with 'inner' quotes", "with 'inner' quotes"),
        ("models/Qwen2.5-Math-1.5B", "models/Qwen2.5-Math-1.5B"),
        ("~/models/x", "~/models/x"),
        ("", ""),
    ],
)
def test_text_settings_take_what_is_written(raw: str, text: str) -> None:
    assert _read(f"name={raw}") == {"name": text}


def test_a_list_of_texts_takes_one_text() -> None:
    assert _read("sampling.stop=</answer>") == {"sampling.stop": ["</answer>"]}
    assert _read('sampling.stop=["</answer>","END"]') == {"sampling.stop": ["</answer>", "END"]}
    assert _read('sampling.stop="a, b"') == {"sampling.stop": ["a, b"]}
    assert _read("sampling.stop=[]") == {"sampling.stop": []}
    assert _read("datasets=gsm8k", kind="eval") == {"datasets": ["gsm8k"]}
    assert _read("datasets=data/a.jsonl", kind="eval") == {"datasets": ["data/a.jsonl"]}


def test_groups_are_told_from_settings() -> None:
    given = read_overrides(
        ["model=smollm2", "tracker=[wandb,tensorboard]", "~data", "max_steps=3"],
        "grpo",
        [shipped_folder()],
    )
    assert given.choices == {"model": "smollm2", "tracker": ["wandb", "tensorboard"], "data": None}
    assert [new.path for new in given.assignments] == ["max_steps"]


def test_a_group_of_the_users_own_folder(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "short.yaml").write_text("max_steps: 1\n")
    given = read_overrides(["+experiment=short"], "grpo", [tmp_path, shipped_folder()])
    assert given.choices == {"experiment": "short"}


def test_a_removal_of_a_setting() -> None:
    assert read_overrides(["~model.lora"], "grpo", []).removals == ["model.lora"]
    assert read_overrides(["~seed"], "pipeline", []).removals == ["sft.seed", "grpo.seed"]


def test_the_last_of_two_equal_keys_wins() -> None:
    assert _read("max_steps=1", "max-steps=2") == {"max_steps": 2}


def test_two_names_of_one_setting_have_to_agree() -> None:
    assert _read("lr=1e-5", "learning_rate=1e-5") == {"optimizer.learning_rate": 1e-5}
    assert _error("lr=1e-5", "optimizer.learning_rate=2e-5") == (
        "lr=1e-05 and optimizer.learning_rate=2e-05 both set optimizer.learning_rate\n\n"
        "hint: give one of them"
    )
    assert _error("group_size=4", "n=8") == (
        "group_size=4 and n=8 both set num_generations\n\nhint: give one of them"
    )
    assert _error("scale_rewards=none", "use_std_normalization=true") == (
        "scale_rewards=false and use_std_normalization=true both set one thing\n\n"
        "hint: give one of them"
    )


def test_messages() -> None:
    assert _error("max_steps") == (
        "'max_steps' is not an override\n\nhint: expected max_steps=VALUE or --max_steps VALUE"
    )
    assert _error("=3") == "'=3' is not an override\n\nhint: expected key=value"
    assert _error("~max_steps=3") == (
        "~max_steps=3: a removal takes no value\n\nhint: write ~max_steps"
    )
    assert _error("max_steps=1,2") == (
        "max_steps=1,2: one run takes one value\n\nhint: a list is written max_steps=[1,2]"
    )
    assert _error("optimizer.betas=[0.9").startswith(
        "optimizer.betas=[0.9: the value cannot be read: "
    )
    assert _error("hydra.run.dir=x") == (
        "'hydra.run.dir': settings of Hydra itself have no effect here"
    )
    assert _error("engine=vllm") == (
        "unknown engine 'vllm'; Known: auto, transformers\n\n"
        "hint: anything else is set as engine.name=vllm"
    )
    assert _error("tracker=wandbb") == (
        "unknown tracker 'wandbb'; did you mean 'wandb'? Known: tensorboard, wandb, wandb_offline"
    )
