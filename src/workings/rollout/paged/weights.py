"""The engine's own weights: fused, in its own dtype, refreshed in place.

Query, key and value are one matrix, and so are gate and up: one product each instead of five. The
addresses never change, since CUDA graphs have them; a refresh copies into them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from workings.errors import EngineError
from workings.rollout.paged.architecture import Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One decoder layer. Matrices are [out, in]; what a family lacks is None."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    attention_output: torch.Tensor
    feed_forward_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


class PagedWeights:
    """All weights of a decoder, and the way new ones get in.

    Attributes:
        embedding: [vocabulary, hidden].
        layers: in order.
        final_norm: [hidden].
        head: [vocabulary, hidden]; the embedding itself where they are tied.
    """

    def __init__(
        self, architecture: Architecture, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = architecture

        def empty(*size: int) -> torch.Tensor:
            return torch.empty(size, dtype=dtype, device=device)

        width, feed_forward = shape.hidden_size, shape.intermediate_size
        attended = shape.num_heads * shape.head_dim
        self.embedding = empty(shape.vocabulary, width)
        self.head = self.embedding if shape.tied else empty(shape.vocabulary, width)
        self.final_norm = empty(width)
        self.layers = [
            LayerWeights(
                input_norm=empty(width),
                qkv=empty(shape.qkv_size, width),
                qkv_bias=empty(shape.qkv_size) if shape.biased else None,
                query_norm=empty(shape.head_dim) if shape.head_norms else None,
                key_norm=empty(shape.head_dim) if shape.head_norms else None,
                attention_output=empty(width, attended),
                feed_forward_norm=empty(width),
                gate_up=empty(2 * feed_forward, width),
                down=empty(width, feed_forward),
            )
            for _ in range(shape.num_layers)
        ]
        self._places = self._by_name(shape)

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        tensors = {place.data_ptr(): place for place in self._places.values()}
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())

    @torch.no_grad()
    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copies a whole set of (Hugging Face name, tensor) in, converted to the engine's dtype.

        Raises EngineError for a missing, an unknown or a misshapen one; the weights are then a
        mixture.
        """
        missing = set(self._places)
        for name, tensor in tensors:
            place = self._places.get(name)
            if place is None:
                raise EngineError(
                    f"the engine was given the weight {name}, which its model does not have",
                    hint="pass models.weights.named_full_weights(policy)",
                )
            if place.shape != tensor.shape:
                raise EngineError(
                    f"the engine was given {name} of shape {list(tensor.shape)}; its model has "
                    f"{list(place.shape)}"
                )
            place.copy_(tensor, non_blocking=True)
            missing.discard(name)
            if place is self._places["model.embed_tokens.weight"] and self.head is self.embedding:
                missing.discard("lm_head.weight")
        if missing:
            raise EngineError(
                f"the engine was not given {len(missing)} of its weights, such as {min(missing)}; "
                "sampling would mix old and new weights",
                hint="pass models.weights.named_full_weights(policy)",
            )

    def _by_name(self, shape: Architecture) -> dict[str, torch.Tensor]:
        """Hugging Face's name of every weight and the part of a fused one that it goes to."""
        places = {
            "model.embed_tokens.weight": self.embedding,
            "model.norm.weight": self.final_norm,
            "lm_head.weight": self.head,
        }
        queries = shape.num_heads * shape.head_dim
        keys = shape.num_kv_heads * shape.head_dim
        for number, layer in enumerate(self.layers):
            attention = f"model.layers.{number}.self_attn"
            feed_forward = f"model.layers.{number}.mlp"
            for name, rows in (
                ("q_proj", slice(0, queries)),
                ("k_proj", slice(queries, queries + keys)),
                ("v_proj", slice(queries + keys, None)),
            ):
                places[f"{attention}.{name}.weight"] = layer.qkv[rows]
                if layer.qkv_bias is not None:
                    places[f"{attention}.{name}.bias"] = layer.qkv_bias[rows]
            if layer.query_norm is not None and layer.key_norm is not None:
                places[f"{attention}.q_norm.weight"] = layer.query_norm
                places[f"{attention}.k_norm.weight"] = layer.key_norm
            places[f"{attention}.o_proj.weight"] = layer.attention_output
            places[f"{feed_forward}.gate_proj.weight"] = layer.gate_up[: shape.intermediate_size]
            places[f"{feed_forward}.up_proj.weight"] = layer.gate_up[shape.intermediate_size :]
            places[f"{feed_forward}.down_proj.weight"] = layer.down
            places[f"model.layers.{number}.input_layernorm.weight"] = layer.input_norm
            places[f"model.layers.{number}.post_attention_layernorm.weight"] = (
                layer.feed_forward_norm
            )
        return places
