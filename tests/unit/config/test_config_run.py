"""Rules that tie two settings together, and the numbers derived from several."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from workings.config.evaluation import EvalConfig
from workings.config.grpo import GRPOConfig
from workings.config.pipeline import PipelineConfig
from workings.config.sections import (
    DataConfig,
    EvaluationConfig,
    GreedySamplingConfig,
    OptimizerConfig,
)
from workings.config.sft import SFTConfig
from workings.errors import ConfigError

MODEL = {"name_or_path": "m"}
DATA: dict[str, Any] = {"train": {"path": "p"}}


def _grpo(**values: Any) -> GRPOConfig:
    return GRPOConfig.model_validate({"name": "g", "model": MODEL, "data": DATA, **values})


def _sft(**values: Any) -> SFTConfig:
    return SFTConfig.model_validate({"name": "s", "model": MODEL, "data": DATA, **values})


def _error(make: Any, **values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make(**values)
    return str(caught.value)


@pytest.mark.parametrize(
    ("prompts", "samples", "train_batch", "epochs", "rows", "updates"),
    [
        (32, 8, 256, 1, 256, 1),
        (32, 8, None, 1, 256, 1),
        (32, 8, 128, 1, 128, 2),
        (32, 8, 128, 4, 128, 8),
        (32, 8, 256, 2, 256, 2),
    ],
)
def test_derived_counts_of_the_course(
    prompts: int, samples: int, train_batch: int | None, epochs: int, rows: int, updates: int
) -> None:
    run = _grpo(
        prompts_per_step=prompts,
        num_generations=samples,
        train_batch_size=train_batch,
        epochs_per_rollout=epochs,
    )
    assert run.rollout_batch_size == 256
    assert (run.rows_per_update, run.updates_per_rollout) == (rows, updates)


def test_a_group_of_one_needs_an_objective_without_groups() -> None:
    assert _error(_grpo, num_generations=1) == (
        "num_generations=1 but the advantage 'group' compares the samples of one prompt and is "
        "undefined for one\n\n"
        "hint: set num_generations to 2 or more, or objective.preset=no_baseline"
    )
    assert _grpo(num_generations=1, objective={"preset": "no_baseline"}).num_generations == 1


def test_updates_are_whole_groups() -> None:
    assert _error(_grpo, train_batch_size=100) == (
        "train_batch_size=100 must divide prompts_per_step * num_generations = 32 * 8 = 256"
    )
    assert _error(_grpo, train_batch_size=512) == (
        "train_batch_size=512 must divide prompts_per_step * num_generations = 32 * 8 = 256"
    )
    assert _error(_grpo, train_batch_size=4) == (
        "train_batch_size=4 must be a multiple of num_generations=8, so that no group is split "
        "over two updates"
    )


def test_greedy_sampling_teaches_nothing() -> None:
    assert _error(_grpo, sampling={"temperature": 0}) == (
        "sampling.temperature=0 makes every sample of a group the same, so there is nothing to "
        "learn from\n\nhint: 1.0 is usual"
    )


def test_truncated_sampling_needs_a_correction() -> None:
    assert _error(_grpo, sampling={"min_p": 0.1}) == (
        "sampling.top_p=1, top_k=-1, min_p=0.1 cut the distribution that is sampled from, but the "
        "loss is computed on the whole one\n\n"
        "hint: set objective.correction=tis_token, which weighs each token by what was cut, or "
        "top_p=1 top_k=-1 min_p=0"
    )
    run = _grpo(sampling={"min_p": 0.1}, objective={"correction": "tis_token"})
    assert run.sampling.min_p == 0.1


def test_settings_of_sft_that_grpo_would_not_read() -> None:
    assert _error(_grpo, data={**DATA, "max_response_length": 512}) == (
        "data.max_response_length=512 limits what SFT trains on and has no effect here\n\n"
        "hint: sampling.max_tokens limits what is sampled"
    )
    assert _error(_grpo, evaluation={"stop_metric": "eval/reward", "stop_at": 1}) == (
        "evaluation.stop_metric ends SFT early and has no effect here"
    )


def test_one_rule_for_lengths_warmup_and_stopping() -> None:
    assert _error(
        DataConfig, train={"path": "p"}, max_prompt_length=5, prompt_length_percentile=90
    ) == (
        "data.max_prompt_length=5 and data.prompt_length_percentile=90 are both set; keep one of "
        "them"
    )
    assert _error(OptimizerConfig, warmup_steps=5, warmup_ratio=0.1) == (
        "optimizer.warmup_steps=5 and optimizer.warmup_ratio=0.1 are both set; keep one of them"
    )
    assert _error(EvaluationConfig, stop_metric="reward") == (
        "evaluation.stop_metric and evaluation.stop_at go together; set both"
    )


def test_a_pipeline_has_something_to_do_and_two_folders() -> None:
    sft, grpo = _sft(), _grpo()
    assert _error(PipelineConfig, sft=sft, grpo=grpo, skip_sft=True, skip_grpo=True) == (
        "skip_sft and skip_grpo are both set, so there is nothing to do"
    )
    same = grpo.model_copy(update={"name": "s"})
    assert _error(PipelineConfig, sft=sft, grpo=same) == (
        "sft and grpo would both write to runs/s\n\n"
        "hint: give one of them another name, e.g. grpo.name=grpo"
    )
    assert PipelineConfig(sft=sft, grpo=grpo, skip_sft=True).skip_sft
    assert _error(PipelineConfig, sft=sft, grpo=grpo, control=True) == (
        "control compares GRPO with SFT of the same length, so it needs both phases and test"
    )


def test_evaluation_is_greedy_unless_a_temperature_is_given() -> None:
    assert GreedySamplingConfig(max_tokens=5).temperature == 0
    assert EvaluationConfig().sampling.temperature == 0
    parsed = EvaluationConfig.model_validate({"sampling": {"max_tokens": 5}})
    assert parsed.sampling.temperature == 0
    with pytest.raises(ValidationError):
        GreedySamplingConfig(temperature=-1)
    run = EvalConfig.model_validate(
        {"name": "e", "model": MODEL, "datasets": [{"path": "p"}], "sampling": {"top_k": 3}}
    )
    assert (run.sampling.temperature, run.sampling.top_k) == (0, 3)


def test_a_run_is_frozen_and_closed() -> None:
    run = _sft()
    with pytest.raises(ValidationError, match="frozen"):
        run.batch_size = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="extra_forbidden"):
        _sft(colour="red")
