"""Root-mean-square norms of a decoder layer, alone and after adding to the residual stream.

The rounding is that of `LlamaRMSNorm` and `Qwen2RMSNorm` in transformers: the row is normalised in
float32 and rounded to its dtype before it is multiplied by the weight.
"""

from __future__ import annotations

import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` of every row.

    Args:
        x: floating [tokens, width], rows contiguous; the result has its dtype.
        weight: floating [width].
    """
    if x.is_cuda:
        from workings.rollout.paged.kernels import norm_triton

        return norm_triton.rms_norm(x, weight, eps)
    return rms_norm_torch(x, weight, eps)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(norm of the sum, the sum) of `x + residual`; the sum is rounded to the dtype first.

    Args:
        x, residual: floating [tokens, width], of one dtype, rows contiguous; neither is changed.
        weight: floating [width].
    """
    if x.is_cuda:
        from workings.rollout.paged.kernels import norm_triton

        return norm_triton.add_rms_norm(x, residual, weight, eps)
    return add_rms_norm_torch(x, residual, weight, eps)


def rms_norm_torch(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The definition of `rms_norm`, in torch."""
    exact = x.float()
    exact = exact * torch.rsqrt(exact.square().mean(dim=-1, keepdim=True) + eps)
    return weight * exact.to(x.dtype)


def add_rms_norm_torch(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The definition of `add_rms_norm`, in torch."""
    total = x + residual
    return rms_norm_torch(total, weight, eps), total
