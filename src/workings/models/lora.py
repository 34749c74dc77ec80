"""LoRA adapters through peft: put one on a model, save it, load it, with nothing lost in silence.

An adapter that is saved under wrong names, or loaded with half of its keys, leaves the base model
as it was and looks like training that did not work. So every key is compared on loading, and an
adapter that never moved is refused on saving.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from workings.errors import ModelError
from workings.models.bits_and_bytes import QUANTIZATIONS, Quantization, quantization_of
from workings.models.weights import gathered, has_adapter

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
BASE_QUANTIZATION = "base_quantization.json"
"""Beside an adapter that was trained on a quantised base: how that base was held."""


def add_lora(
    model: Any, *, rank: int, alpha: float, dropout: float, targets: Sequence[str], seed: int
) -> Any:
    """A peft model around `model` with new adapters on the layers named in `targets`.

    The base is frozen; the adapters are float32 and start as the identity (B is zero, A is drawn
    from `seed`). Their update is scaled by alpha / rank (LoRA, arXiv 2106.09685, section 4.1).

    Args:
        targets: last parts of module names ("q_proj"), or `("all-linear",)`.
    """
    from peft import LoraConfig, get_peft_model

    if has_adapter(model):
        raise ModelError("the model has an adapter already; load the base model to add a new one")
    names = tuple(targets)
    if names != ("all-linear",):
        _check_targets(model, names)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules="all-linear" if names == ("all-linear",) else list(names),
        bias="none",
        task_type="CAUSAL_LM",
        fan_in_fan_out=_transposed(model, names),
    )
    with torch.random.fork_rng(devices=_cuda_devices(model)):
        torch.manual_seed(seed)
        return get_peft_model(model, config).train(model.training)


def save_adapter(model: Any, folder: Path, *, trained: bool) -> None:
    """Writes `adapter_config.json` and `adapter_model.safetensors`.

    Where the base is quantised, `base_quantization.json` says how, so that the adapter is put on
    the base that it was trained on.

    Args:
        trained: True once an optimizer step was taken; an adapter tensor that is all zero is then
            refused, because it means that training did not reach it.
    """
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    if not has_adapter(model):
        raise ModelError("the model has no adapter to save; save the full model instead")
    tensors = {
        name: gathered(tensor).cpu().contiguous()
        for name, tensor in get_peft_model_state_dict(model, save_embedding_layers=False).items()
    }
    zero = [name for name, tensor in tensors.items() if not bool(tensor.any())]
    if trained and zero:
        raise ModelError(
            f"{len(zero)} of {len(tensors)} adapter tensors are all zero after training, such as "
            f"{zero[0]}; the saved adapter would have no effect there",
            hint="check that these parameters are in the optimizer and get a gradient",
        )
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    settings = model.peft_config[model.active_adapter].to_dict()
    settings["inference_mode"] = True
    plain = {
        key: sorted(value) if isinstance(value, set) else value for key, value in settings.items()
    }
    text = json.dumps(plain, indent=2, sort_keys=True, default=str)
    (folder / ADAPTER_CONFIG).write_text(text + "\n", encoding="utf-8")
    quantization = quantization_of(model)
    if quantization != "none":
        held = str(model.get_input_embeddings().weight.dtype).removeprefix("torch.")
        record = json.dumps({"quantization": quantization, "dtype": held}, indent=2)
        (folder / BASE_QUANTIZATION).write_text(record + "\n", encoding="utf-8")


def read_base_quantization(folder: Path) -> tuple[Quantization, torch.dtype] | None:
    """How the base of a saved adapter was held, with the dtype of its other weights; None: whole.

    Raises ModelError for a record that this version does not understand.
    """
    file = folder.expanduser() / BASE_QUANTIZATION
    if not file.is_file():
        return None
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        quantization, dtype = record["quantization"], dtypes[record["dtype"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{file} cannot be read: {error!r}") from error
    if quantization not in QUANTIZATIONS:
        raise ModelError(
            f"{file} has quantization={quantization!r}; expected one of {', '.join(QUANTIZATIONS)}"
        )
    return quantization, dtype


def load_adapter(model: Any, folder: str | Path, *, trainable: bool = True) -> Any:
    """A peft model around `model` with the adapter of `folder` on it.

    Raises ModelError for a missing file, another kind of adapter than plain LoRA, a missing or
    unexpected key, and a shape that does not fit this base.
    """
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if has_adapter(model):
        raise ModelError("the model has an adapter already; load the base model first")
    path = Path(folder).expanduser()
    settings = read_adapter_config(path)
    if not (path / ADAPTER_WEIGHTS).is_file():
        raise ModelError(
            f"{path} holds no {ADAPTER_WEIGHTS}",
            hint="only safetensors adapters are loaded; an adapter_model.bin is a pickle",
        )
    try:
        tensors = load_file(path / ADAPTER_WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path / ADAPTER_WEIGHTS} cannot be read: {error}") from error
    config = LoraConfig.from_peft_type(**settings)
    config.inference_mode = not trainable
    origin, config.base_model_name_or_path = config.base_model_name_or_path, None
    targets = config.target_modules
    if isinstance(targets, (list, set, tuple)):
        _check_targets(model, tuple(targets))
    peft_model = get_peft_model(model, config)
    if config.base_model_name_or_path is None:
        config.base_model_name_or_path = origin
    _check_keys(peft_model, tensors, path)
    set_peft_model_state_dict(peft_model, tensors)
    return peft_model.train(model.training)


def adapter_base(folder: str | Path) -> str:
    """The name or path of the model that an adapter was trained on."""
    path = Path(folder).expanduser()
    name = read_adapter_config(path).get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise ModelError(
            f"{path / ADAPTER_CONFIG} does not say which base model it belongs to",
            hint="give the base model as model.name_or_path and this folder as model.adapter",
        )
    return name


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """The settings of a plain LoRA adapter. Raises ModelError for any other kind."""
    file = folder / ADAPTER_CONFIG
    if not file.is_file():
        raise ModelError(
            f"{folder} holds no {ADAPTER_CONFIG}", hint="give a folder that holds a LoRA adapter"
        )
    try:
        settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} is not JSON: {error}") from error
    if settings.get("peft_type") != "LORA":
        raise ModelError(f"{file} has peft_type={settings.get('peft_type')!r}; expected 'LORA'")
    for name in ("use_dora", "modules_to_save", "trainable_token_indices", "target_parameters"):
        if settings.get(name):
            raise ModelError(
                f"{file} has {name}={settings[name]!r}, which is not supported; expected plain LoRA"
            )
    if settings.get("bias", "none") != "none":
        raise ModelError(f"{file} has bias={settings['bias']!r}; expected 'none'")
    return settings


def _check_targets(model: Any, targets: tuple[str, ...]) -> None:
    linear = sorted(
        {
            name.rpartition(".")[2]
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"
        }
    )
    unknown = [name for name in targets if name.rpartition(".")[2] not in linear]
    if unknown or not targets:
        raise ModelError(
            f"LoRA targets {', '.join(unknown) or '(none)'} are not linear layers of "
            f"{type(model).__name__}; it has {', '.join(linear)}",
            hint="set model.lora.targets to some of these",
        )
    head = model.get_output_embeddings()
    tied = head is not None and head.weight is model.get_input_embeddings().weight
    if tied and any(model.get_submodule(name) is head for name in _matching(model, targets)):
        raise ModelError(
            "a LoRA target is the output head, which shares its weights with the embedding, so the "
            "adapter could not be merged",
            hint="leave lm_head out of model.lora.targets",
        )


def _transposed(model: Any, targets: tuple[str, ...]) -> bool:
    """True where the targets keep their weights as [in, out], as GPT-2's do."""
    return any(
        type(model.get_submodule(name)).__name__ == "Conv1D" for name in _matching(model, targets)
    )


def _matching(model: Any, targets: tuple[str, ...]) -> list[str]:
    return [
        name
        for name, _ in model.named_modules()
        if any(name == target or name.endswith(f".{target}") for target in targets)
    ]


def _check_keys(peft_model: Any, tensors: dict[str, torch.Tensor], path: Path) -> None:
    from peft import get_peft_model_state_dict

    expected = get_peft_model_state_dict(peft_model, save_embedding_layers=False)
    missing = sorted(expected.keys() - tensors.keys())
    unexpected = sorted(tensors.keys() - expected.keys())
    if missing or unexpected:
        parts = []
        if missing:
            parts.append(f"lacks {len(missing)} keys, such as {missing[0]}")
        if unexpected:
            parts.append(f"has {len(unexpected)} unexpected keys, such as {unexpected[0]}")
        raise ModelError(
            f"the adapter in {path} {' and '.join(parts)}; it would be loaded in part",
            hint="check that it was trained on this base model",
        )
    for name, tensor in expected.items():
        if tensor.shape != tensors[name].shape:
            raise ModelError(
                f"the adapter in {path} has {name} of shape {list(tensors[name].shape)}; "
                f"this base needs {list(tensor.shape)}",
                hint="check that it was trained on this base model",
            )


def _cuda_devices(model: Any) -> list[int]:
    device = next(model.parameters()).device
    return [device.index or 0] if device.type == "cuda" else []
