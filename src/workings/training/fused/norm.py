"""Root-mean-square norms of the residual stream, with gradients, each in one pass over it.

A decoder layer normalises the stream and later adds to it. `rms_norm` therefore hands the stream on
beside its norm: in the backward pass the gradients of both meet in one kernel, where a norm and an
addition would read and write the stream twice. `add_rms_norm` also adds what the layer before it
gave. The rounding is that of `LlamaRMSNorm` in transformers: a row is normalised in float32 and
rounded to its dtype before it is multiplied by the weight.

For a row x of width n, s = (mean(x^2) + eps)^(-1/2), y = w s x and a gradient g of y:
dx = s (w g - s x mean(w g s x)) and dw = sum over rows of g s x.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def rms_norm(stream: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(`weight * stream / sqrt(mean(stream^2) + eps)` of every row, the stream); differentiable.

    Args:
        stream: floating [tokens, width]; use the second value for whatever else reads it.
        weight: [width], of the same dtype.
    """
    found: tuple[Tensor, Tensor] = _Norm.apply(None, stream, weight, eps)  # type: ignore[no-untyped-call]
    return found


def add_rms_norm(
    delta: Tensor, stream: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """(norm of every row of the sum, the sum) of `stream + delta`; differentiable.

    Args:
        delta, stream: floating [tokens, width]; neither is changed.
        weight: [width], of the same dtype.
    """
    found: tuple[Tensor, Tensor] = _Norm.apply(delta, stream, weight, eps)  # type: ignore[no-untyped-call]
    return found


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, delta: Tensor | None, stream: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        normed, total, scale = forward(stream, delta, weight, eps)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(total, weight, scale)
        return normed, total.view_as(total) if delta is None else total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        of_normed, of_total = grads
        of_stream, of_weight = of_total, None
        if of_normed is not None:
            of_stream, of_weight = backward(of_normed, of_total, *ctx.saved_tensors)
        return of_stream if ctx.needs_input_grad[0] else None, of_stream, of_weight, None


def forward(
    stream: Tensor, delta: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(norm, sum, scale of every row): what `backward` needs of a forward pass."""
    if stream.is_cuda:
        from workings.training.fused import norm_triton

        return norm_triton.forward(stream, delta, weight, eps)
    total = stream if delta is None else stream + delta
    exact = total.to(_precise(total))
    scale = torch.rsqrt(exact.square().mean(dim=-1) + eps)
    return weight * (exact * scale[:, None]).to(total.dtype), total, scale


def backward(
    of_normed: Tensor, of_total: Tensor | None, total: Tensor, weight: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the stream and of the weight; `of_total` None is zero."""
    if total.is_cuda:
        from workings.training.fused import norm_triton

        return norm_triton.backward(of_normed, of_total, total, weight, scale)
    unit = total.to(scale.dtype) * scale[:, None]
    given = of_normed.to(scale.dtype)
    weighted = given * weight
    found = scale[:, None] * (weighted - unit * (weighted * unit).mean(dim=-1, keepdim=True))
    if of_total is not None:
        found = found + of_total
    of_weight = (given * unit.to(total.dtype)).sum(dim=0)
    return found.to(total.dtype), of_weight.to(weight.dtype)


def _precise(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
