"""Triton's interpreter, which runs kernels on the CPU: import this before triton.

A process that has imported triton without it cannot turn it on any more, so tests that need it run
in a process of their own (see `test_paged_kernels_triton.py`).
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

from typing import Any

import triton.runtime.interpreter as interpreter

_patch_tensor = interpreter._patch_lang_tensor


def _patch_tensor_for_numpy(tensor: Any, scope: Any) -> None:
    """numpy 2.4 refuses `int()` of an array of one element, which Triton 3.6 asks of it."""
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patch_tensor_for_numpy
