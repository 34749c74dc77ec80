"""Liger's fused kernels in the layers of a loaded model; the one file that imports liger_kernel.

Norms, rotation and the gated product of a layer are many small kernels in transformers, each of
which reads and writes everything. Liger (2410.10989) has one Triton kernel for each, forward and
backward. Names, weights and results stay the same up to rounding.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from workings.errors import ModelError
from workings.models.weights import base_model


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
