"""The real loops on the tiny model learn something, and say so when they cannot."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file
from tiny_runs import LORA, grpo_arguments, sft_arguments

from tiny import save_tiny
from workings.cli.main import main

# The adapters of the tiny model are small, so they are given larger steps.
FULL_AND_LORA = [(), (LORA, "model.lora.dropout=0", "optimizer.learning_rate=0.05")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


def metric(folder, name):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [row[name] for row in map(json.loads, lines) if name in row]


def in_phase(phase, overrides):
    """Overrides of a run as those of a pipeline's phase."""
    return [f"~{phase}.{one[1:]}" if one[0] == "~" else f"{phase}.{one}" for one in overrides]


@pytest.mark.parametrize("more", FULL_AND_LORA, ids=["full", "lora"])
@pytest.mark.parametrize("preset", ["grpo", "dr_grpo", "reinforce_with_baseline"])
def test_grpo_raises_the_reward(model, tmp_path, more, preset):
    arguments = grpo_arguments(
        model,
        tmp_path,
        f"objective.preset={preset}",
        "train_batch_size=null",
        "num_generations=8",
        "max_steps=12",
        "optimizer={learning_rate: 0.01}",
        "evaluation.every_steps=0",
        "checkpoint.every_steps=0",
        *more,
    )
    assert main(arguments) == 0
    rewards = metric(tmp_path / "grpo", "train/reward")
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1
    assert max(metric(tmp_path / "grpo", "train/logprob_difference/max")) < 1e-4
    assert metric(tmp_path / "grpo", "train/weight_version_lag") == [0.0] * 12


@pytest.mark.parametrize("more", FULL_AND_LORA, ids=["full", "lora"])
def test_sft_lowers_the_loss(model, tmp_path, more):
    assert main(sft_arguments(model, tmp_path, "evaluation.every_steps=0", *more)) == 0
    losses = metric(tmp_path / "sft", "train/loss")
    assert len(losses) == 9
    assert losses[-1] < 0.9 * losses[0]


def test_the_run_can_be_run_again_from_its_own_file(model, tmp_path):
    assert main(sft_arguments(model, tmp_path, "max_steps=3")) == 0
    stored = tmp_path / "sft" / "config.yaml"
    assert main(["sft", "-c", str(stored), "name=again"]) == 0
    weights = [
        load_file(tmp_path / name / "final" / "model.safetensors") for name in ("sft", "again")
    ]
    assert all(weights[0][key].equal(weights[1][key]) for key in weights[0])


def test_pipeline_measures_every_stage_and_takes_up_saved_adapters(model, tmp_path, capsys):
    common = [
        "pipeline",
        *in_phase("sft", sft_arguments(model, tmp_path, LORA, "max_steps=2")[3:]),
        *in_phase("grpo", grpo_arguments(model, tmp_path, LORA, "max_steps=2")[3:]),
        "test={path: arithmetic, name: held_out, split: test, "
        "options: {num_problems: 5, terms: 2, operands: [1, 99]}}",
    ]
    assert main([*common, "control=true"]) == 0
    out = capsys.readouterr().out
    for stage in ("base", "SFT", "GRPO", "SFT for as long as GRPO", "GRPO over SFT"):
        assert stage in out
    # A skipped SFT goes on from the adapter that it saved.
    assert main([*common, "skip_sft=true", "grpo.name=second"]) == 0
    first, second = (
        load_file(tmp_path / name / "final" / "adapter_model.safetensors")
        for name in ("grpo", "second")
    )
    assert all(first[key].equal(second[key]) for key in first)
    assert main([*common, "--resume", "control=true"]) == 0


def test_a7a_everything_truncated_and_masked_is_a_step_without_loss(model, tmp_path):
    arguments = grpo_arguments(
        model,
        tmp_path,
        "sampling={temperature: 1.0, max_tokens: 10, min_tokens: 10, stop: []}",
        "objective.mask_truncated=true",
        "max_steps=2",
        "evaluation.every_steps=0",
    )
    assert main(arguments) == 0
    assert metric(tmp_path / "grpo", "train/truncated_fraction") == [1.0, 1.0]
    assert metric(tmp_path / "grpo", "train/loss") == [0.0, 0.0]
    assert metric(tmp_path / "grpo", "train/skipped_steps") == [0.0, 0.0]
    start, end = (
        load_file(path / "model.safetensors") for path in (model, tmp_path / "grpo" / "final")
    )
    assert all(start[key].equal(end[key]) for key in start)


def test_a13b_equal_rewards_for_many_steps_are_explained_once(model, tmp_path):
    arguments = grpo_arguments(
        model,
        tmp_path,
        "reward.overlong_buffer=0",
        "max_steps=7",
        "evaluation.every_steps=0",
        "checkpoint.every_steps=0",
    )
    assert main(arguments) == 0
    log = (tmp_path / "grpo" / "run.log").read_text()
    assert log.count("equal rewards give no gradient") == 1
    assert "no completion has the format" in log
    assert metric(tmp_path / "grpo", "train/frac_reward_zero_std") == [1.0] * 7


def test_dropout_in_grpo_is_said_and_measured(model, tmp_path):
    more = ("train_batch_size=null", "optimizer={learning_rate: 0.05}", "evaluation.every_steps=0")
    arguments = grpo_arguments(model, tmp_path, LORA, "max_steps=3", *more)
    assert main(arguments) == 0
    assert "set model.lora.dropout=0" in (tmp_path / "grpo" / "run.log").read_text()
    assert max(metric(tmp_path / "grpo", "train/logprob_difference/max")) > 1e-4


def test_an_unknown_stop_metric_names_those_that_exist(model, tmp_path, capsys):
    more = ("evaluation.stop_metric=acuracy", "evaluation.stop_at=0.5")
    assert main(sft_arguments(model, tmp_path, *more)) == 2
    assert "did you mean 'accuracy'?" in capsys.readouterr().err


def test_sft_stops_by_its_rule(model, tmp_path):
    more = ("evaluation.stop_metric=truncation_rate", "evaluation.stop_at=0.0")
    assert main(sft_arguments(model, tmp_path, *more)) == 0
    assert len(metric(tmp_path / "sft", "train/loss")) == 3


def test_the_tag_template_trains_responses_in_tags(model, tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    row = {"problem": "1+2", "generated_solution": "<think>1+2=3</think>", "expected_answer": "3"}
    rows.write_text(json.dumps(row) + "\n")
    data = ["~data", f"data.train.path={rows}", "data.template=tags"]
    shown = ["inspect", "data", "-c", "sft", *data, f"model={{name_or_path: {model}}}"]
    assert main(shown) == 0
    text = capsys.readouterr().out.replace("|", "").replace("\n", "")
    assert "<SOLUTION>3</SOLUTION>" in text
