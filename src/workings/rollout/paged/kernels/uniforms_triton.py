"""`step_uniforms` in Triton, in the unsigned 64-bit arithmetic that SplitMix64 is written in."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 128


def step_uniforms(keys: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """See `sampling.step_uniforms`."""
    rows = keys.shape[0]
    uniforms = torch.empty(rows, dtype=torch.float64, device=keys.device)
    if rows > 0:
        _uniforms_kernel[(triton.cdiv(rows, BLOCK),)](
            keys, steps, uniforms, rows, block=BLOCK, num_warps=4
        )
    return uniforms


@triton.jit
def _uniforms_kernel(keys, steps, uniforms, rows, block: tl.constexpr):
    row = tl.program_id(0) * block + tl.arange(0, block)
    inside = row < rows
    key = tl.load(keys + row, mask=inside, other=0).to(tl.uint64, bitcast=True)
    step = tl.load(steps + row, mask=inside, other=0).to(tl.uint64)
    words = key + (step + 1) * 0x9E3779B97F4A7C15
    words = (words ^ (words >> 30)) * 0xBF58476D1CE4E5B9
    words = (words ^ (words >> 27)) * 0x94D049BB133111EB
    words = words ^ (words >> 31)
    # Half an ulp of float64 below 1: 53 random bits, each value exact.
    draws = (words >> 11).to(tl.float64) * 1.1102230246251565e-16
    tl.store(uniforms + row, draws, mask=inside)
