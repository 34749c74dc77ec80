"""Sums and means over masked entries, safe against whatever stands outside the mask."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor


def masked_sum(values: Tensor, mask: Tensor, *, dim: int | None = None) -> Tensor:
    """Sum of the entries where `mask` is True; an inf or NaN elsewhere does not leak.

    `values` and `mask` (bool) have the same shape; `dim` None sums over everything.
    """
    kept = torch.where(mask.bool(), values, 0.0)
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(
    values: Tensor,
    mask: Tensor,
    *,
    dim: int | None = None,
    empty: Literal["nan", "zero"] = "nan",
) -> Tensor:
    """Mean of the entries where `mask` is True.

    A slice with no masked entry gives NaN, or 0 with `empty="zero"` (what the trainers use).
    """
    total = masked_sum(values, mask, dim=dim)
    count = mask.bool().sum() if dim is None else mask.bool().sum(dim)
    count = count.to(total.dtype)
    if empty == "zero":
        return total / count.clamp(min=1)
    return total / count


def masked_normalize(
    values: Tensor, mask: Tensor, normalize_constant: float = 1.0, dim: int | None = None
) -> Tensor:
    """Sum of the masked entries along `dim`, divided by a constant (course function 1.4)."""
    return masked_sum(values, mask, dim=dim) / normalize_constant
