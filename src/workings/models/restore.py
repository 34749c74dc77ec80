"""Weights of a saved policy back into a live one, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from workings.errors import CheckpointError
from workings.models.lora import ADAPTER_WEIGHTS
from workings.models.weights import has_adapter


def restore_policy(model: Any, folder: Path) -> None:
    """Copy the weights that `save_policy` wrote into `model`, in place.

    A LoRA policy takes its adapter; the base is not in the checkpoint and stays as it is. Raises
    CheckpointError where names, shapes or dtypes are not exactly those of the model.
    """
    if has_adapter(model):
        _restore_adapter(model, folder)
    else:
        _restore_full(model, folder)


def _restore_adapter(model: Any, folder: Path) -> None:
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    tensors = _read(folder, ADAPTER_WEIGHTS)
    expected = get_peft_model_state_dict(model, save_embedding_layers=False)
    _compare(expected, tensors, folder)
    set_peft_model_state_dict(model, tensors)


def _restore_full(model: Any, folder: Path) -> None:
    tensors = _read(folder, "model*.safetensors")
    # A tied tensor is stored once, under one of its names.
    expected = dict(model.named_parameters())
    expected |= {name: buffer for name, buffer in model.state_dict().items() if name in tensors}
    _compare(expected, tensors, folder)
    model.load_state_dict(tensors, strict=False)


def _read(folder: Path, pattern: str) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob(pattern))
    if not files:
        raise CheckpointError(
            f"{folder} holds no {pattern}; it is from a run with or without LoRA, and this one is "
            "the other kind",
            hint="resume with the settings of the run's own config.yaml",
        )
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            tensors |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} cannot be read: {error}") from error
    return tensors


def _compare(
    expected: dict[str, torch.Tensor], found: dict[str, torch.Tensor], folder: Path
) -> None:
    missing, unknown = (
        sorted(expected.keys() - found.keys()),
        sorted(found.keys() - expected.keys()),
    )
    shapes = [n for n in expected.keys() & found.keys() if expected[n].shape != found[n].shape]
    if missing or unknown or shapes:
        raise CheckpointError(
            f"the weights in {folder} are not those of this model: {len(missing)} missing, "
            f"{len(unknown)} unknown, {len(shapes)} of another shape "
            f"(such as {(missing + unknown + shapes)[0]})",
            hint="resume with the settings of the run's own config.yaml",
        )
    for name in expected:
        if expected[name].dtype != found[name].dtype:
            raise CheckpointError(
                f"{name} in {folder} is {found[name].dtype}, and {expected[name].dtype} in this "
                "run, which would round it or lose its float32 master",
                hint="resume with the model.dtype and optimizer.offload of the run's own "
                "config.yaml",
            )
