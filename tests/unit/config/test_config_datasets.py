"""Data sets by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from workings.config.compose import compose
from workings.config.datasets import (
    BENCHMARK_NAMES,
    SUITES,
    benchmark_names,
    expand_datasets,
    named_dataset,
)
from workings.config.sections import DatasetConfig
from workings.config.sources import choices_of, shipped_folder
from workings.config.trees import Tree
from workings.errors import ConfigError

SHIPPED = [shipped_folder()]


def test_there_are_nine_benchmarks_or_more_and_each_is_a_data_set() -> None:
    names = choices_of("benchmark", SHIPPED)
    assert len(names) >= 9
    for name in names:
        assert DatasetConfig.model_validate(named_dataset(name, SHIPPED)).name == name


@pytest.mark.parametrize(("earlier", "ours"), BENCHMARK_NAMES.items())
def test_earlier_names_of_benchmarks(earlier: str, ours: str) -> None:
    assert named_dataset(earlier, SHIPPED) == named_dataset(ours, SHIPPED)


def test_names_and_paths_in_an_evaluation() -> None:
    run = compose([], ["datasets=[competition_math,gsm8k,data/own.jsonl,a/b]"], kind="eval")
    assert [data.path for data in run.datasets] == [
        "DigitalLearningGmbH/MATH-lighteval",
        "openai/gsm8k",
        "data/own.jsonl",
        "a/b",
    ]
    assert run.datasets[1].split == "test"
    assert compose([], ["datasets=aime24"], kind="eval").datasets[0].name == "aime24"


def test_a_benchmark_may_be_the_validation_set_and_never_the_training_set() -> None:
    values: Tree = {"data": {"train": "gsm8k", "validation": "gsm8k"}}
    expand_datasets(values, "grpo", SHIPPED)
    assert values["data"]["train"] == {"path": "gsm8k"}
    assert values["data"]["validation"]["path"] == "openai/gsm8k"
    run = compose(["quickstart"], ["grpo.data.validation=math500"], kind="pipeline")
    assert run.grpo.data.validation is not None
    assert run.grpo.data.validation.path == "HuggingFaceH4/MATH-500"


def test_a_benchmark_may_be_what_a_pipeline_is_tested_on() -> None:
    run = compose(["quickstart"], ["test=aime24"], kind="pipeline")
    assert run.test is not None
    assert run.test.name == "aime24"


def test_a_users_benchmark_comes_first(tmp_path: Path) -> None:
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "gsm8k.yaml").write_text("path: own.jsonl\n")
    assert named_dataset("gsm8k", [tmp_path, *SHIPPED]) == {"path": "own.jsonl"}


def test_an_unknown_name_is_refused_unless_a_folder_of_data_sets_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WORKINGS_DATA_DIR", raising=False)
    with pytest.raises(ConfigError) as caught:
        named_dataset("gsm9k", SHIPPED)
    assert caught.value.message.startswith(
        "unknown benchmark 'gsm9k'; did you mean 'gsm8k'? Known: aime, aime22, "
    )
    assert caught.value.hint == "a file, a folder or a hub id (owner/name) may stand here as well"
    monkeypatch.setenv("WORKINGS_DATA_DIR", "somewhere")
    assert named_dataset("gsm9k", SHIPPED) == {"path": "gsm9k"}


def test_what_is_no_text_is_left_to_the_models() -> None:
    values: Tree = {"datasets": [{"path": "x"}, 3]}
    expand_datasets(values, "eval", SHIPPED)
    assert values == {"datasets": [{"path": "x"}, 3]}
    empty: Tree = {}
    expand_datasets(empty, "pipeline", SHIPPED)
    expand_datasets(empty, "grpo", SHIPPED)
    assert empty == {}


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_is_several_data_sets(name: str) -> None:
    run = compose([], [f"datasets=[{name},gsm8k]"], kind="eval")
    assert [data.name for data in run.datasets] == [*SUITES[name], "gsm8k"]
    assert set(SUITES[name]) <= set(benchmark_names(SHIPPED))
    with pytest.raises(ConfigError, match=f"{name} is {len(SUITES[name])} data sets, and one is"):
        named_dataset(name, SHIPPED)


def test_earlier_names_hide_no_benchmark() -> None:
    assert not BENCHMARK_NAMES.keys() & {*benchmark_names(SHIPPED), *SUITES}


def test_a_subject_of_mmlu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKINGS_DATA_DIR", raising=False)
    virology = DatasetConfig.model_validate(named_dataset("mmlu_virology", SHIPPED))
    assert (virology.name, virology.problems) == ("mmlu_virology", 166)
    assert virology.where == {"subject": "virology"}
    assert [copy.path for copy in virology.local] == ["mmlu"]
    physics = DatasetConfig.model_validate(named_dataset("mmlu_college_physics", SHIPPED))
    assert [copy.path for copy in physics.local] == ["mmlu", "mmlu_stem"]
    with pytest.raises(ConfigError, match="unknown benchmark 'mmlu_alchemy'"):
        named_dataset("mmlu_alchemy", SHIPPED)


def test_the_limit_of_an_evaluation_is_that_of_each_data_set() -> None:
    run = compose([], ["datasets=[gsm8k,math_1024]", "limit=5"], kind="eval")
    assert [data.limit for data in run.datasets] == [5, 5]
    run = compose([], ["datasets=[gsm8k,math_1024]", "limit=2000"], kind="eval")
    assert [data.limit for data in run.datasets] == [2000, 1024]
    assert run.datasets[1].limit_order == "first"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"counted": "best@3"}, "counted=best@3; expected one of pass@1, avg@N"),
        ({"counted": "avg@N"}, "counted=avg@N; expected one of"),
        ({"counted": "win rate"}, "win rate and share judged safe go with answers=none"),
        ({"answers": "none"}, "counted=None and answers=none"),
        ({"wording": "Answer!"}, "expected a text with {question}"),
    ],
)
def test_rules_that_contradict(values: Tree, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        DatasetConfig.model_validate({"path": "x", **values})


def test_samples_by_the_counting_rule() -> None:
    for rule, samples in (("avg@32", 32), ("avg@8", 8), ("pass@1", 1), (None, 1)):
        assert DatasetConfig(path="x", counted=rule).num_samples == samples


def test_what_a_judge_decides_about_is_no_validation_set() -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["grpo"], ["data.validation=simple_safety_tests"], kind="grpo")
    assert caught.value.message == (
        "data.validation is simple_safety_tests, which has no gold answers"
    )
    with pytest.raises(ConfigError, match="test is alpaca_eval, which has no gold answers"):
        compose(["quickstart"], ["test=alpaca_eval"], kind="pipeline")
