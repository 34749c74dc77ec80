"""`rotation.forward` and `rotation.backward` in Triton: one program turns all heads of a token."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from workings.training.fused.rotation import Heads


def forward(qkv: Tensor, cos: Tensor, sin: Tensor, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """See `rotation.forward`."""
    tokens = qkv.shape[0]
    query, key, value = (
        torch.empty((tokens, count, heads.width), dtype=qkv.dtype, device=qkv.device)
        for count in (heads.queries, heads.keys, heads.keys)
    )
    _launch(query, key, value, qkv.contiguous(), cos, sin, heads, back=False)
    return query, key, value


def backward(grads: tuple[Tensor, ...], cos: Tensor, sin: Tensor, heads: Heads) -> Tensor:
    """See `rotation.backward`."""
    query, key, value = (grad.contiguous() for grad in grads)
    joint = torch.empty((query.shape[0], sum(heads.sizes)), dtype=query.dtype, device=query.device)
    _launch(query, key, value, joint, cos, sin, heads, back=True)
    return joint


def _launch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    joint: Tensor,
    cos: Tensor,
    sin: Tensor,
    heads: Heads,
    *,
    back: bool,
) -> None:
    tokens = joint.shape[0]
    if tokens == 0:
        return
    _kernel[(tokens,)](
        *(query, key, value, joint, cos, sin, cos.stride(0), sin.stride(0)),
        num_queries=heads.queries,
        num_keys=heads.keys,
        half=heads.width // 2,
        query_block=triton.next_power_of_2(heads.queries),
        key_block=triton.next_power_of_2(heads.keys),
        half_block=triton.next_power_of_2(heads.width // 2),
        back=back,
        num_warps=4,
    )


@triton.jit
def _turn(
    apart,
    joint,
    cos,
    sin,
    count: tl.constexpr,
    half: tl.constexpr,
    block: tl.constexpr,
    half_block: tl.constexpr,
    turns: tl.constexpr,
    back: tl.constexpr,
):
    """Move `count` heads from `joint` to `apart`, or back, and rotate them where `turns`."""
    head = tl.arange(0, block)[:, None]
    column = tl.arange(0, half_block)[None, :]
    inside = (head < count) & (column < half)
    place = head * 2 * half + column
    source = apart if back else joint
    target = joint if back else apart
    first = tl.load(source + place, mask=inside, other=0.0)
    second = tl.load(source + place + half, mask=inside, other=0.0)
    if turns:
        a, b = first.to(tl.float32), second.to(tl.float32)
        c = tl.load(cos + column, mask=column < half, other=0.0).to(tl.float32)
        s = tl.load(sin + column, mask=column < half, other=0.0).to(tl.float32)
        if back:
            s = -s
        first = (a * c - b * s).to(first.dtype)
        second = (b * c + a * s).to(second.dtype)
    tl.store(target + place, first, mask=inside)
    tl.store(target + place + half, second, mask=inside)


@triton.jit
def _kernel(
    query,
    key,
    value,
    joint,
    cos,
    sin,
    cos_stride,
    sin_stride,
    num_queries: tl.constexpr,
    num_keys: tl.constexpr,
    half: tl.constexpr,
    query_block: tl.constexpr,
    key_block: tl.constexpr,
    half_block: tl.constexpr,
    back: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    queries = num_queries * 2 * half
    keys = num_keys * 2 * half
    line = joint + token * (queries + 2 * keys)
    c, s = cos + token * cos_stride, sin + token * sin_stride
    _turn(
        query + token * queries, line, c, s, num_queries, half, query_block, half_block, True, back
    )
    _turn(
        key + token * keys, line + queries, c, s, num_keys, half, key_block, half_block, True, back
    )
    last = line + queries + keys
    _turn(value + token * keys, last, c, s, num_keys, half, key_block, half_block, False, back)
