"""Advantages from several reward functions, each put on its own scale before they are added."""

from __future__ import annotations

import torch
from torch import Tensor

from workings.objectives.advantages import group_advantages, has_spread
from workings.objectives.whitening import Reduce, on_one_rank, whiten


def combined_components(
    components: Tensor, weights: Tensor, valid: Tensor | None = None, *, eps: float = 1e-6
) -> Tensor:
    """sum_c weights[c] * (R_c - mean_c) / (std_c + eps) with statistics of the group.

    `components` [C, groups, samples] and `weights` [C] give [groups, samples], float32 (float64
    for float64). A component that is equal in a group adds exactly 0 there. `valid` (bool,
    [groups, samples]) marks samples whose every component is usable; the others get 0.

    >>> two = torch.tensor([[[1.0, 0, 0, 0]], [[0.0, 0, 1, 1]]])
    >>> [round(a, 3) for a in combined_components(two, torch.ones(2))[0].tolist()]
    [0.634, -1.366, 0.366, 0.366]
    """
    if components.ndim != 3 or weights.shape != components.shape[:1]:
        raise ValueError(
            f"components have shape {tuple(components.shape)}, weights {tuple(weights.shape)}; "
            "expected [components, groups, samples] and [components]"
        )
    total = torch.zeros_like(components[0], dtype=torch.float64)
    for number, rewards in enumerate(components):
        try:
            part = group_advantages(rewards.double(), valid, estimator="group", eps=eps)
        except ValueError as error:
            raise ValueError(f"reward component {number}: {error}") from error
        total = total + weights[number].to(total.device).double() * part
    return total.to(torch.float64 if components.dtype == torch.float64 else torch.float32)


def gdpo_advantages(
    components: Tensor,
    weights: Tensor,
    valid: Tensor | None = None,
    *,
    eps: float = 1e-6,
    lengths: Tensor | None = None,
    reduce: Reduce = on_one_rank,
) -> Tensor:
    """`combined_components`, whitened over the step, [groups, samples] (GDPO, 2601.05242).

    Every usable sample counts once, or `lengths` times where they are given (tokens per sample,
    [groups, samples]). Groups without a component that differs get exactly 0 and stay in the
    statistics; groups left with one usable sample get 0 and leave them.
    """
    combined = combined_components(components, weights, valid, eps=eps)
    present = torch.ones_like(combined, dtype=torch.bool) if valid is None else valid.bool()
    present = present & (present.sum(1, keepdim=True) > 1)
    if lengths is not None and lengths.shape != combined.shape:
        raise ValueError(
            f"lengths have shape {tuple(lengths.shape)}; expected {tuple(combined.shape)}"
        )
    counts = torch.ones_like(combined) if lengths is None else lengths.to(combined.device)
    white = whiten(combined, torch.where(present, counts, 0), reduce=reduce)
    differs = torch.stack([has_spread(rewards, valid) for rewards in components]).any(0)
    return torch.where(present & differs[:, None], white, 0.0)
