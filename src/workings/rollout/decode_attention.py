"""Attention of one new token per row over a `RowCache`, for the CPU's sake.

torch's fused attention on a CPU is made for long queries. With one token per row, two batched
matrix products over the contiguous cache take a third of its time; the query heads that share a
key head stand together as the rows of one product, so no key is copied. On other devices the fused
kernel is called, on the same layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

NAME = "workings_rows"
REPLACED = ("sdpa", "flash_attention_2", "flash_attention_3")


def row_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """(output [rows, 1, heads, head_dim], None), as transformers' attention functions return it.

    Args:
        query: [rows, heads, 1, head_dim].
        key, value: [rows, key heads, capacity, head_dim].
        attention_mask: additive, [rows, 1, 1, capacity].
        scaling: None is 1 / sqrt(head_dim).
    """
    rows, heads, _, head_dim = query.shape
    key_heads, capacity = key.shape[1], key.shape[2]
    grouped = query.reshape(rows, key_heads, heads // key_heads, head_dim).to(key.dtype)
    scale = head_dim**-0.5 if scaling is None else scaling
    if query.device.type == "cpu":
        flat = (grouped * scale).view(rows * key_heads, -1, head_dim)
        scores = torch.bmm(flat, key.reshape(rows * key_heads, capacity, head_dim).mT)
        scores = scores.view(rows, key_heads, -1, capacity).add_(attention_mask)
        precise = torch.promote_types(scores.dtype, torch.float32)
        shares = scores.softmax(dim=-1, dtype=precise).to(value.dtype)
        shares = shares.view(rows * key_heads, -1, capacity)
        output = torch.bmm(shares, value.reshape(rows * key_heads, capacity, value.shape[-1]))
    else:
        output = torch.nn.functional.scaled_dot_product_attention(
            grouped, key, value, attn_mask=attention_mask.to(key.dtype), scale=scale
        )
    return output.reshape(rows, 1, heads, value.shape[-1]).to(query.dtype), None


@contextmanager
def decoding_attention(config: Any) -> Iterator[None]:
    """Makes a model with this config use `row_attention` inside the block.

    A model on its eager attention keeps it: eager may hold terms (soft caps, sinks) that only the
    model knows. Both take the same mask and cache.
    """
    from transformers import AttentionInterface

    own = config._attn_implementation
    if own not in REPLACED:
        yield
        return
    AttentionInterface.register(NAME, row_attention)
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = own
