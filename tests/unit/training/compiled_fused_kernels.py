"""Compiles the kernels of fused layers for an H100, on a machine without a GPU.

Run by `test_training_fused.py` in a process of its own. It prints a line for each kernel that
was compiled.
"""

from __future__ import annotations

import torch

from absent_h100 import compile_kernels_of
from workings.training.fused import adamw, gated_triton, norm_triton, rotation_triton
from workings.training.fused.rotation import Heads


def compile_all() -> None:
    half = torch.bfloat16
    stream, weight = torch.zeros(3, 1536, dtype=half), torch.zeros(1536, dtype=half)
    for other in (None, stream):
        normed, total, scale = norm_triton.forward(stream, other, weight, 1e-6)
        norm_triton.backward(normed, other, total, weight, scale)
    both = torch.zeros(3, 2 * 8960, dtype=half)
    product = torch.zeros(3, 8960, dtype=half)
    for again in (False, True):
        gated_triton.backward(product, both, again=again)
    for heads in (Heads(12, 2, 128), Heads(9, 3, 64), Heads(32, 8, 96)):
        qkv = torch.zeros(3, sum(heads.sizes), dtype=half)
        tables = torch.zeros(2, 3, heads.width, dtype=half)
        parts = rotation_triton.forward(qkv, *tables, heads)
        rotation_triton.backward(parts, *tables, heads)
    for shape, dtype in (((64, 64), half), ((3, 3), torch.float32)):
        weight = torch.zeros(shape)
        state = {"step": torch.zeros(()), "exp_avg": weight, "exp_avg_sq": weight}
        adamw.update(
            [weight],
            [weight.to(dtype)],
            [state],
            lr=1e-3,
            beta1=0.9,
            beta2=0.95,
            eps=1e-8,
            weight_decay=0.0,
            found_inf=torch.zeros(()),
        )


if __name__ == "__main__":
    compile_kernels_of(compile_all)
