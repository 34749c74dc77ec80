"""Liger's fused kernels in the layers of a loaded model; the one file that imports liger_kernel.

Norms, rotation and the gated product of a layer are many small kernels in transformers, each of
which reads and writes everything. Liger (2410.10989) has one Triton kernel for each, forward and
backward. Names, weights and results stay the same up to rounding.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from workings.errors import ModelError
from workings.models.weights import base_model

ROTATION = "apply_rotary_pos_emb"
"""What transformers calls the function in every family's module."""


def has_liger() -> bool:
    """True where liger-kernel is installed."""
    return importlib.util.find_spec("liger_kernel") is not None


def liger_supports(model: Any) -> bool:
    """True where liger-kernel is installed and knows the model's family."""
    if not has_liger():
        return False
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    return base_model(model).config.model_type in MODEL_TYPE_TO_APPLY_LIGER_FN


def apply_liger(model: Any) -> None:
    """Put Liger's kernels into the layers of a model on a CUDA device, in place.

    The vocabulary projection and its loss are left alone: `token_logprobs` computes them. Applying
    it again changes nothing. The rotation is a function of the family's module, so other models of
    the family in this process get it too; it computes the same.

    Raises ModelError where liger-kernel is missing, does not know the family, or has no device.
    """
    inner = base_model(model)
    if not has_liger():
        raise ModelError(
            "model.kernels=liger needs liger-kernel, which is not installed",
            hint="pip install 'workings[cuda]', or set model.kernels=auto",
        )
    if not liger_supports(inner):
        raise ModelError(
            f"liger-kernel has no kernels for the family {inner.config.model_type}",
            hint="set model.kernels=compiled or plain",
        )
    if inner.device.type != "cuda":
        raise ModelError(
            f"Liger's kernels need a CUDA device; the model is on {inner.device}",
            hint="set model.kernels=auto",
        )
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    _apply_liger_kernel_to_instance(
        model=inner, cross_entropy=False, fused_linear_cross_entropy=False
    )
    family = sys.modules[type(inner).__module__]
    if hasattr(family, ROTATION):
        setattr(family, ROTATION, leaving_what_is_kept(getattr(family, ROTATION)))


def leaving_what_is_kept(rotate: Callable[..., Any]) -> Callable[..., Any]:
    """`rotate`, which writes over queries and keys, on copies of them where they are still needed.

    Selective checkpointing keeps the products that they are, and would keep them rotated without a
    sign; it watches the operators of a layer, and by that it is told.
    """
    if getattr(rotate, "leaves_what_is_kept", False):
        return rotate

    @functools.wraps(rotate)
    def rotated(query: torch.Tensor, key: torch.Tensor, *rest: Any, **settings: Any) -> Any:
        if _get_current_dispatch_mode() is not None:
            query, key = query.clone(), key.clone()
        return rotate(query, key, *rest, **settings)

    rotated.leaves_what_is_kept = True  # type: ignore[attr-defined]
    return rotated
