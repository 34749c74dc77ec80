"""Advantages: what a sample is worth against the other samples of its prompt."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Estimator = Literal["raw", "group", "group_mean"]


def group_advantages(
    rewards: Tensor,
    valid: Tensor | None = None,
    *,
    estimator: Estimator = "group",
    eps: float = 1e-6,
) -> Tensor:
    """Advantages of the shape of `rewards`, [groups, samples], float32 (float64 for float64).

    Estimators (objectives reference, section 4), with mean and unbiased std (ddof 1) per group:

    - raw: R (REINFORCE without a baseline)
    - group: (R - mean) / (std + eps) (GRPO, 2402.03300, eq. 3; eps outside the root)
    - group_mean: R - mean (Dr.GRPO, 2503.20783)

    `valid` (bool, same shape) marks samples with a usable reward; the others leave the statistics
    and get 0. A group in which all rewards are equal gets exactly 0, and so does a group that is
    left with a single sample. Raises ValueError for a non-finite reward and for groups of one.

    >>> group_advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0]])).numpy().round(6).tolist()[0][:2]
    [0.8660240173339844, -0.8660240173339844]
    """
    if rewards.ndim != 2:
        raise ValueError(f"rewards have shape {tuple(rewards.shape)}; expected [groups, samples]")
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid.bool()
    rewards = rewards if rewards.dtype == torch.float64 else rewards.float()
    broken = valid & ~torch.isfinite(rewards)
    if broken.any():
        group, sample = (int(i) for i in broken.nonzero()[0])
        raise ValueError(f"reward of group {group}, sample {sample} is {rewards[group, sample]}")
    rewards = torch.where(valid, rewards, 0.0)
    if estimator == "raw":
        return rewards
    if rewards.shape[1] < 2:
        raise ValueError(
            f"groups of {rewards.shape[1]} sample: the advantage {estimator!r} compares the "
            "samples of one prompt and is undefined for one; sample two or more, or use 'raw'"
        )
    count = valid.sum(1, keepdim=True)
    mean = rewards.sum(1, keepdim=True) / count.clamp(min=1)
    centred = torch.where(valid, rewards - mean, 0.0)
    # Rounding in the mean must not turn equal rewards into a tiny advantage over a tiny std.
    high = torch.where(valid, rewards, -torch.inf).amax(1, keepdim=True)
    low = torch.where(valid, rewards, torch.inf).amin(1, keepdim=True)
    informative = (count > 1) & (high > low)
    if estimator == "group":
        variance = centred.square().sum(1, keepdim=True) / (count - 1).clamp(min=1)
        centred = centred / (variance.sqrt() + eps)
    elif estimator != "group_mean":
        raise ValueError(f"unknown estimator {estimator!r}; expected raw, group or group_mean")
    return torch.where(informative, centred, 0.0)
