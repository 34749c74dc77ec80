"""Query, key and value out of one projection, the first two rotated, with gradients in one pass.

A head of width d is two halves (a, b); rotation by the angles of its position makes it
(a cos - b sin, b cos + a sin), as `apply_rotary_pos_emb` in transformers does (RoPE, 2104.09864).
The gradient is rotated back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Heads(NamedTuple):
    """How a projection is divided: query heads, then key heads, then as many value heads."""

    queries: int
    keys: int
    width: int

    @property
    def sizes(self) -> list[int]:
        """Columns of query, key and value."""
        return [self.queries * self.width, self.keys * self.width, self.keys * self.width]


def rotated(qkv: Tensor, cos: Tensor, sin: Tensor, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """(query, key, value), [tokens, heads, width] each and differentiable.

    Args:
        qkv: floating [tokens, columns], query, key and value side by side.
        cos, sin: floating [tokens, width], the second half like the first.
        heads: how the columns are divided.
    """
    found: tuple[Tensor, Tensor, Tensor] = _Rotated.apply(qkv, cos, sin, heads)  # type: ignore[no-untyped-call]
    return found


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, heads: Heads
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        ctx.heads = heads
        return forward(qkv, cos, sin, heads)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return backward(grads, cos, sin, ctx.heads), None, None, None


def forward(qkv: Tensor, cos: Tensor, sin: Tensor, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """The three parts."""
    if qkv.is_cuda:
        from workings.training.fused import rotation_triton

        return rotation_triton.forward(qkv, cos, sin, heads)
    query, key, value = (
        part.reshape(len(part), -1, heads.width) for part in torch.split(qkv, heads.sizes, dim=1)
    )
    return _turned(query, cos, sin), _turned(key, cos, sin), value.contiguous()


def backward(grads: tuple[Tensor, ...], cos: Tensor, sin: Tensor, heads: Heads) -> Tensor:
    """The gradient of the projection, [tokens, columns]."""
    if cos.is_cuda:
        from workings.training.fused import rotation_triton

        return rotation_triton.backward(grads, cos, sin, heads)
    query, key, value = grads
    parts = [_turned(query, cos, -sin), _turned(key, cos, -sin), value]
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def _turned(head: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    precise = torch.float64 if head.dtype == torch.float64 else torch.float32
    first, second = head.to(precise).chunk(2, dim=-1)
    half = first.shape[-1]
    c, s = (table[:, None, :half].to(precise) for table in (cos, sin))
    return torch.cat([first * c - second * s, second * c + first * s], dim=-1).to(head.dtype)
