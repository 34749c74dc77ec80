"""Rotary positions of queries and keys, and the write of keys and values into the paged cache.

One pass over the fused projection: a head is normalised where the model does so (Qwen3), rotated
(half-split convention of Llama; Su et al. 2021, eq. 34) and, if it is a key or a value, stored.
Rotation is done in float32 and rounded once, where transformers rounds cosines, products and sums.
"""

from __future__ import annotations

import torch

from workings.rollout.paged.kernels.norm import rms_norm_torch


def rotate_and_store(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    places: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> None:
    """Rotates queries and keys inside `qkv` and stores keys and values in the cache; no result.

    Args:
        qkv: floating [tokens, (num_heads + 2 * num_kv_heads) * head_dim], contiguous: queries,
            keys, values. Queries and keys are overwritten by their rotated selves.
        positions: int32 [tokens], row of the tables for each token; -1 (padding) reads row 0.
        places: int32 [tokens], page * page_size + offset; -1 is not stored.
        cos, sin: float32 [positions, head_dim // 2].
        keys, values: [pages, page_size, num_kv_heads, head_dim], contiguous.
        q_norm, k_norm: [head_dim] weights of the norm of each head, both or neither.
        eps: of that norm.
    """
    rotate = rotate_and_store_torch
    if qkv.is_cuda:
        from workings.rollout.paged.kernels import rope_triton

        rotate = rope_triton.rotate_and_store
    rotate(
        qkv,
        positions,
        places,
        cos,
        sin,
        keys,
        values,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        q_norm=q_norm,
        k_norm=k_norm,
        eps=eps,
    )


def rotate_and_store_torch(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    places: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> None:
    """The definition of `rotate_and_store`, in torch."""
    tokens, head_dim = qkv.shape[0], keys.shape[-1]
    heads = qkv.view(tokens, num_heads + 2 * num_kv_heads, head_dim)
    query, key = heads[:, :num_heads], heads[:, num_heads : num_heads + num_kv_heads]
    value = heads[:, num_heads + num_kv_heads :]
    row = positions.clamp(min=0).long()
    turn = cos[row, None], sin[row, None]
    for part, norm in ((query, q_norm), (key, k_norm)):
        normed = part if norm is None else rms_norm_torch(part, norm, eps)
        part.copy_(_rotated(normed.float(), *turn))
    stored = places >= 0
    where = places[stored].long()
    keys.view(-1, num_kv_heads, head_dim)[where] = key[stored].to(keys.dtype)
    values.view(-1, num_kv_heads, head_dim)[where] = value[stored].to(values.dtype)


def _rotated(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
