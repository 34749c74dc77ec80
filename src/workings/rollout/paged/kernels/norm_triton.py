"""`rms_norm` and `add_rms_norm` in Triton: one program per row, one read and one write of it."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import torch
import triton
import triton.language as tl


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See `norm.rms_norm`."""
    normed = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, x, weight, normed, normed, eps, add=False)
    return normed


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `norm.add_rms_norm`."""
    normed = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, residual, weight, normed, total, eps, add=True)
    return normed, total


def _launch(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    normed: torch.Tensor,
    total: torch.Tensor,
    eps: float,
    *,
    add: bool,
) -> None:
    tokens, width = x.shape
    assert x.stride(1) == residual.stride(1) == weight.stride(0) == 1
    if tokens == 0:
        return
    _norm_kernel[(tokens,)](
        x,
        residual,
        weight,
        normed,
        total,
        x.stride(0),
        residual.stride(0),
        width,
        eps,
        block=triton.next_power_of_2(width),
        add=add,
        num_warps=8 if width > 4096 else 4,
    )


@triton.jit
def _norm_kernel(
    x,
    residual,
    weight,
    normed,
    total,
    x_stride,
    residual_stride,
    width,
    eps,
    block: tl.constexpr,
    add: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < width
    dtype = normed.dtype.element_ty
    values = tl.load(x + row * x_stride + column, mask=inside, other=0.0)
    if add:
        added = tl.load(residual + row * residual_stride + column, mask=inside, other=0.0)
        values = (values.to(tl.float32) + added.to(tl.float32)).to(dtype)
        tl.store(total + row * width + column, values, mask=inside)
    exact = values.to(tl.float32)
    scale = tl.rsqrt(tl.sum(exact * exact, axis=0) / width + eps)
    rounded = (exact * scale).to(dtype).to(tl.float32)
    factors = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row * width + column, (rounded * factors).to(dtype), mask=inside)
