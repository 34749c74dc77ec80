"""A training run's own evaluation, as settings of an evaluation."""

from __future__ import annotations

from typing import Any

import pytest

from workings.config.evaluation import HeldOutConfig
from workings.config.evaluation_of_run import evaluation_of, validation_dataset
from workings.config.grpo import GRPOConfig
from workings.config.sections import DatasetConfig
from workings.config.sft import SFTConfig

TYPES = {"sft": SFTConfig, "grpo": GRPOConfig}


def _run(kind: str, **data: Any) -> SFTConfig | GRPOConfig:
    return TYPES[kind].model_validate(
        {
            "name": "r",
            "seed": 5,
            "model": {"name_or_path": "m", "lora": {}},
            "data": {"train": {"path": "rows", "limit": 9}, "template": "own", **data},
            "evaluation": {"limit": 3, "num_samples": 2, "sampling": {"max_tokens": 7}},
            "reward": {"name": "tags"},
            "engine": {"max_batch_size": 4},
        }
    )


def test_everything_that_a_score_depends_on_is_carried_over() -> None:
    run = _run("grpo", validation={"path": "v"}, system_prompt="s", max_prompt_length=8)
    found = evaluation_of(run, DatasetConfig(path="v"))
    for name in ("seed", "num_threads", "engine", "reward", "grader", "tracking", "output_dir"):
        assert getattr(found, name) == getattr(run, name)
    for name in ("template", "system_prompt", "max_prompt_length", "overlong", "bad_gold"):
        assert getattr(found, name) == getattr(run.data, name)
    assert (found.sampling, found.num_samples) == (run.evaluation.sampling, 2)
    assert (found.name, found.datasets) == ("r-eval", (DatasetConfig(path="v"),))
    assert found.model.lora is None
    assert found.held_out == HeldOutConfig(limit=3, reward_max_tokens=1024)


@pytest.mark.parametrize(("kind", "rows"), [("sft", "demonstrations"), ("grpo", "problems")])
def test_a_share_of_the_training_rows(kind: str, rows: str) -> None:
    run = _run(kind, validation_fraction=0.25)
    dataset = validation_dataset(run)
    assert dataset == run.data.train
    held_out = evaluation_of(run, dataset).held_out
    assert held_out is not None
    assert (held_out.fraction, held_out.rows) == (0.25, rows)
    assert held_out.reward_max_tokens == (1024 if kind == "grpo" else None)


def test_another_data_set_is_taken_whole() -> None:
    run = _run("grpo", validation_fraction=0.25)
    assert evaluation_of(run, DatasetConfig(path="other")).held_out is None


def test_a_run_without_validation_rows() -> None:
    assert validation_dataset(_run("sft")) is None
