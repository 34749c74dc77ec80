"""A rough estimate of the memory that a run needs, against what this machine has."""

from __future__ import annotations

from dataclasses import dataclass, replace

import psutil
import torch

from workings.cli.doctor.findings import Finding, fail, ok, warn
from workings.cli.doctor.model_files import ModelFiles, text_config
from workings.config.dpo import DPOConfig
from workings.config.kinds import SamplingRun, TrainingRun
from workings.config.sections import LoraConfig, ModelConfig
from workings.models.placement import choose_device, choose_dtype, numbered
from workings.objectives.logits_memory import usable_memory
from workings.rollout.select import rows_at_once
from workings.training.memory_estimate import (
    WEIGHT_BYTES,
    Activations,
    MemoryEstimate,
    cache_bytes,
    optimizer_bytes,
    widths_of,
)
from workings.training.microbatch_tokens import (
    Choice,
    activations_of,
    choose_tokens,
    cpu_choice,
    engine_of,
    has_reference,
    is_fused,
)

CODE_BYTES = {"4bit": 0.5 + 1 / 64, "8bit": 1.0}
"""Per weight of a quantised layer; 4 bits have an 8-bit scale for every 64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What a training run will hold.

    Attributes:
        trained: parameters.
        choice: what `batch.microbatch_tokens=auto` comes to; None where the run has a number.
    """

    estimate: MemoryEstimate
    trained: int
    choice: Choice | None


def sampling_memory(files: ModelFiles, *, cached_tokens: int) -> MemoryEstimate:
    """The estimate of a run that trains nothing, with so many tokens in the KV cache at once."""
    widths = widths_of(text_config(files))
    return MemoryEstimate(
        weights=WEIGHT_BYTES * files.num_parameters,
        gradients=0,
        optimizer=0,
        activations=0,
        kv_cache=cache_bytes(widths, cached_tokens, number_bytes=WEIGHT_BYTES),
    )


def lora_parameters(files: ModelFiles, lora: LoraConfig) -> int:
    """Parameters of the adapters: rank x (inputs + outputs) of every target."""
    return sum(lora.rank * (inputs + outputs) for inputs, outputs in _adapted(files, lora))


def _adapted(files: ModelFiles, lora: LoraConfig) -> list[tuple[int, int]]:
    """(inputs, outputs) of the linear layers that get an adapter."""
    everything = lora.targets == ("all-linear",)
    return [
        (inputs, outputs)
        for name, inputs, outputs in files.linear
        if name in lora.targets or (everything and name != "lm_head")
    ]


def training_memory(
    files: ModelFiles, config: TrainingRun | DPOConfig, *, longest_prompt: int, longest_row: int
) -> Foreseen:
    """What a training run will hold on the device that it takes."""
    device = numbered(choose_device(config.model.device).device)
    total = usable_memory(device) if device.type == "cuda" else None
    activations = _activations(files, config, total=total, longest_row=longest_row)
    lasting = _lasting(files, config, activations, total=total, longest_row=longest_row)
    most, choice = config.batch.microbatch_tokens, None
    if most == "auto":
        choice = (
            cpu_choice()
            if total is None
            else choose_tokens(
                activations,
                total=total,
                lasting=lasting.training,
                longest_row=longest_row,
                masked=activations.gpu_bytes is None and config.batch.layout != "padded",
            )
        )
        most = choice.tokens
    cached, cache_number = 0, WEIGHT_BYTES
    if isinstance(config, SamplingRun):
        if total is not None and config.engine.name in ("auto", "paged"):
            cache_number = activations.number_bytes
        rows = config.rows_per_update
        decoded = rows_at_once(config.engine.max_batch_size, config.engine.name, device.type)
        sampled = min(decoded, config.rollout_batch_size)
        cached = sampled * (longest_prompt + config.sampling.max_tokens)
    else:
        rows = 2 * config.batch_size if isinstance(config, DPOConfig) else config.batch_size
    estimate = replace(
        lasting,
        activations=activations.num_bytes(max(longest_row, min(most, rows * longest_row))),
        kv_cache=cache_bytes(
            activations.widths,
            cached,
            number_bytes=cache_number,
        ),
    )
    return Foreseen(estimate=estimate, trained=_num_trained(files, config), choice=choice)


def _activations(
    files: ModelFiles, config: TrainingRun | DPOConfig, *, total: int | None, longest_row: int
) -> Activations:
    lora, adapters = config.model.lora, 0.0
    if lora is not None:
        for inputs, _ in _adapted(files, lora):
            adapters += lora.rank + (1.5 * inputs if lora.dropout else 0)
        adapters /= text_config(files).num_hidden_layers
    found = activations_of(
        config,
        files.config,
        dtype=_compute_dtype(config.model),
        total=total,
        fused=total is not None and is_fused(config.model.kernels, files),
        eager_length=longest_row if config.model.attention == "eager" else 0,
        adapters=adapters,
    )
    # On a CPU what is offloaded stays in the same memory.
    if total is None and found.checkpointing == "offloaded":
        return replace(found, checkpointing="full")
    return found


def _lasting(
    files: ModelFiles,
    config: TrainingRun | DPOConfig,
    activations: Activations,
    *,
    total: int | None,
    longest_row: int,
) -> MemoryEstimate:
    """What is held whatever a microbatch is, by the sizes that the files give."""
    trained, rates = _num_trained(files, config), config.optimizer
    gradients, state = optimizer_bytes(
        rates.name,
        trained,
        offload=rates.offload,
        offload_gradients=rates.offload_gradients,
        narrow=_is_narrow(config.model),
        on_gpu=total is not None,
    )
    weights = _held_weights(files, config)
    whole = weights == WEIGHT_BYTES * files.num_parameters
    copied = total is not None and _is_narrow(config.model) and whole
    return MemoryEstimate(
        weights=weights,
        gradients=gradients,
        optimizer=state,
        activations=0,
        kv_cache=0,
        copies=activations.number_bytes * files.num_parameters if copied else 0,
        reference=weights if has_reference(config) and config.model.lora is None else 0,
        engine=0
        if total is None
        else engine_of(
            config,
            activations.widths,
            num_parameters=files.num_parameters,
            number_bytes=activations.number_bytes,
            total=total,
            longest_row=longest_row,
        ),
    )


def _num_trained(files: ModelFiles, config: TrainingRun | DPOConfig) -> int:
    lora = config.model.lora
    return files.num_parameters if lora is None else lora_parameters(files, lora)


def _held_weights(files: ModelFiles, config: TrainingRun | DPOConfig) -> int:
    """Bytes of the model's own weights and of the adapters, as `cli.build` has them loaded."""
    model = config.model
    added = 0 if model.lora is None else lora_parameters(files, model.lora)
    frozen = model.lora is not None or model.adapter is not None
    narrow = _is_narrow(model) and (frozen or config.optimizer.offload)
    each = 2 if narrow else WEIGHT_BYTES
    in_codes = 0
    if model.quantization in CODE_BYTES:
        in_codes = sum(i * o for name, i, o in files.linear if name != "lm_head")
    whole = each * (files.num_parameters - in_codes) + WEIGHT_BYTES * added
    return whole + int(CODE_BYTES.get(model.quantization, 0) * in_codes)


def _is_narrow(model: ModelConfig) -> bool:
    return _compute_dtype(model).itemsize < WEIGHT_BYTES


def memory_finding(
    estimate: MemoryEstimate, *, device: str, trained: int, choice: Choice | None = None
) -> Finding:
    """The estimate beside what is free on the device that the run takes."""
    free, total = free_memory(device)
    text = (
        f"about {estimate.peak / 1e9:.2f} GB at the peak, a rough estimate; {free / 1e9:.1f} of "
        f"{total / 1e9:.1f} GB are free"
    )
    details = [estimate.describe(), *([] if choice is None else [str(choice)])]
    remedy = "lower engine.max_batch_size or sampling.max_tokens"
    if trained:
        text += f". {trained:,} parameters are trained"
        remedy = (
            "in this order: batch.activation_checkpointing=full, a lower batch.microbatch_tokens, "
            "optimizer.offload=true, model.lora.rank=32, a smaller model"
        )
    if estimate.lasting > total:
        return fail("memory of the run", text, remedy, details=details)
    if estimate.peak > free:
        return warn("memory of the run", text, remedy, details=details)
    return ok("memory of the run", text, details=details)


def free_memory(device: str) -> tuple[int, int]:
    """(free, all) bytes of the device that `model.device` leads to."""
    chosen = choose_device(device).device
    if chosen.type == "cuda":
        free, total = torch.cuda.mem_get_info(chosen)
        return free, total
    memory = psutil.virtual_memory()
    return memory.available, memory.total


def _compute_dtype(model: ModelConfig) -> torch.dtype:
    return choose_dtype(model.dtype, choose_device(model.device).device).dtype
