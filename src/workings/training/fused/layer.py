"""A decoder layer of Llama, Qwen2 or Qwen3 in few passes over memory: `model.kernels=fused`.

The products of a layer run near a GPU's peak; what is left to gain lies between them. Here query,
key and value are one product and so are gate and up; norms add to the residual stream on the way;
the rotation divides the projection while it turns it. Each of these is one kernel forward and one
backward. Names and weights stay those of transformers, and the result is its own up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from workings.models.weights import base_model
from workings.training.fused.gated import gated
from workings.training.fused.lean import gated_product, normed_product
from workings.training.fused.norm import add_rms_norm, rms_norm
from workings.training.fused.projection import are_plain, joint_linear
from workings.training.fused.rotation import Heads, rotated

FAMILIES = ("llama", "qwen2", "qwen3")
CACHING = ("use_cache", "cache", "past_key_values", "layer_past", "cache_position")
"""Arguments of a layer that mean nothing where there is no cache."""


def fused_supports(model: nn.Module) -> bool:
    """True where the layers of a causal model are what this file computes."""
    config = base_model(model).config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rotation = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type in FAMILIES
        and config.hidden_act in ("silu", "swish")
        and not getattr(config, "mlp_bias", False)
        and float(rotation.get("partial_rotary_factor", 1.0)) == 1.0
        and head_dim % 2 == 0
    )


class FusedForward:
    """Stands in for the `forward` of one layer; `own` is the layer's, for what is not known here.

    That is autocast, which casts inside of the products, and weights of another dtype than the
    stream. A `lean` one computes norms and gated products again in the backward pass.
    """

    def __init__(self, own: Callable[..., Any], layer: Any, *, lean: bool = False) -> None:
        self._own = own
        self._layer = layer
        self._lean = lean

    def __call__(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *,
        position_embeddings: tuple[Tensor, Tensor],
        **settings: Any,
    ) -> Tensor:
        layer = self._layer
        first, second = layer.input_layernorm, layer.post_attention_layernorm
        if hidden_states.dtype != first.weight.dtype or torch.is_autocast_enabled(
            hidden_states.device.type
        ):
            found: Tensor = self._own(
                hidden_states, attention_mask, position_embeddings=position_embeddings, **settings
            )
            return found
        attention, mlp = layer.self_attn, layer.mlp
        maps = (attention.q_proj, attention.k_proj, attention.v_proj)
        qkv, stream = self._projected(None, hidden_states.flatten(0, 1), first, maps)
        delta = self._attention(
            qkv, hidden_states.shape[:2], attention_mask, position_embeddings, settings
        )
        gate_up, stream = self._projected(delta, stream, second, (mlp.gate_proj, mlp.up_proj))
        if self._lean and are_plain([mlp.down_proj]):
            delta = gated_product(gate_up, mlp.down_proj)
        else:
            delta = mlp.down_proj(gated(gate_up))
        total: Tensor = stream + delta
        return total.view(hidden_states.shape)

    def _projected(
        self, delta: Tensor | None, stream: Tensor, norm: Any, maps: Sequence[nn.Module]
    ) -> tuple[Tensor, Tensor]:
        """What `maps` make of the norm of `stream + delta`, side by side; and the sum."""
        weight, eps = norm.weight, norm.variance_epsilon
        if self._lean and are_plain(maps):
            return normed_product(delta, stream, weight, eps, cast(Sequence[nn.Linear], maps))
        if delta is None:
            normed, stream = rms_norm(stream, weight, eps)
        else:
            normed, stream = add_rms_norm(delta, stream, weight, eps)
        return joint_linear(normed, maps), stream

    def _attention(
        self,
        qkv: Tensor,
        shape: torch.Size,
        mask: Tensor | None,
        tables: tuple[Tensor, Tensor],
        settings: dict[str, Any],
    ) -> Tensor:
        """What attention adds to the stream, [lanes * width, hidden]; `shape` is [lanes, width]."""
        attention = self._layer.self_attn
        config = attention.config
        heads = Heads(config.num_attention_heads, config.num_key_value_heads, attention.head_dim)
        if hasattr(attention, "q_norm"):
            qkv = _with_head_norms(qkv, attention, heads)
        # One lane's tables may stand for all lanes.
        cos, sin = (table.expand(*shape, -1).reshape(-1, table.shape[-1]) for table in tables)
        query, key, value = (
            part.view(*shape, *part.shape[1:]).transpose(1, 2)
            for part in rotated(qkv, cos, sin, heads)
        )
        output, _ = _attention_function(config)(
            attention,
            query,
            key,
            value,
            mask,
            dropout=attention.attention_dropout if attention.training else 0.0,
            scaling=attention.scaling,
            sliding_window=getattr(attention, "sliding_window", None),
            **{name: value for name, value in settings.items() if name not in CACHING},
        )
        found: Tensor = attention.o_proj(output.reshape(qkv.shape[0], -1))
        return found


class FusedNorm:
    """Stands in for the `forward` of the last norm; `own` is the norm's."""

    def __init__(self, own: Callable[..., Any], norm: Any) -> None:
        self.own = own
        self._norm = norm

    def __call__(self, hidden_states: Tensor) -> Tensor:
        norm = self._norm
        if hidden_states.dtype != norm.weight.dtype:
            found: Tensor = self.own(hidden_states)
            return found
        rows = hidden_states.flatten(0, -2)
        normed, _ = rms_norm(rows, norm.weight, norm.variance_epsilon)
        return normed.view(hidden_states.shape)


def _with_head_norms(qkv: Tensor, attention: Any, heads: Heads) -> Tensor:
    """The projection with every query and key head normalised, as Qwen3 does."""
    query, key, value = torch.split(qkv, heads.sizes, dim=1)
    parts = []
    for part, norm in ((query, attention.q_norm), (key, attention.k_norm)):
        rows = part.reshape(-1, heads.width)
        normed, _ = rms_norm(rows, norm.weight, norm.variance_epsilon)
        parts.append(normed.view(part.shape))
    return torch.cat([*parts, value], dim=1)


def _attention_function(config: Any) -> Callable[..., Any]:
    """The attention that the configuration names, which transformers looks up in the same way."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    name = config._attn_implementation
    if name == "eager":
        from transformers.models.llama import modeling_llama

        return cast(Callable[..., Any], modeling_llama.eager_attention_forward)
    return cast(Callable[..., Any], ALL_ATTENTION_FUNCTIONS[name])
