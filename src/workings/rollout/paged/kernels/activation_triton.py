"""`silu_and_multiply` in Triton: each element is read once and written once."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024


def silu_and_multiply(gate_up: torch.Tensor) -> torch.Tensor:
    """See `activation.silu_and_multiply`."""
    tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    assert gate_up.stride(1) == 1
    output = torch.empty((tokens, width), dtype=gate_up.dtype, device=gate_up.device)
    if tokens > 0:
        grid = (tokens, triton.cdiv(width, BLOCK))
        _gate_kernel[grid](gate_up, output, gate_up.stride(0), width, block=BLOCK, num_warps=4)
    return output


@triton.jit
def _gate_kernel(gate_up, output, stride, width, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    dtype = output.dtype.element_ty
    pointers = gate_up + row * stride + column
    gate = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(pointers + width, mask=inside, other=0.0).to(tl.float32)
    opened = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)
    tl.store(output + row * width + column, (opened * up).to(dtype), mask=inside)
