"""The full weights of a policy by their Hugging Face names: what an engine or an export takes.

LoRA is merged out of place: the base weights are read, never written, so any number of calls
leaves them bit-identical. Merging in place and taking the update back out drifts instead (in
bfloat16 a sixth of the weights change in one round; huggingface/trl 6688). A quantised base comes
dequantised, with the update on top; see `bits_and_bytes` for how exact that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from workings.errors import ModelError
from workings.models.bits_and_bytes import dequantized, is_quantized


def base_model(policy: Any) -> Any:
    """The Hugging Face model inside a peft model, or `policy` itself."""
    inner = getattr(policy, "get_base_model", None)
    return policy if inner is None else inner()


def has_adapter(policy: Any) -> bool:
    """True for a peft model."""
    return hasattr(policy, "peft_config")


def named_full_weights(policy: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, full tensor) for every weight of the base model, one at a time.

    Names are those of the base model's `state_dict`. A tensor that a tied head shares with the
    embedding comes once, under its first name. A tensor without adapter is the live storage, so
    use or copy it before the next optimizer step; a merged one is new memory, freed when the
    caller lets go of it. Sharded tensors are gathered one by one.

    Dequantised weights are in the dtype of the embedding.

    Raises ModelError where merging would not be exact: an adapter on the embedding, or one that is
    already merged in place.
    """
    model = base_model(policy)
    if not has_adapter(policy):
        for name, parameter in model.named_parameters():
            yield name, whole_weight(model, name, parameter)
    else:
        from peft.tuners.lora import LoraLayer

        layers = {
            name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)
        }
        for name, parameter in model.named_parameters():
            owner, _, leaf = name.rpartition(".base_layer.")
            if owner in layers:
                tensor = whole_weight(model, name, parameter)
                merged = _merged(tensor, layers[owner], owner) if leaf == "weight" else tensor
                yield f"{owner}.{leaf}", merged
            elif ".lora_" not in name:
                yield name, whole_weight(model, name, parameter)
    # Not those of a quantised layer: its scales are part of the weight.
    for name, buffer in _saved_buffers(model):
        yield name, gathered(buffer)


def _saved_buffers(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(prefix=prefix, recurse=False):
            if name.rpartition(".")[2] not in module._non_persistent_buffers_set:
                yield name, buffer


def merged_state(policy: Any) -> dict[str, torch.Tensor]:
    """`named_full_weights` as a dictionary of CPU tensors that share nothing with the policy."""
    return {name: tensor.to("cpu", copy=True) for name, tensor in named_full_weights(policy)}


def whole_weight(model: Any, name: str, parameter: torch.Tensor) -> torch.Tensor:
    """The weight of that name in `model`, gathered, and dequantised where it is held in codes."""
    if not is_quantized(parameter):
        return gathered(parameter)
    layer = model.get_submodule(name.rpartition(".")[0])
    return dequantized(layer).to(model.get_input_embeddings().weight.dtype)


def gathered(tensor: torch.Tensor) -> torch.Tensor:
    """The whole of a tensor that may be sharded, without its gradient history."""
    full = getattr(tensor, "full_tensor", None)
    whole: torch.Tensor = tensor.detach() if full is None else full().detach()
    return whole


def _merged(weight: torch.Tensor, layer: Any, name: str) -> torch.Tensor:
    """`weight` plus the update of the active adapters (LoRA, arXiv 2106.09685, eq. 3)."""
    if not weight.is_floating_point():
        raise ModelError(
            f"{name} holds weights in codes ({weight.dtype}) of a kind that is not known here; an "
            "adapter cannot be merged into them",
            hint="load the base unquantised, or with model.quantization=4bit",
        )
    if layer.merged:
        raise ModelError(
            f"the adapter of {name} is already merged into the base in place",
            hint="call unmerge_adapter() first, or load the model again",
        )
    if layer.lora_embedding_A:
        raise ModelError(
            f"the adapter changes the embedding {name}, which cannot be merged here",
            hint="use LoRA on linear layers only",
        )
    dtype = torch.promote_types(weight.dtype, torch.float32)
    merged = weight.to(dtype, copy=True)
    for adapter in layer.active_adapters:
        if adapter in layer.lora_A:
            down = gathered(layer.lora_A[adapter].weight).to(dtype)
            up = gathered(layer.lora_B[adapter].weight).to(dtype)
            left, right = (down.T, up.T) if layer.fan_in_fan_out else (up, down)
            merged.addmm_(left, right, alpha=layer.scaling[adapter])
    return merged.to(weight.dtype)
