"""What a model's files say about it, read without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from workings.config.sections import ModelConfig
from workings.errors import ModelError
from workings.models.gguf import convert_gguf
from workings.models.lora import adapter_base
from workings.models.quiet import quiet_transformers
from workings.models.source import resolve_source
from workings.models.tokenizer import hub_hint


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """The configuration of a model, its generation_config (None without one), and its size.

    Attributes:
        name: as it was given.
        location: folder or hub id that transformers reads.
        num_parameters: tied tensors counted once.
        linear: (last part of the name, inputs, outputs) of every linear layer.
    """

    name: str
    location: str
    config: Any
    generation: Any
    num_parameters: int
    linear: tuple[tuple[str, int, int], ...]


def read_model_files(model: ModelConfig) -> ModelFiles:
    """The files of a folder, adapter (its base's), GGUF file, known name or hub id."""
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    source = resolve_source(model.name_or_path)
    if source.kind == "adapter":
        source = resolve_source(adapter_base(source.location))
    location = source.location
    if source.kind == "gguf":
        location = str(convert_gguf(location))
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(location, trust_remote_code=model.trust_remote_code)
            with torch.device("meta"):
                empty = AutoModelForCausalLM.from_config(
                    config, trust_remote_code=model.trust_remote_code
                )
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"the configuration of {source.name} cannot be read: {error}", hint=hub_hint(source)
        ) from error
    try:
        with quiet_transformers():
            generation = GenerationConfig.from_pretrained(location)
    except (OSError, ValueError):
        generation = None
    return ModelFiles(
        name=model.name_or_path,
        location=location,
        config=config,
        generation=generation,
        num_parameters=sum(parameter.numel() for parameter in empty.parameters()),
        linear=tuple(
            (name.rpartition(".")[2], module.in_features, module.out_features)
            for name, module in empty.named_modules()
            if isinstance(module, torch.nn.Linear)
        ),
    )


def text_config(files: ModelFiles) -> Any:
    """The configuration of the language model, inside that of a larger one."""
    return files.config.get_text_config()
