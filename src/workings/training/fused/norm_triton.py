"""`norm.forward` and `norm.backward` in Triton: the stream is read once and written once."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS_PER_MULTIPROCESSOR = 8
"""Programs of the backward kernel, each of which sums the weight's gradient over its rows."""


def forward(
    stream: Tensor, delta: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """See `norm.forward`."""
    stream = stream.contiguous()
    tokens, width = stream.shape
    normed = torch.empty_like(stream)
    total = stream if delta is None else torch.empty_like(stream)
    scale = torch.empty(tokens, dtype=torch.float32, device=stream.device)
    if tokens > 0:
        _forward_kernel[(tokens,)](
            stream,
            stream if delta is None else delta.contiguous(),
            weight,
            normed,
            total,
            scale,
            width,
            eps,
            block=triton.next_power_of_2(width),
            adds=delta is not None,
            num_warps=8 if width > 4096 else 4,
        )
    return normed, total, scale


def backward(
    of_normed: Tensor, of_total: Tensor | None, total: Tensor, weight: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """See `norm.backward`."""
    tokens, width = total.shape
    found = torch.empty_like(total)
    programs = min(tokens, _multiprocessors(total.device) * PROGRAMS_PER_MULTIPROCESSOR)
    shares = torch.zeros((max(programs, 1), width), dtype=torch.float32, device=total.device)
    if tokens > 0:
        of_normed = of_normed.contiguous()
        _backward_kernel[(programs,)](
            of_normed,
            of_normed if of_total is None else of_total.contiguous(),
            total,
            weight,
            scale,
            found,
            shares,
            tokens,
            width,
            block=triton.next_power_of_2(width),
            adds=of_total is not None,
            num_warps=8 if width > 4096 else 4,
        )
    return found, shares.sum(dim=0).to(weight.dtype)


def _multiprocessors(device: torch.device) -> int:
    """Of a GPU; elsewhere, where the interpreter runs, one."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def _forward_kernel(
    stream,
    delta,
    weight,
    normed,
    total,
    scales,
    width,
    eps,
    block: tl.constexpr,
    adds: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < width
    dtype = normed.dtype.element_ty
    values = tl.load(stream + row * width + column, mask=inside, other=0.0)
    if adds:
        added = tl.load(delta + row * width + column, mask=inside, other=0.0)
        values = (values.to(tl.float32) + added.to(tl.float32)).to(dtype)
        tl.store(total + row * width + column, values, mask=inside)
    exact = values.to(tl.float32)
    scale = tl.rsqrt(tl.sum(exact * exact, axis=0) / width + eps)
    tl.store(scales + row, scale)
    rounded = (exact * scale).to(dtype).to(tl.float32)
    factors = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row * width + column, (rounded * factors).to(dtype), mask=inside)


@triton.jit
def _backward_kernel(
    of_normed,
    of_total,
    total,
    weight,
    scales,
    found,
    shares,
    tokens,
    width,
    block: tl.constexpr,
    adds: tl.constexpr,
):
    program = tl.program_id(0)
    column = tl.arange(0, block)
    inside = column < width
    dtype = found.dtype.element_ty
    factors = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    of_weight = tl.zeros([block], dtype=tl.float32)
    for index in range(program, tokens, tl.num_programs(0)):
        place = tl.cast(index, tl.int64) * width + column
        given = tl.load(of_normed + place, mask=inside, other=0.0).to(tl.float32)
        values = tl.load(total + place, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(scales + index)
        unit = values * scale
        of_weight += given * unit.to(dtype).to(tl.float32)
        weighted = given * factors
        mean = tl.sum(weighted * unit, axis=0) / width
        result = scale * (weighted - unit * mean)
        if adds:
            result += tl.load(of_total + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(found + place, result.to(dtype), mask=inside)
    tl.store(shares + tl.cast(program, tl.int64) * width + column, of_weight, mask=inside)
