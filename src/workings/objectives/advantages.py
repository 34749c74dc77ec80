"""Advantages: what a sample is worth against the other samples of its prompt.

One value per sample; the formulas are in `group_estimators`. Advantages per token are in
`token_advantages`, those of several reward functions in `component_advantages`, the averages that
`rae` subtracts in `role_averages`.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from workings.objectives.group_estimators import (
    ESTIMATORS_BY_LENGTH,
    ESTIMATORS_BY_REWARD,
    RewardGroups,
    reward_extremes,
)
from workings.objectives.whitening import Reduce, on_one_rank

Estimator = Literal[
    "raw",
    "group",
    "group_mean",
    "group_mean_batch_std",
    "rloo",
    "reinforce_pp_baseline",
    "opo",
    "maxrl",
    "pass_k",
    "gpg",
    "remax",
    "rae",
]

ESTIMATORS: tuple[str, ...] = get_args(Estimator)
# These compare no samples of one prompt, so a group may be one sample.
SINGLE_SAMPLE_ESTIMATORS = frozenset({"raw", "remax", "rae"})
# These have no statistic of the group that a part of it could give.
WHOLE_GROUP_ESTIMATORS = SINGLE_SAMPLE_ESTIMATORS | {"pass_k"}


def group_advantages(
    rewards: Tensor,
    valid: Tensor | None = None,
    *,
    estimator: Estimator = "group",
    eps: float = 1e-6,
    counted: Tensor | None = None,
    lengths: Tensor | None = None,
    baselines: Tensor | None = None,
    gpg_norm: float = 1.0,
    reduce: Reduce = on_one_rank,
) -> Tensor:
    """Advantages of the shape of `rewards`, [groups, samples], float32 (float64 for float64).

    Estimators (objectives reference, section 4), with mean and unbiased std (ddof 1) per group:

    - raw: R (REINFORCE without a baseline)
    - group: (R - mean) / (std + eps) (GRPO, 2402.03300, eq. 3; eps outside the root)
    - group_mean: R - mean (Dr.GRPO, 2503.20783)
    - group_mean_batch_std: (R - mean) / (std of all rewards of the step + eps) (Lite PPO,
      2508.08221)
    - rloo: R - mean of the others (2402.14740)
    - reinforce_pp_baseline: R - mean, then whitened over the step, each sample weighing its
      `lengths` (REINFORCE++, 2501.03262)
    - opo: R - sum(n R) / sum(n) with n = `lengths` (2505.23585)
    - maxrl: (R - mean) / mean, 0 where the mean is 0 (2602.02710)
    - pass_k: (best - second) / (std + eps) for the best sample, 0 for the others (2503.19595)
    - gpg: (R - mean) / gpg_norm, times the step's samples over its samples with R != 0 (GPG)
    - remax: R - `baselines`, the reward of the prompt's greedy answer (2310.10505)
    - rae: R - `baselines`, the average reward of the prompt's role (SPIRAL, 2506.24119)

    Args:
        valid: bool, like `rewards`: samples with a usable reward. The others leave the statistics
            and get 0.
        counted: bool, like `rewards`: samples that enter the statistics; None is all. With the
            on-policy samples, the others (LUFFY's teacher rows) get their reward against the
            on-policy mean; a std of 0 is then replaced by 1 (LUFFY's `grpo_split`).
        lengths: tokens per sample, like `rewards`; for opo and reinforce_pp_baseline.
        baselines: [groups], for remax and rae.
        reduce: sums a 1-D float64 tensor over ranks; group_mean_batch_std, gpg and
            reinforce_pp_baseline call it, the same number of times on every rank.

    A group in which all counted rewards are equal gives those samples exactly 0, also after
    whitening, and a group left with a single counted sample gives 0 throughout. Truncated samples
    belong in: mask them later. Raises ValueError for a non-finite reward and for groups of one.

    >>> group_advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0]])).numpy().round(6).tolist()[0][:2]
    [0.8660240173339844, -0.8660240173339844]
    >>> group_advantages(torch.tensor([[3.0, 0.0, 0.0]]), estimator="rloo").tolist()
    [[3.0, -1.5, -1.5]]
    """
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid.bool()
    _check(rewards, valid, estimator=estimator, counted=counted)
    dtype = torch.float64 if rewards.dtype == torch.float64 else torch.float32
    exact = torch.where(valid, rewards.double(), 0.0)
    if estimator == "raw":
        return exact.to(dtype)
    if estimator in ("remax", "rae"):
        return _minus_baselines(exact, valid, estimator, baselines).to(dtype)
    pool = valid if counted is None else valid & counted.bool()
    step = RewardGroups.measure(exact, valid, pool, eps=eps, gpg_norm=gpg_norm, reduce=reduce)
    if estimator in ("opo", "reinforce_pp_baseline"):
        advantages = ESTIMATORS_BY_LENGTH[estimator](
            step, _check_lengths(lengths, rewards, estimator)
        )
    else:
        advantages = ESTIMATORS_BY_REWARD[estimator](step)
    silent = (step.count < 2) | (step.pool & ~step.spread)
    return torch.where(valid & ~silent, advantages, 0.0).to(dtype)


def has_spread(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Which groups have two usable rewards that differ, [groups] bool; only they teach anything.

    >>> has_spread(torch.tensor([[0.0, 0.95, 0.95], [0.95, 0.95, 0.95]])).tolist()
    [True, False]
    """
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid.bool()
    low, high = reward_extremes(rewards, valid)
    return (high > low).squeeze(1)


def _minus_baselines(
    rewards: Tensor, valid: Tensor, estimator: str, baselines: Tensor | None
) -> Tensor:
    if baselines is None or baselines.shape != rewards.shape[:1]:
        came = "none" if baselines is None else f"shape {tuple(baselines.shape)}"
        raise ValueError(
            f"baselines: {came}; the advantage {estimator!r} needs one per group, "
            f"[{rewards.shape[0]}]"
        )
    broken = valid.any(1) & ~torch.isfinite(baselines)
    if broken.any():
        group = int(broken.nonzero()[0])
        raise ValueError(f"baseline of group {group} is {baselines[group].item()}")
    baselines = baselines.to(rewards.device).double()
    return torch.where(valid, rewards - baselines[:, None], 0.0)


def _check(rewards: Tensor, valid: Tensor, *, estimator: str, counted: Tensor | None) -> None:
    if estimator not in ESTIMATORS:
        raise ValueError(f"unknown estimator {estimator!r}; expected {', '.join(ESTIMATORS)}")
    if rewards.ndim != 2:
        raise ValueError(f"rewards have shape {tuple(rewards.shape)}; expected [groups, samples]")
    for name, mask in (("valid", valid), ("counted", counted)):
        if mask is not None and mask.shape != rewards.shape:
            raise ValueError(
                f"{name} has shape {tuple(mask.shape)}; expected that of the rewards, "
                f"{tuple(rewards.shape)}"
            )
    broken = valid & ~torch.isfinite(rewards)
    if broken.any():
        group, sample = (int(i) for i in broken.nonzero()[0])
        raise ValueError(f"reward of group {group}, sample {sample} is {rewards[group, sample]}")
    if estimator not in SINGLE_SAMPLE_ESTIMATORS and rewards.shape[1] < 2:
        raise ValueError(
            f"groups of {rewards.shape[1]} sample: the advantage {estimator!r} compares the "
            "samples of one prompt and is undefined for one; sample two or more, or use 'raw'"
        )
    if counted is not None and estimator in WHOLE_GROUP_ESTIMATORS:
        raise ValueError(
            f"counted was given, but the advantage {estimator!r} has no statistic that a part of "
            "the group could give; leave it out, or use group, group_mean or rloo"
        )


def _check_lengths(lengths: Tensor | None, rewards: Tensor, estimator: str) -> Tensor:
    if lengths is None or lengths.shape != rewards.shape:
        came = "none" if lengths is None else f"shape {tuple(lengths.shape)}"
        raise ValueError(
            f"lengths: {came}; the advantage {estimator!r} weighs samples by their tokens and "
            f"needs a number for each, {tuple(rewards.shape)}"
        )
    return lengths.to(rewards.device).double()
