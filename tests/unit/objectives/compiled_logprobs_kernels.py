"""Compiles the log-probabilities' kernels for an H100, on a machine without a GPU.

Run by `test_objectives_logprobs_triton.py` in a process of its own. It prints a line for each
kernel that was compiled.
"""

from __future__ import annotations

import torch

from absent_h100 import compile_kernels_of
from workings.objectives.logprobs_triton import Shape, fused_logprobs


def compile_all() -> None:
    hidden = torch.zeros(4, 16, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.zeros(151_936, 16, requires_grad=True)
    targets = torch.zeros(4, dtype=torch.int64)
    for softcap in (None, 30.0):
        shape = Shape(inverse_temperature=1.0, scale=1.0, softcap=softcap)
        logprobs, entropies, _ = fused_logprobs(hidden, targets, weight, None, shape)
        logprobs.sum().backward(retain_graph=True)
        (logprobs + entropies).sum().backward()


if __name__ == "__main__":
    compile_kernels_of(compile_all)
