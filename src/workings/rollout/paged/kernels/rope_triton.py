"""`rotate_and_store` in Triton: one program per token and block of heads of the projection."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import torch
import triton
import triton.language as tl

ELEMENTS = 2048
"""Of the projection that one program takes, about."""


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
    """See `rope.rotate_and_store`."""
    tokens, head_dim = qkv.shape[0], keys.shape[-1]
    assert qkv.stride(1) == 1
    assert cos.is_contiguous()
    assert sin.is_contiguous()
    assert keys.is_contiguous()
    assert values.is_contiguous()
    assert (q_norm is None) == (k_norm is None)
    if tokens == 0:
        return
    all_heads = num_heads + 2 * num_kv_heads
    half_block = triton.next_power_of_2(head_dim // 2)
    heads_block = min(triton.next_power_of_2(all_heads), max(1, ELEMENTS // (2 * half_block)))
    _rotate_kernel[(tokens, triton.cdiv(all_heads, heads_block))](
        qkv,
        positions,
        places,
        cos,
        sin,
        keys,
        values,
        cos if q_norm is None else q_norm,
        cos if k_norm is None else k_norm,
        qkv.stride(0),
        eps,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        half_block=half_block,
        heads_block=heads_block,
        normed=q_norm is not None,
        num_warps=4,
    )


@triton.jit
def _rotate_kernel(
    qkv,
    positions,
    places,
    cos,
    sin,
    keys,
    values,
    q_norm,
    k_norm,
    stride,
    eps,
    num_heads: tl.constexpr,
    num_kv_heads: tl.constexpr,
    head_dim: tl.constexpr,
    half_block: tl.constexpr,
    heads_block: tl.constexpr,
    normed: tl.constexpr,
):
    half: tl.constexpr = head_dim // 2
    dtype = qkv.dtype.element_ty
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * heads_block + tl.arange(0, heads_block)[:, None]
    lane = tl.arange(0, half_block)[None, :]
    inside = (head < num_heads + 2 * num_kv_heads) & (lane < half)
    is_query = head < num_heads
    turns = head < num_heads + num_kv_heads
    pointers = qkv + token * stride + head * head_dim + lane
    first = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(pointers + half, mask=inside, other=0.0).to(tl.float32)
    if normed:
        squares = tl.sum(first * first + second * second, axis=1)
        scale = tl.rsqrt(squares / head_dim + eps)[:, None]
        in_lane = lane < half
        first_weight = tl.where(
            is_query,
            tl.load(q_norm + lane, mask=in_lane, other=0.0).to(tl.float32),
            tl.load(k_norm + lane, mask=in_lane, other=0.0).to(tl.float32),
        )
        second_weight = tl.where(
            is_query,
            tl.load(q_norm + half + lane, mask=in_lane, other=0.0).to(tl.float32),
            tl.load(k_norm + half + lane, mask=in_lane, other=0.0).to(tl.float32),
        )
        # Rounded where transformers rounds: after the norm and after its weight.
        first_normed = ((first * scale).to(dtype).to(tl.float32) * first_weight).to(dtype)
        second_normed = ((second * scale).to(dtype).to(tl.float32) * second_weight).to(dtype)
        first = tl.where(turns, first_normed.to(tl.float32), first)
        second = tl.where(turns, second_normed.to(tl.float32), second)
    position = tl.maximum(tl.load(positions + token), 0).to(tl.int64)
    cosine = tl.load(cos + position * half + lane, mask=lane < half, other=1.0)
    sine = tl.load(sin + position * half + lane, mask=lane < half, other=0.0)
    first_turned = tl.where(turns, first * cosine - second * sine, first).to(dtype)
    second_turned = tl.where(turns, second * cosine + first * sine, second).to(dtype)
    tl.store(pointers, first_turned, mask=inside & turns)
    tl.store(pointers + half, second_turned, mask=inside & turns)

    place = tl.load(places + token).to(tl.int64)
    stored = inside & (place >= 0)
    row = place * (num_kv_heads * head_dim) + lane
    key_pointers = keys + row + (head - num_heads) * head_dim
    is_key = stored & turns & (head >= num_heads)
    tl.store(key_pointers, first_turned.to(keys.dtype.element_ty), mask=is_key)
    tl.store(key_pointers + half, second_turned.to(keys.dtype.element_ty), mask=is_key)
    value_pointers = values + row + (head - num_heads - num_kv_heads) * head_dim
    is_value = stored & (head >= num_heads + num_kv_heads)
    tl.store(value_pointers, first_turned.to(values.dtype.element_ty), mask=is_value)
    tl.store(value_pointers + half, second_turned.to(values.dtype.element_ty), mask=is_value)
