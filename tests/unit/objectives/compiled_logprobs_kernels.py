"""Compiles the log-probabilities' kernels for an H100, on a machine without a GPU.

Run by `test_objectives_logprobs_triton.py` in a process of its own, because Triton is told that the
active device is an H100. Nothing is launched. It prints a line for each kernel that was compiled.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from workings.objectives.logprobs_triton import Shape, fused_logprobs


class AbsentH100:
    """As much of a driver as the compiler asks for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


launch = JITFunction.run


def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
    kernel = launch(self, *arguments, grid=grid, warmup=True, **options)
    sys.stdout.write(f"compiled {self.__name__} to {len(kernel.asm['cubin'])} bytes\n")
    return kernel


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
    driver.set_active(AbsentH100())
    JITFunction.run = compile_only
    compile_all()
