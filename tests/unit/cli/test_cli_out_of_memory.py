"""What is said when memory runs out: remedies in order, with this run's values, only valid ones."""

from __future__ import annotations

import re

import pytest
import torch
from hungry_engine import HungryBuild

from workings.cli.main import main
from workings.cli.out_of_memory import explained, remedies
from workings.config.compose import compose
from workings.config.grpo import GRPOConfig
from workings.config.pipeline import PipelineConfig
from workings.config.sample import SampleConfig
from workings.config.sft import SFTConfig
from workings.errors import (
    EngineError,
    EngineMemoryError,
    ModelError,
    TrainingError,
    is_out_of_memory,
)

BASE = {"name": "r", "model": {"name_or_path": "tiny"}, "data": {"train": {"path": "p"}}}
CARD = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 1.21 GiB is free. If reserved but unallocated memory is large try setting "
    "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation. See documentation"
)


def grpo(**settings):
    return GRPOConfig.model_validate({**BASE, **settings})


def names(run):
    return [re.match(r"[\w.]+", line)[0] for line in remedies(run)]


def test_M182_the_remedies_in_order_with_the_values_of_the_run():
    run = grpo(
        engine={"gpu_memory_utilization": 0.9},
        num_generations=4,
        prompts_per_step=8,
        batch={"microbatch_tokens": 4096},
        sampling={"max_tokens": 2048},
    )
    assert list(remedies(run)) == [
        "engine.gpu_memory_utilization=0.7 (now 0.9): a smaller key-value cache",
        "num_generations=2 (now 4): fewer samples at once, in smaller groups",
        "batch.microbatch_tokens=2048 (now 4096): twice as many microbatches (accumulation), the "
        "same step",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment: freed memory is used "
        "again whatever its shape",
        "sampling.max_tokens=1024 (now 2048): shorter completions",
        "batch.activation_checkpointing=full (now none): layers are computed a second time instead "
        "of being kept",
        "optimizer.offload=true (now false): AdamW's state, and float32 weights, in CPU memory",
        "model.lora.rank=32 (now null): adapters are trained instead of all weights",
    ]


def test_what_is_taken_already_or_not_allowed_is_left_out(monkeypatch):
    run = grpo(
        model={"name_or_path": "tiny", "lora": {"rank": 8}, "quantization": "4bit"},
        engine={"sleep": False, "gpu_memory_utilization": 0.1},
        num_generations=2,
        batch={"microbatch_rows": 1, "activation_checkpointing": "offloaded"},
        optimizer={"offload": True, "offload_gradients": True},
    )
    assert names(run) == [
        "engine.sleep",
        "batch.microbatch_tokens",
        "PYTORCH_CUDA_ALLOC_CONF",
        "sampling.max_tokens",
    ]
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "backend:native,expandable_segments:True"}
    assert not any("PYTORCH" in line for line in remedies(run, environment=environment))


def test_tokens_that_are_not_settled_get_a_number_too():
    [line] = [line for line in remedies(grpo()) if "microbatch_tokens" in line]
    assert line == (
        "batch.microbatch_tokens=4096 (now auto): a small one, in place of what the card allows"
    )


def test_a_setting_that_would_break_another_rule_is_not_proposed():
    # 6 rows an update are a multiple of 6 samples, and not of 3 x 2.
    run = grpo(num_generations=6, prompts_per_step=2, train_batch_size=6)
    assert "num_generations" in names(run)
    run = grpo(num_generations=5, prompts_per_step=3, train_batch_size=5)
    assert "num_generations" not in names(run)


def test_a_cpu_has_no_card():
    run = grpo(model={"name_or_path": "tiny", "device": "cpu"})
    assert names(run)[:2] == ["num_generations", "batch.microbatch_tokens"]
    assert not any("PYTORCH" in name or "gpu" in name for name in names(run))


def test_sft_and_sampling_have_their_own():
    sft = SFTConfig.model_validate(BASE)
    assert names(sft)[-4:] == [
        "data.max_response_length",
        "batch.activation_checkpointing",
        "optimizer.offload",
        "model.lora.rank",
    ]
    sample = SampleConfig.model_validate({"model": {"name_or_path": "tiny"}})
    assert "engine.max_batch_size" in names(sample)
    assert not any(name.startswith(("optimizer", "batch")) for name in names(sample))


def test_every_proposal_is_a_setting_that_the_command_line_takes(tmp_path):
    run = grpo(engine={"sleep": False})
    file = run.to_yaml(tmp_path / "run.yaml")
    for line in remedies(run):
        setting = line.split(" ")[0]
        if not setting.startswith("PYTORCH"):
            changed = compose([str(file)], [setting], kind="grpo")
            assert changed != run


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(CARD),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
        ValueError("No available memory for the cache blocks. Try increasing it"),
        MemoryError(),
        EngineMemoryError("the cache is full"),
    ],
)
def test_every_way_of_running_out_is_known(error):
    assert is_out_of_memory(error)
    wrapped = ModelError("cannot load the model")
    wrapped.__cause__ = error
    assert is_out_of_memory(wrapped)


def test_an_allocation_that_the_machine_refuses_is_known():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 46, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_other_errors_are_not():
    for error in (RuntimeError("shape mismatch"), ValueError("memory"), EngineError("closed")):
        assert not is_out_of_memory(error)


def raised(error, run):
    try:
        raise error
    except BaseException as caught:
        return explained(caught, run)


def test_the_message_says_what_happened_and_numbers_the_remedies():
    found = raised(torch.OutOfMemoryError(CARD), grpo())
    assert type(found) is TrainingError
    assert found.message == (
        "out of memory: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity "
        "of 79.10 GiB of which 1.21 GiB is free."
    )
    lines = found.hint.splitlines()
    assert lines[0] == "in this order:"
    assert lines[1].startswith("  1. engine.gpu_memory_utilization=")
    assert [line.split(".")[0].strip() for line in lines[1:]] == [
        str(number) for number in range(1, len(lines))
    ]


def test_the_engines_own_shortage_keeps_its_own_advice_first():
    error = EngineMemoryError("the cache is full", hint="raise engine.gpu_memory_utilization")
    found = raised(error, SampleConfig.model_validate({"model": {"name_or_path": "tiny"}}))
    assert type(found) is EngineError
    assert found.message == "out of memory: the cache is full"
    assert "1. raise engine.gpu_memory_utilization\n" in found.hint


def test_a_pipeline_names_the_phase_that_failed():
    run = PipelineConfig.model_validate(
        {"sft": {**BASE, "name": "s"}, "grpo": {**BASE, "name": "g"}}
    )

    def phase(config):
        raise torch.OutOfMemoryError(CARD)

    for config, prefix in ((run.sft, "sft."), (run.grpo, "grpo.")):
        with pytest.raises(torch.OutOfMemoryError) as caught:
            phase(config)
        assert f"{prefix}batch.microbatch_tokens=" in explained(caught.value, run).hint


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ("workings.training.step.response_scores", "training"),
        ("workings.rollout.generation.Generation.run", "sampling"),
    ],
)
def test_a_command_that_runs_out_of_memory_exits_with_the_remedies(
    where, place, tiny_folder, tmp_path, monkeypatch, capsys
):
    def no_memory(*arguments, **settings):
        raise torch.OutOfMemoryError(CARD)

    monkeypatch.setattr(where, no_memory)
    code = main(
        [
            *("grpo", "name=r", f"output_dir={tmp_path}", f"model.name_or_path={tiny_folder}"),
            *("data.train.path=arithmetic", "data.train.limit=4", "model.device=cpu"),
            *("data.template=question_only", "reward.name=question_only", "max_steps=1"),
            *("prompts_per_step=2", "num_generations=4", "sampling.max_tokens=4"),
            *("batch.skip_zero_advantage=false", "tracking.console=false"),
            *("evaluation.at_start=false", "evaluation.at_end=false"),
        ]
    )
    said = capsys.readouterr().err
    assert code == 1
    assert f"error: out of memory while {place}: CUDA out of memory. Tried to allocate 2.00" in said
    assert "hint: in this order:\n  1. num_generations=2 (now 4)" in said
    assert "\n  2. batch.microbatch_tokens=4096 (now 8192)" in said


def test_an_engine_with_memory_of_its_own_has_its_own_remedies():
    elsewhere = {"own_process": True, "device": "cuda:1", "gpu_memory_utilization": 0.9}
    server = {"name": "server", "server_url": "http://x:1"}
    run = grpo(engine=elsewhere, num_generations=4, sampling={"max_tokens": 64})
    error = EngineMemoryError("the engine failed in generate, in its own process: CUDA")
    lines = raised(error, run).hint.splitlines()[1:]
    assert [re.search(r"[a-zA-Z_]\S*?(?==)", line)[0] for line in lines] == [
        "engine.gpu_memory_utilization",
        "num_generations",
        "engine.max_batch_size",
        "PYTORCH_CUDA_ALLOC_CONF",
        "sampling.max_tokens",
    ]
    # The trainer's own shortage, and an engine on the trainer's card.
    assert "optimizer.offload" in raised(torch.OutOfMemoryError(CARD), run).hint
    assert "optimizer.offload" in raised(error, grpo(engine={"own_process": True})).hint
    away = raised(error, grpo(engine=server, num_generations=4, sampling={"max_tokens": 64})).hint
    assert away == (
        "in this order:\n"
        "  1. num_generations=2 (now 4): fewer samples at once, in smaller groups\n"
        "  2. sampling.max_tokens=32 (now 64): shorter completions"
    )


def test_a_command_whose_engine_runs_out_of_memory_in_its_process_exits_with_the_remedies(
    tiny_folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("workings.cli.engines.EngineBuild", HungryBuild)
    code = main(
        [
            *("grpo", "name=r", f"output_dir={tmp_path}", f"model.name_or_path={tiny_folder}"),
            *("data.train.path=arithmetic", "data.train.limit=4", "model.device=cpu"),
            *("data.template=question_only", "reward.name=question_only", "max_steps=1"),
            *("prompts_per_step=2", "num_generations=4", "sampling.max_tokens=4"),
            *("tracking.console=false", "evaluation.at_start=false", "evaluation.at_end=false"),
            "engine.own_process=true",
        ]
    )
    said = capsys.readouterr().err
    assert code == 1
    assert "error: out of memory while sampling: the engine failed in generate, in its own" in said
    assert "DefaultCPUAllocator: can't allocate memory" in said
    assert "hint: in this order:\n  1. num_generations=2 (now 4)" in said
    assert "\n  2. batch.microbatch_tokens=4096 (now 8192)" in said
