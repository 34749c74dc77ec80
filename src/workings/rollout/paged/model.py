"""The decoder: token ids in, hidden states out, keys and values into the cache on the way.

One function for every family and both uses. What differs between prefill and decoding is how the
queries look at the cache, and that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import linear

from workings.rollout.paged.architecture import Architecture
from workings.rollout.paged.cache import PagedCache
from workings.rollout.paged.kernels.activation import silu_and_multiply
from workings.rollout.paged.kernels.norm import add_rms_norm, rms_norm
from workings.rollout.paged.kernels.rope import rotate_and_store
from workings.rollout.paged.weights import PagedWeights

Attention = Callable[[int, torch.Tensor], torch.Tensor]
"""(layer, qkv [tokens, qkv_size]) to what its queries see, [tokens, heads * head_dim]."""


class PagedModel:
    """A decoder over the engine's own weights.

    Args:
        cos, sin: float32 [max_positions, head_dim / 2].
    """

    def __init__(
        self,
        architecture: Architecture,
        weights: PagedWeights,
        cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> None:
        self.architecture = architecture
        self.weights = weights
        self._cos = cos
        self._sin = sin

    def hidden(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        places: torch.Tensor,
        cache: PagedCache,
        attend: Attention,
    ) -> torch.Tensor:
        """The normalised hidden state of each token, [tokens, hidden].

        Args:
            ids: int [tokens].
            positions: int32 [tokens], in their sequences.
            places: int32 [tokens], where in the cache keys and values go; -1 stores nothing.
        """
        residual = self.weights.embedding[ids]
        added: torch.Tensor | None = None
        for number in range(self.architecture.num_layers):
            qkv, residual = self._qkv(number, added, residual, positions, places, cache)
            added, residual = self._rest(number, attend(number, qkv), residual)
        if added is None:
            return rms_norm(residual, self.weights.final_norm, self.architecture.eps)
        normed, _ = add_rms_norm(added, residual, self.weights.final_norm, self.architecture.eps)
        return normed

    def fill(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        places: torch.Tensor,
        cache: PagedCache,
        attend: Attention,
    ) -> None:
        """`hidden` for the sake of the cache alone: stops where the last layer has stored."""
        residual = self.weights.embedding[ids]
        added: torch.Tensor | None = None
        last = self.architecture.num_layers - 1
        for number in range(last):
            qkv, residual = self._qkv(number, added, residual, positions, places, cache)
            added, residual = self._rest(number, attend(number, qkv), residual)
        self._qkv(last, added, residual, positions, places, cache)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Float32 [tokens, vocabulary]; products of a smaller dtype are not rounded to it."""
        head = self.weights.head
        if hidden.device.type == "cuda" and hidden.dtype != torch.float32:
            return torch.mm(hidden, head.T, out_dtype=torch.float32)
        return linear(hidden, head).float()

    def _qkv(
        self,
        number: int,
        added: torch.Tensor | None,
        residual: torch.Tensor,
        positions: torch.Tensor,
        places: torch.Tensor,
        cache: PagedCache,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotated query, key and value of a layer, which are also stored, and the residual."""
        shape = self.architecture
        layer = self.weights.layers[number]
        if added is None:
            normed = rms_norm(residual, layer.input_norm, shape.eps)
        else:
            normed, residual = add_rms_norm(added, residual, layer.input_norm, shape.eps)
        qkv = linear(normed, layer.qkv, layer.qkv_bias)
        keys, values = cache.layer(number)
        rotate_and_store(
            qkv,
            positions,
            places,
            self._cos,
            self._sin,
            keys,
            values,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            q_norm=layer.query_norm,
            k_norm=layer.key_norm,
            eps=shape.eps,
        )
        return qkv, residual

    def _rest(
        self, number: int, attended: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the layer adds behind its attention, not added yet, and the residual before it."""
        layer = self.weights.layers[number]
        added = linear(attended, layer.attention_output)
        normed, residual = add_rms_norm(
            added, residual, layer.feed_forward_norm, self.architecture.eps
        )
        return linear(silu_and_multiply(linear(normed, layer.gate_up)), layer.down), residual
