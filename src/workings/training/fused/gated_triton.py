"""`gated.backward` in Triton: each element is read once and written once."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


def backward(
    of_product: Tensor, gate_up: Tensor, *, again: bool = False
) -> tuple[Tensor, Tensor | None]:
    """See `gated.backward_and_product`."""
    gate_up = gate_up.contiguous()
    tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    found = torch.empty_like(gate_up)
    product = None
    if again:
        product = torch.empty((tokens, width), dtype=gate_up.dtype, device=gate_up.device)
    if tokens > 0:
        _backward_kernel[(tokens, triton.cdiv(width, BLOCK))](
            of_product.contiguous(),
            gate_up,
            found,
            found if product is None else product,
            width,
            block=BLOCK,
            again=again,
            num_warps=4,
        )
    return found, product


@triton.jit
def _backward_kernel(
    of_product, gate_up, found, product, width, block: tl.constexpr, again: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    dtype = found.dtype.element_ty
    place = row * 2 * width + column
    given = tl.load(of_product + row * width + column, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_up + place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + place + width, mask=inside, other=0.0).to(tl.float32)
    share = 1.0 / (1.0 + tl.exp(-gate))
    of_gate = given * up * share * (1.0 + gate * (1.0 - share))
    tl.store(found + place, of_gate.to(dtype), mask=inside)
    tl.store(found + place + width, (given * gate * share).to(dtype), mask=inside)
    if again:
        opened = (gate * share).to(dtype).to(tl.float32)
        tl.store(product + row * width + column, (opened * up).to(dtype), mask=inside)
