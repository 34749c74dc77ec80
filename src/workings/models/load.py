"""A causal language model and its tokenizer, with a report of every choice that was made.

Trained weights are float32, or have float32 masters with the optimizer: one that updates bfloat16
weights in place loses most updates of the size that reinforcement learning makes. `compute_dtype`
is what the trainer runs its arithmetic in (bfloat16 means autocast). A base that stays frozen under
LoRA may be held in that dtype, or in 4 or 8 bits.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from workings.errors import CheckpointError, ModelError, said, unknown_name
from workings.models.bits_and_bytes import (
    QUANTIZATIONS,
    Quantization,
    quantization_settings,
    settle_quantized,
)
from workings.models.gguf import convert_gguf
from workings.models.lora import adapter_base, load_adapter, read_base_quantization
from workings.models.placement import (
    check_attention,
    choose_device,
    choose_dtype,
    make_current,
    numbered,
)
from workings.models.quiet import quiet_transformers
from workings.models.source import ModelSource, resolve_source
from workings.models.tokenizer import hub_hint, load_tokenizer_with_notes

Weights = Literal["float32", "arithmetic"]
SAMPLING_DEFAULTS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "suppress_tokens",
    "bad_words_ids",
    "max_length",
    "max_new_tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model that is ready to be trained or sampled.

    Attributes:
        model: a Hugging Face causal model (a peft model when an adapter was loaded), in evaluation
            mode, with a generation_config that holds token ids and nothing else.
        tokenizer: with chat template, EOS and pad token set.
        eos_token_ids: every id that ends a completion: the tokenizer's EOS first, then those of
            the model's config and generation_config.
        compute_dtype: dtype of the arithmetic; bfloat16 is to be run as autocast.
        device: where the weights are.
        attention: "eager", "sdpa" or "flash_attention_2".
        report: printable lines, one per choice, each with its reason.
    """

    model: Any
    tokenizer: Any
    eos_token_ids: tuple[int, ...]
    compute_dtype: torch.dtype
    device: torch.device
    attention: str
    report: tuple[str, ...]


def load_model(
    name_or_path: str,
    *,
    dtype: str = "auto",
    attention: str = "auto",
    device: str = "auto",
    adapter: str | None = None,
    adapter_trainable: bool = True,
    weights: Weights = "float32",
    quantization: Quantization | Literal["auto"] = "auto",
    chat_template: str | None = None,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """The model at `name_or_path`, its tokenizer and the report.

    Args:
        name_or_path: a folder, a hub id, a `.gguf` file, a known name ("smollm2"), or a folder
            that holds only a LoRA adapter (its base is then loaded first).
        dtype: "auto", "float32" or "bfloat16": the arithmetic.
        attention: "auto" (sdpa where the model has it), "eager", "sdpa", "flash_attention_2".
        device: "auto", "cpu", "cuda", "cuda:1".
        adapter: a LoRA adapter folder to put on the model.
        adapter_trainable: False freezes the adapter, for evaluation.
        weights: "float32", or "arithmetic" to hold them in the dtype of the arithmetic. The second
            is for weights that are not trained, and for an optimizer that keeps float32 masters.
        quantization: of a base that stays frozen: "none", "4bit", "8bit"; "auto" takes what an
            adapter was trained on, else "none". See `bits_and_bytes`.
        chat_template: Jinja text or file that replaces the tokenizer's.
        trust_remote_code: run model code that comes with the weights.

    Raises ModelError for a source that does not exist or does not fit together (missing weights, a
    tokenizer larger than the embedding), CheckpointError for a pickle that is refused.
    """
    source = resolve_source(name_or_path)
    tokenizer_source = source
    if source.kind == "adapter":
        if adapter is not None:
            raise ModelError(
                f"{source.location} is itself an adapter, and adapter={adapter!r} was given too",
                hint="give the base model as the name and one adapter",
            )
        adapter = source.location
        source = resolve_source(adapter_base(adapter))
    chosen_device, device_reason = choose_device(device)
    make_current(chosen_device)
    chosen_dtype, dtype_reason = choose_dtype(dtype, chosen_device)
    held = chosen_dtype if weights == "arithmetic" else torch.float32
    quantization, held = _quantization(quantization, held, adapter)
    model, notes = _read_weights(
        source,
        attention=check_attention(attention, chosen_device),
        attention_is_free=attention == "auto",
        held=held,
        quantization=quantization_settings(quantization, chosen_dtype),
        device=chosen_device,
        trust_remote_code=trust_remote_code,
    )
    tokenizer, tokenizer_notes = load_tokenizer_with_notes(
        tokenizer_source if _holds_tokenizer(tokenizer_source) else source,
        chat_template=chat_template,
        trust_remote_code=trust_remote_code,
    )
    _check_vocabulary(model, tokenizer, source.name)
    _check_tied(model, source.name)
    eos_token_ids = _eos_token_ids(model, tokenizer)
    notes += _neutralise_generation_config(model, tokenizer, eos_token_ids)
    if quantization == "none":
        model.to(chosen_device)
    else:
        settle_quantized(model, source.name)
        notes.append(f"base: linear layers in {quantization.removesuffix('bit')} bits, frozen")
    if adapter is not None:
        model = load_adapter(model, adapter, trainable=adapter_trainable)
        notes.append(f"adapter: {adapter}" + ("" if adapter_trainable else " (frozen)"))
    model.eval()
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        eos_token_ids=eos_token_ids,
        compute_dtype=chosen_dtype,
        device=chosen_device,
        attention=model.config._attn_implementation,
        report=(
            f"model: {source.name} ({source.kind}), {_count(model)} parameters, "
            f"{str(held).removeprefix('torch.')} weights",
            f"device: {chosen_device} ({device_reason})",
            f"arithmetic: {str(chosen_dtype).removeprefix('torch.')} ({dtype_reason})",
            f"attention: {model.config._attn_implementation}",
            f"EOS: {_describe_ids(tokenizer, eos_token_ids)}",
            *tokenizer_notes,
            *notes,
        ),
    )


def _holds_tokenizer(source: ModelSource) -> bool:
    """False for an adapter folder that was saved without its tokenizer."""
    return source.kind != "adapter" or (Path(source.location) / "tokenizer.json").is_file()


def _quantization(
    wanted: Quantization | Literal["auto"], held: torch.dtype, adapter: str | None
) -> tuple[Quantization, torch.dtype]:
    """How the base is held, and the dtype of what is not quantised: as an adapter was trained."""
    if wanted not in ("auto", *QUANTIZATIONS):
        raise ModelError(unknown_name("quantization", wanted, ("auto", *QUANTIZATIONS)))
    if wanted == "auto":
        trained_on = None if adapter is None else read_base_quantization(Path(adapter))
        return ("none", held) if trained_on is None else trained_on
    return wanted, held


def _read_weights(
    source: ModelSource,
    *,
    attention: str,
    attention_is_free: bool,
    held: torch.dtype,
    quantization: Any,
    device: torch.device,
    trust_remote_code: bool,
) -> tuple[Any, list[str]]:
    from transformers import AutoModelForCausalLM

    location = str(convert_gguf(source.location)) if source.kind == "gguf" else source.location
    # Codes are made on the device that will use them; other weights move there when they are whole.
    placed = {} if quantization is None else {"device_map": {"": numbered(device)}}

    def read(implementation: str) -> tuple[Any, dict[str, Any]]:
        with quiet_transformers():
            model, info = AutoModelForCausalLM.from_pretrained(
                location,
                dtype=held,
                quantization_config=quantization,
                **placed,
                attn_implementation=implementation,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
            )
        return model, info

    notes: list[str] = []
    try:
        try:
            model, info = read(attention)
        except ValueError as error:
            if not attention_is_free or "scaled_dot_product_attention" not in str(error):
                raise
            model, info = read("eager")
            notes.append("attention: the model has no sdpa, so eager is used")
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"the weights of {source.name} are a pickle that holds more than tensors; refused, "
            "because loading it could run code",
            hint="convert it to safetensors on a machine where you trust it",
        ) from error
    except Exception as error:  # Readers of five file formats raise as many kinds of errors.
        raise ModelError(
            f"cannot load the model {source.name}: {said(error)}", hint=hub_hint(source)
        ) from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelError(
            f"{source.name} lacks {len(missing)} weights of {type(model).__name__}, such as "
            f"{', '.join(missing[:3])}; they would stay random",
            hint="download the model again, or check that config.json belongs to these weights",
        )
    unexpected = sorted(info["unexpected_keys"])
    if unexpected:
        notes.append(
            f"weights: {len(unexpected)} tensors of the files are not part of the model and were "
            f"left out, such as {', '.join(unexpected[:3])}"
        )
    # peft and saved configurations record the origin from here; a cache folder would not help.
    model.name_or_path = source.name
    model.config._name_or_path = source.name
    return model, notes


def _check_vocabulary(model: Any, tokenizer: Any, name: str) -> None:
    rows = model.get_input_embeddings().weight.shape[0]
    largest = max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise ModelError(
            f"the tokenizer has token ids up to {largest}, but the embedding of {name} has "
            f"{rows} rows",
            hint="the tokenizer belongs to another model, or tokens were added without resizing",
        )


def _check_tied(model: Any, name: str) -> None:
    head = model.get_output_embeddings()
    if not getattr(model.config, "tie_word_embeddings", False) or head is None:
        return
    if head.weight is not model.get_input_embeddings().weight:
        raise ModelError(
            f"the config of {name} ties the output head to the embedding, but they were loaded as "
            "two tensors",
            hint="set tie_word_embeddings=false in config.json if the file holds both",
        )


def _eos_token_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    found: list[int] = []
    for origin in (tokenizer, model.config, model.generation_config):
        value = getattr(origin, "eos_token_id", None)
        for token_id in value if isinstance(value, (list, tuple)) else [value]:
            if token_id is not None and token_id not in found:
                found.append(int(token_id))
    return tuple(found)


def _neutralise_generation_config(
    model: Any, tokenizer: Any, eos_token_ids: tuple[int, ...]
) -> list[str]:
    """Replaces the model's sampling defaults by token ids alone; says which ones were dropped."""
    from transformers import GenerationConfig

    neutral = GenerationConfig()
    dropped = {
        name: value
        for name in SAMPLING_DEFAULTS
        if (value := getattr(model.generation_config, name, None)) is not None
        and value != getattr(neutral, name, None)
    }
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=list(eos_token_ids),
        pad_token_id=tokenizer.pad_token_id,
    )
    if not dropped:
        return []
    listed = ", ".join(f"{name}={value}" for name, value in dropped.items())
    return [f"generation_config of the model: not used ({listed})"]


def _count(model: Any) -> str:
    total = model.num_parameters()
    return f"{total / 1e9:.2f}B" if total >= 1e9 else f"{total / 1e6:.1f}M"


def _describe_ids(tokenizer: Any, token_ids: tuple[int, ...]) -> str:
    return ", ".join(f"{tokenizer.convert_ids_to_tokens(i)} ({i})" for i in token_ids)
