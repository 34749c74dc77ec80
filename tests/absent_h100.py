"""Triton's compiler for an H100, on a machine without a GPU.

Triton is told that the active device is an H100, so what uses this runs in a process of its own.
Nothing is launched.
"""

import sys
from collections.abc import Callable
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction


class AbsentH100:
    """As much of a driver as the compiler asks for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


def compile_kernels_of(launch_all: Callable[[], None]) -> None:
    """Call `launch_all`, in which a launch only compiles, and writes a line."""
    launch = JITFunction.run

    def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = launch(self, *arguments, grid=grid, warmup=True, **options)
        sys.stdout.write(f"compiled {self.__name__} to {len(kernel.asm['cubin'])} bytes\n")
        return kernel

    driver.set_active(AbsentH100())
    JITFunction.run = compile_only
    launch_all()
