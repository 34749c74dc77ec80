"""Statistics of a whole optimizer step: its standard deviation, and values whitened by it.

Sums over ranks go through `reduce`, which takes a 1-D float64 tensor of the same length on every
rank and returns the sum over ranks. Every rank must make the call, also with nothing to add.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Reduce = Callable[[Tensor], Tensor]

WHITENING_EPS = 1e-8
# A spread this small beside the mean is rounding (float32 itself resolves 6e-8).
_ROUNDING = 1e-9


def on_one_rank(values: Tensor) -> Tensor:
    """`values` as they came: the sum over ranks where there is one."""
    return values


def step_std(values: Tensor, included: Tensor, *, reduce: Reduce = on_one_rank) -> Tensor:
    """Unbiased standard deviation (ddof 1) over the step of the values where `included`, 0-d.

    float64; `values` and `included` (bool) have one shape, which may differ between ranks. Fewer
    than two values give 0.
    """
    variance, _ = _variance(values.double(), included.double(), reduce)
    return variance.sqrt()


def whiten(
    values: Tensor,
    weights: Tensor,
    *,
    eps: float = WHITENING_EPS,
    apply_to: Tensor | None = None,
    reduce: Reduce = on_one_rank,
) -> Tensor:
    """(x - mean) * rsqrt(var + eps) over the whole step, in the shape and dtype of `values`.

    `weights` has the shape of `values` and says how often each counts: a mask [rows, T] (bool)
    whitens tokens, the numbers of tokens [groups, samples] whiten one value per row as if it
    stood on each of its tokens. Entries of weight 0 leave the statistics, whatever they hold, and
    get 0, except where `apply_to` (bool) holds: those are put on the scale of the others.

    The variance is unbiased for weights w: sum(w (x - mean)^2) / (W - sum(w^2) / W) with
    W = sum(w). For a mask that is ddof 1 over tokens; for rows of equal length it is ddof 1 over
    rows, whatever the length. (REINFORCE++, 2501.03262; objectives reference, section 4.)

    One value, or values that are all equal, give exactly 0.

    >>> whiten(torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.ones(4)).tolist()
    [0.5, -1.5, 0.5, 0.5]
    """
    if values.shape != weights.shape:
        raise ValueError(
            f"values have shape {tuple(values.shape)}, weights {tuple(weights.shape)}; "
            "expected one shape"
        )
    weights = weights.double()
    present = weights > 0 if apply_to is None else apply_to
    variance, mean = _variance(values.double(), weights, reduce)
    centred = torch.where(present, values.double() - mean, 0.0)
    white = torch.where(variance > 0, centred * torch.rsqrt(variance + eps), 0.0)
    return white.to(values.dtype)


def _variance(values: Tensor, weights: Tensor, reduce: Reduce) -> tuple[Tensor, Tensor]:
    """(variance, mean) of the step, 0-d float64; the variance of equal values is exactly 0."""
    present = weights > 0
    values = torch.where(present, values, 0.0)
    total, squares, weighted = reduce(
        torch.stack([weights.sum(), weights.square().sum(), (weights * values).sum()])
    ).unbind()
    mean = weighted / torch.where(total > 0, total, 1.0)
    deviations = torch.where(present, values - mean, 0.0)
    apart = deviations.abs() > _ROUNDING * mean.abs()
    scatter, num_apart = reduce(
        torch.stack([(weights * deviations.square()).sum(), apart.sum().double()])
    ).unbind()
    freedom = total - squares / torch.where(total > 0, total, 1.0)
    defined = (num_apart > 0) & (freedom > _ROUNDING * total)
    return torch.where(defined, scatter / torch.where(defined, freedom, 1.0), 0.0), mean
