"""The adapter of a policy as tensors and as a folder: for an engine that applies LoRA itself.

The scale of an update (alpha / rank, or what rsLoRA makes of it) is multiplied into the second
factor, so that a reader with alpha = rank applies the update that the trainer applies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from workings.errors import ModelError
from workings.models.bits_and_bytes import is_quantized
from workings.models.lora import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from workings.models.weights import base_model, gathered, has_adapter, whole_weight

PREFIX = "base_model.model."


def named_adapter_weights(policy: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of both factors of every update: `NAME.lora_A.weight`, `NAME.lora_B.weight`.

    NAME is the module's in the base model. B carries the scale. Raises ModelError for a policy
    without an adapter, with several active ones, and for updates that are not of this form.
    """
    for name, layer, adapter in _adapted_layers(policy):
        if layer.merged or layer.lora_embedding_A or layer.fan_in_fan_out:
            raise ModelError(
                f"the adapter of {name} cannot be sent as two factors: it is merged in place, on "
                "an embedding, or on a transposed layer",
                hint="set engine.lora_by_adapter=false, which sends merged weights",
            )
        if layer.use_dora.get(adapter) or layer.lora_bias.get(adapter):
            raise ModelError(
                f"the adapter of {name} has DoRA magnitudes or a bias, which vLLM does not apply",
                hint="set engine.lora_by_adapter=false, which sends merged weights",
            )
        yield f"{name}.lora_A.weight", gathered(layer.lora_A[adapter].weight)
        up = gathered(layer.lora_B[adapter].weight)
        yield f"{name}.lora_B.weight", up * layer.scaling[adapter]


def named_base_weights(policy: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of every weight of the base model, without its adapter, dequantised."""
    model = base_model(policy)
    for name, parameter in model.named_parameters():
        if ".lora_" not in name:
            yield name.replace(".base_layer.", "."), whole_weight(model, name, parameter)


def named_base_shapes(policy: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, shape) of every weight of the base model, however the policy holds it."""
    model = base_model(policy)
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            continue
        shape = tuple(parameter.shape)
        if is_quantized(parameter):
            layer = model.get_submodule(name.rpartition(".")[0])
            shape = (layer.out_features, layer.in_features)
        yield name.replace(".base_layer.", "."), shape


def is_own_weight(policy: Any, name: str, tensor: torch.Tensor) -> bool:
    """True where `tensor` is the storage of that weight of the policy's base model."""
    for own, parameter in base_model(policy).named_parameters(remove_duplicate=False):
        if own.replace(".base_layer.", ".") == name:
            return bool(gathered(parameter).data_ptr() == tensor.data_ptr())
    return False


def adapter_rank(policy: Any) -> int:
    """The largest rank among the updates of the active adapter."""
    return max(int(layer.r[adapter]) for _, layer, adapter in _adapted_layers(policy))


def write_adapter(folder: Path, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Write the tensors of `named_adapter_weights` as an adapter that peft and vLLM read."""
    from safetensors.torch import save_file

    held = {f"{PREFIX}{name}": tensor.detach().to("cpu").contiguous() for name, tensor in tensors}
    if not held:
        raise ModelError(f"no adapter tensors for {folder}")
    down = [tensor for name, tensor in held.items() if name.endswith(".lora_A.weight")]
    modules = {name.split(".lora_")[0].rpartition(".")[2] for name in held}
    rank = max(tensor.shape[0] for tensor in down)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(held, folder / ADAPTER_WEIGHTS)
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": rank,
        "target_modules": sorted(modules),
        "bias": "none",
    }
    (folder / ADAPTER_CONFIG).write_text(json.dumps(settings, indent=2), encoding="utf-8")


def _adapted_layers(policy: Any) -> Iterator[tuple[str, Any, str]]:
    """(module name, layer, adapter name) of every adapted layer."""
    if not has_adapter(policy):
        raise ModelError("the policy has no adapter", hint="set model.lora, or send full weights")
    from peft.tuners.lora import LoraLayer

    for name, module in base_model(policy).named_modules():
        if isinstance(module, LoraLayer):
            active = [adapter for adapter in module.active_adapters if adapter in module.lora_A]
            if len(active) > 1:
                raise ModelError(f"{name} has {len(active)} active adapters; expected one")
            if active:
                yield name, module, active[0]
