"""A rough estimate of the memory that a run needs, against what this machine has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import psutil
import torch

from workings.cli.doctor.findings import Finding, fail, ok, warn
from workings.cli.doctor.model_files import ModelFiles, text_config
from workings.config.dpo import DPOConfig
from workings.config.kinds import SamplingRun, TrainingRun
from workings.config.sections import LoraConfig, ModelConfig
from workings.models.placement import choose_device, choose_dtype
from workings.objectives.logprobs import DEFAULT_CHUNK_BYTES
from workings.rollout.select import rows_at_once

WEIGHT_BYTES, GRADIENT_BYTES, ADAMW_BYTES = 4, 4, 8
"""Per parameter: float32 weights and gradients, and AdamW's two float32 states."""
STATE_BYTES: dict[str, float] = {"adamw": ADAMW_BYTES, "adamw_8bit": 2 + 8 / 256, "rmsprop": 4}
"""Per trained parameter, on the device; 8 bits have a float32 scale for every 256 moments."""
CODE_BYTES = {"4bit": 0.5 + 1 / 64, "8bit": 1.0}
"""Per weight of a quantised layer; 4 bits have an 8-bit scale for every 64."""
ACTIVATION_FACTOR = 34
"""Bytes per token, layer and unit of width in 16 bit, attention scores left out (Korthikanti et
al., 2022, "Reducing activation recomputation", arXiv:2205.05198, equation 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes by part. Sampling and the forward pass do not happen at once."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    kv_cache: int
    engine: int = 0

    @property
    def lasting(self) -> int:
        """What is held all the time."""
        return self.weights + self.gradients + self.optimizer + self.engine

    @property
    def peak(self) -> int:
        """The most at one time."""
        return self.lasting + max(self.activations, self.kv_cache)

    def describe(self) -> str:
        """The parts in one line."""
        parts = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "the engine's weights": self.engine,
            "activations": self.activations,
            "KV cache of sampling": self.kv_cache,
        }
        return ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in parts.items() if size)


def estimate_memory(
    files: ModelFiles,
    *,
    trained: int,
    added: int,
    forward_tokens: int,
    checkpointing: bool,
    compute_bytes: int,
    cached_tokens: int,
) -> MemoryEstimate:
    """The estimate for `trained` parameters, of which `added` come on top of the model's (LoRA).

    `forward_tokens` are in one microbatch (0: nothing is trained), `cached_tokens` in the KV cache
    at once; `compute_bytes` is the size of a number in the arithmetic.
    """
    config = text_config(files)
    layers, width = config.num_hidden_layers, config.hidden_size
    per_layer = forward_tokens * width * ACTIVATION_FACTOR * compute_bytes // 2
    kept = forward_tokens * width * compute_bytes * layers
    activations = kept + per_layer if checkpointing else per_layer * layers
    return MemoryEstimate(
        weights=WEIGHT_BYTES * (files.num_parameters + added),
        gradients=GRADIENT_BYTES * trained,
        optimizer=ADAMW_BYTES * trained,
        activations=activations + (2 * DEFAULT_CHUNK_BYTES if forward_tokens else 0),
        kv_cache=cached_tokens * layers * 2 * _key_width(config) * WEIGHT_BYTES,
    )


def lora_parameters(files: ModelFiles, lora: LoraConfig) -> int:
    """Parameters of the adapters: rank x (inputs + outputs) of every target."""
    everything = lora.targets == ("all-linear",)
    return sum(
        lora.rank * (inputs + outputs)
        for name, inputs, outputs in files.linear
        if name in lora.targets or (everything and name != "lm_head")
    )


def training_memory(
    files: ModelFiles, config: TrainingRun | DPOConfig, *, longest_prompt: int, longest_row: int
) -> tuple[MemoryEstimate, int]:
    """The estimate of a training run, and the parameters that it trains."""
    lora = config.model.lora
    added = lora_parameters(files, lora) if lora is not None else 0
    trained = added if lora is not None else files.num_parameters
    cached = 0
    if isinstance(config, SamplingRun):
        rows = config.rows_per_update
        engine, device = config.engine, choose_device(config.model.device).device.type
        rows_decoded = rows_at_once(engine.max_batch_size, engine.name, device)
        sampled = min(rows_decoded, config.rollout_batch_size)
        cached = sampled * (longest_prompt + config.sampling.max_tokens)
    else:
        rows = 2 * config.batch_size if isinstance(config, DPOConfig) else config.batch_size
    estimate = estimate_memory(
        files,
        trained=trained,
        added=added,
        forward_tokens=max(longest_row, min(config.batch.microbatch_tokens, rows * longest_row)),
        checkpointing=config.batch.activation_checkpointing in ("full", "offloaded"),
        compute_bytes=_compute_bytes(config.model.dtype, config.model.device),
        cached_tokens=cached,
    )
    on_cuda = choose_device(config.model.device).device.type == "cuda"
    weights = _held_weights(files, config, added)
    if isinstance(config, DPOConfig) and config.reference == "live" and lora is None:
        weights *= 2  # the frozen copy
    optimizer = int(STATE_BYTES[config.optimizer.name] * trained)
    if config.optimizer.offload:
        masters = WEIGHT_BYTES * trained if _is_narrow(config.model) else 0
        optimizer = 0 if on_cuda else optimizer + masters
    estimate = replace(estimate, weights=weights, optimizer=optimizer)
    if config.optimizer.offload_gradients and on_cuda:
        estimate = replace(estimate, gradients=0)
    if isinstance(config, SamplingRun) and on_cuda and config.engine.name in ("auto", "paged"):
        each = _compute_bytes(config.model.dtype, config.model.device)
        cache = estimate.kv_cache // WEIGHT_BYTES * each
        estimate = replace(estimate, engine=each * files.num_parameters, kv_cache=cache)
    return estimate, trained


def _held_weights(files: ModelFiles, config: TrainingRun | DPOConfig, added: int) -> int:
    """Bytes of the model's own weights and of the adapters, as `cli.build` has them loaded."""
    model = config.model
    frozen = model.lora is not None or model.adapter is not None
    narrow = _is_narrow(model) and (frozen or config.optimizer.offload)
    each = 2 if narrow else WEIGHT_BYTES
    in_codes = 0
    if model.quantization in CODE_BYTES:
        in_codes = sum(i * o for name, i, o in files.linear if name != "lm_head")
    whole = each * (files.num_parameters - in_codes) + WEIGHT_BYTES * added
    return whole + int(CODE_BYTES.get(model.quantization, 0) * in_codes)


def _is_narrow(model: ModelConfig) -> bool:
    return _compute_bytes(model.dtype, model.device) < WEIGHT_BYTES


def memory_finding(estimate: MemoryEstimate, *, device: str, trained: int) -> Finding:
    """The estimate beside what is free on the device that the run takes."""
    free, total = free_memory(device)
    text = (
        f"about {estimate.peak / 1e9:.2f} GB at the peak, a rough estimate; {free / 1e9:.1f} of "
        f"{total / 1e9:.1f} GB are free"
    )
    details = [estimate.describe()]
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


def _compute_bytes(dtype: str, device: str) -> int:
    chosen = choose_dtype(dtype, choose_device(device).device).dtype
    return torch.empty(0, dtype=chosen).element_size()


def _key_width(config: Any) -> int:
    """Numbers in the keys of one token and layer."""
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(size * (getattr(config, "num_key_value_heads", None) or heads))
