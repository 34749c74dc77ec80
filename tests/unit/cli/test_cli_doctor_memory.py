"""The memory estimate against parameters counted in a real model and sums done by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings.cli.doctor import memory
from workings.cli.doctor.memory import (
    lora_parameters,
    memory_finding,
    sampling_memory,
    training_memory,
)
from workings.cli.doctor.model_files import ModelFiles, read_model_files
from workings.config.grpo import GRPOConfig
from workings.config.sections import LoraConfig, ModelConfig
from workings.models.lora import add_lora
from workings.models.placement import DeviceChoice, DtypeChoice
from workings.training.memory_estimate import Activations, MemoryEstimate, widths_of
from workings.training.microbatch_tokens import gpu_choice

LAYERS, KEY_WIDTH = 2, 16


@pytest.fixture(scope="module")
def files(tiny_folder: Path) -> ModelFiles:
    return read_model_files(ModelConfig(name_or_path=str(tiny_folder)))


def test_parameters_are_those_of_the_model(files: ModelFiles) -> None:
    model = tiny_model(tiny_tokenizer())
    assert files.num_parameters == sum(p.numel() for p in model.parameters())


def test_adapters_are_those_that_lora_adds(files: ModelFiles) -> None:
    lora = LoraConfig(rank=4, targets=("q_proj", "v_proj", "down_proj"))
    model = add_lora(
        tiny_model(tiny_tokenizer()),
        rank=4,
        alpha=8,
        dropout=0.0,
        targets=lora.targets,
        seed=0,
    )
    counted = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert lora_parameters(files, lora) == counted


def test_a_run_that_only_samples_has_weights_and_a_cache(files: ModelFiles) -> None:
    found = sampling_memory(files, cached_tokens=70)
    assert found.weights == 4 * files.num_parameters
    assert found.kv_cache == 70 * LAYERS * 2 * KEY_WIDTH * 4
    assert found.peak == found.weights + found.kv_cache


def test_a_grpo_run_caches_the_rows_that_are_sampled_at_once(files: ModelFiles) -> None:
    run = GRPOConfig.model_validate(
        {
            "name": "g",
            "model": {"name_or_path": files.name, "device": "cpu"},
            "data": {"train": {"path": "p"}},
            "prompts_per_step": 4,
            "num_generations": 8,
            "sampling": {"max_tokens": 20},
            "engine": {"max_batch_size": 16},
            "batch": {"microbatch_tokens": 100},
        }
    )
    found = training_memory(files, run, longest_prompt=10, longest_row=30)
    assert (found.trained, found.choice) == (files.num_parameters, None)
    assert found.estimate.kv_cache == 16 * 30 * LAYERS * 2 * KEY_WIDTH * 4
    by_hand = Activations(
        widths=widths_of(files.config),
        checkpointing="none",
        fused=False,
        number_bytes=4,
        gpu_bytes=None,
        head_trained=True,
    )
    assert found.estimate.activations == by_hand.num_bytes(100)


def test_tokens_left_open_are_those_of_a_cpu_and_are_said(files: ModelFiles) -> None:
    run = run_with(files)
    found = training_memory(files, run, longest_prompt=10, longest_row=30)
    assert found.choice is not None
    assert found.choice.tokens == 8192
    said = memory_finding(found.estimate, device="cpu", trained=5, choice=found.choice)
    assert "microbatches of 8,192 tokens (batch.microbatch_tokens=auto" in said.details[-1]


def test_a_card_is_filled_and_the_doctor_and_the_run_choose_alike(
    files: ModelFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, total = torch.device("cuda", 0), 2**27
    monkeypatch.setattr(memory, "choose_device", lambda name: DeviceChoice(card, "a card"))
    monkeypatch.setattr(memory, "usable_memory", lambda device: total)
    run = run_with(
        files, batch={"layout": "padded"}, model={"device": "cuda"}, engine={"max_batch_size": 4}
    )
    monkeypatch.setattr(
        memory, "choose_dtype", lambda name, device: DtypeChoice(torch.bfloat16, "")
    )
    found = training_memory(files, run, longest_prompt=10, longest_row=30)
    assert found.choice is not None
    of_run = gpu_choice(
        run,
        tiny_model(tiny_tokenizer()),
        total=total,
        longest_row=30,
        autocast=torch.bfloat16,
    )
    # The doctor counts the embedding among the copies, and knows no buffers.
    assert found.choice.tokens == pytest.approx(of_run.tokens, rel=0.02)
    assert 30 < found.choice.tokens < 65536
    assert found.estimate.copies == 2 * files.num_parameters
    assert "left for activations with checkpointing none" in str(found.choice)


@pytest.mark.parametrize(("weights", "status"), [(1, "ok"), (10**16, "FAIL")])
def test_what_cannot_fit_fails(weights: int, status: str) -> None:
    estimate = MemoryEstimate(weights=weights, gradients=0, optimizer=0, activations=0, kv_cache=0)
    found = memory_finding(estimate, device="cpu", trained=5)
    assert found.status == status
    assert "a rough estimate" in found.text


def test_what_only_perhaps_fits_is_a_warning() -> None:
    estimate = MemoryEstimate(weights=1, gradients=0, optimizer=0, activations=10**16, kv_cache=0)
    found = memory_finding(estimate, device="cpu", trained=5)
    assert found.status == "warn"
    assert found.remedy is not None
    assert found.remedy.startswith("in this order: batch.activation_checkpointing=full")


def run_with(files: ModelFiles, **sections: object) -> GRPOConfig:
    model = {"name_or_path": files.name, "device": "cpu", "dtype": "bfloat16"}
    return GRPOConfig.model_validate(
        {
            "name": "g",
            "data": {"train": {"path": "p"}},
            **sections,
            "model": {**model, **sections.get("model", {})},  # type: ignore[dict-item]
        }
    )


def parts(files: ModelFiles, **sections: object) -> tuple[int, int, int]:
    found = training_memory(
        files, run_with(files, **sections), longest_prompt=10, longest_row=30
    ).estimate
    return found.weights, found.gradients, found.optimizer


def test_weights_and_states_by_optimizer(files: ModelFiles) -> None:
    n = files.num_parameters
    assert parts(files) == (4 * n, 4 * n, 8 * n)
    assert parts(files, optimizer={"name": "rmsprop"}) == (4 * n, 4 * n, 4 * n)
    assert parts(files, optimizer={"name": "adamw_8bit"}) == (4 * n, 4 * n, int(2.03125 * n))
    # On a CPU the masters are in the same memory.
    assert parts(files, optimizer={"offload": True}) == (2 * n, 4 * n, 12 * n)
    whole = {"model": {"dtype": "float32"}, "optimizer": {"offload": True}}
    assert parts(files, **whole) == (4 * n, 4 * n, 8 * n)


def test_a_frozen_base_is_held_narrow_or_in_codes(files: ModelFiles) -> None:
    n = files.num_parameters
    lora = {"rank": 4, "targets": ("q_proj",)}
    added = lora_parameters(files, LoraConfig(rank=4, targets=("q_proj",)))
    assert parts(files, model={"lora": lora}) == (2 * n + 4 * added, 4 * added, 8 * added)
    codes = sum(i * o for name, i, o in files.linear if name != "lm_head")
    weights, _, _ = parts(files, model={"lora": lora, "quantization": "4bit"})
    assert weights == 2 * (n - codes) + 4 * added + int((0.5 + 1 / 64) * codes)
