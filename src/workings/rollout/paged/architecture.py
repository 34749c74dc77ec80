"""What the paged engine has to know of a model, read from its Hugging Face configuration.

Llama, Qwen2, Qwen3 and SmolLM2 (a Llama) are one decoder with three switches: biases at query, key
and value (Qwen2), norms of every query and key head (Qwen3), a head tied to the embedding. What
these cannot express is refused by name, with an engine that can sample it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from workings.errors import EngineError
from workings.models.weights import base_model

FAMILIES = ("llama", "qwen2", "qwen3")
FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary embedding whose angles do not depend on the length of the sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The shape of a decoder.

    Attributes:
        family: the model type of the configuration.
        eps: of every RMS norm.
        biased: query, key and value have biases.
        head_norms: every query and key head is normalised before its rotation.
        tied: the head is the embedding.
    """

    family: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocabulary: int
    max_positions: int
    eps: float
    biased: bool
    head_norms: bool
    tied: bool

    @property
    def qkv_size(self) -> int:
        """Width of query, key and value side by side."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def scale(self) -> float:
        """Factor of the attention scores."""
        return float(self.head_dim**-0.5)

    def cache_bytes_per_token(self, dtype: torch.dtype) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype.itemsize


def architecture_of(model: Any) -> Architecture:
    """The architecture of a Hugging Face causal model, adapters aside.

    Raises EngineError for a model that the paged engine does not compute exactly.
    """
    config = base_model(model).config
    if config.model_type not in FAMILIES:
        raise _refused(f"models of type {config.model_type!r}; it knows {', '.join(FAMILIES)}")
    head_norms = config.model_type == "qwen3"
    attention_bias = bool(getattr(config, "attention_bias", False))
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    rotation = config.rope_parameters
    rope_type = rotation.get("rope_type", "default")
    unknown = {
        f"layers of kind {', '.join(sorted(kinds - {'full_attention'}))}": (
            kinds != {"full_attention"}
        ),
        f"the activation {config.hidden_act!r}": config.hidden_act not in ("silu", "swish"),
        "a bias at the output of attention": attention_bias,
        "biases in the feed-forward layers": bool(getattr(config, "mlp_bias", False)),
        f"rotary embeddings of type {rope_type!r}": rope_type not in FIXED_ROTATIONS,
        "a partial rotation": float(rotation.get("partial_rotary_factor", 1.0)) != 1.0,
    }
    for what, found in unknown.items():
        if found:
            raise _refused(what)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Architecture(
        family=config.model_type,
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        vocabulary=config.vocab_size,
        max_positions=config.max_position_embeddings,
        eps=config.rms_norm_eps,
        biased=config.model_type == "qwen2",
        head_norms=head_norms,
        tied=bool(config.tie_word_embeddings),
    )


def rotation_tables(
    model: Any, architecture: Architecture, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """(cos, sin) of every position, float32 [max_positions, head_dim / 2], as the model has them.

    The frequencies are those of the model's own rotary module, so scaled ones are right as well.
    """
    rotary = base_model(model).base_model.rotary_emb
    frequencies = rotary.inv_freq.detach().to(device=device, dtype=torch.float32)
    positions = torch.arange(architecture.max_positions, device=device, dtype=torch.float32)
    angles = positions[:, None] * frequencies[None, :]
    return angles.cos() * rotary.attention_scaling, angles.sin() * rotary.attention_scaling


def _refused(what: str) -> EngineError:
    return EngineError(
        f"the paged engine cannot sample {what}",
        hint="use engine.name=vllm or engine.name=transformers",
    )
