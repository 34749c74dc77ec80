"""A trained checkpoint as something to give away: an adapter, a merged model, either format."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal

import torch

from workings.errors import ModelError, unknown_name
from workings.models.bits_and_bytes import quantization_of
from workings.models.checkpoint import replace_folder
from workings.models.load import LoadedModel, load_model
from workings.models.lora import save_adapter
from workings.models.quiet import quiet_transformers
from workings.models.save import save_tokenizer
from workings.models.tensors import save_tensors
from workings.models.weights import base_model, has_adapter, merged_state

ExportFormat = Literal["adapter", "merged", "safetensors", "pytorch"]
FORMATS: tuple[ExportFormat, ...] = ("adapter", "merged", "safetensors", "pytorch")


def export_model(
    source: str | Path,
    destination: str | Path,
    *,
    format: ExportFormat,  # noqa: A002 - the name users know
    card: str,
    dtype: Literal["float32", "bfloat16"] = "float32",
    trust_remote_code: bool = False,
) -> Path:
    """The folder `destination`, which loads with plain transformers (or peft, for an adapter).

    Args:
        source: a saved policy: a full model, or an adapter with or without its tokenizer.
        destination: a folder that is absent or empty.
        format: "adapter" (LoRA alone), "merged" (LoRA merged into its base, safetensors; into the
            dequantised base where it was trained on a quantised one),
            "safetensors" (the full model; an adapter is merged first) or "pytorch" (the same as
            `pytorch_model.bin`, tensors only).
        card: text of README.md, the model card.
        dtype: of the weights written; an adapter stays float32.

    Raises ModelError where the source cannot give the format or the destination is in use.
    """
    if format not in FORMATS:
        raise ModelError(unknown_name("export format", format, FORMATS))
    target = Path(destination).expanduser()
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise ModelError(f"{target} exists already", hint="give a new folder, or empty that one")
    loaded = load_model(str(source), device="cpu", trust_remote_code=trust_remote_code)
    if format in ("adapter", "merged") and not has_adapter(loaded.model):
        raise ModelError(
            f"{source} is a full model without an adapter, so it cannot be exported as {format!r}",
            hint="use format=safetensors",
        )

    def write(folder: Path) -> None:
        if format == "adapter":
            save_adapter(loaded.model, folder, trained=True)
        else:
            _save_full(
                loaded, folder, format, torch.float32 if dtype == "float32" else torch.bfloat16
            )
        save_tokenizer(loaded.tokenizer, folder)
        (folder / "README.md").write_text(card, encoding="utf-8")

    replace_folder(target, write)
    return target


def _save_full(loaded: LoadedModel, folder: Path, kind: str, dtype: torch.dtype) -> None:
    state = merged_state(loaded.model)
    model = _with_whole_weights(loaded.model)
    model.load_state_dict(state, strict=False)
    model.to(dtype)
    model.config.dtype = dtype
    with quiet_transformers():
        if kind == "pytorch":
            model.config.architectures = [type(model).__name__]
            model.config.save_pretrained(folder)
            model.generation_config.save_pretrained(folder)
            tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
            save_tensors(folder / "pytorch_model.bin", tensors)
        else:
            model.save_pretrained(folder)


def _with_whole_weights(policy: Any) -> Any:
    """The base without adapter and codes, ready to take merged weights."""
    if quantization_of(policy) == "none":
        return policy.unload() if has_adapter(policy) else base_model(policy)
    quantized = base_model(policy)
    config = copy.deepcopy(quantized.config)
    del config.quantization_config
    model = type(quantized)(config)
    model.generation_config = quantized.generation_config
    return model
