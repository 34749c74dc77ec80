"""The formulas that compare the samples of one prompt, one function each.

`advantages.group_advantages` is their front: it checks the input, picks the formula and zeroes
what has nothing to be compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from workings.objectives.whitening import Reduce, step_std, whiten

# A mean this small beside the rewards is rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardGroups:
    """The rewards of a step with the statistics of their groups.

    [groups, samples]: `rewards` (float64, 0 where not valid), `valid`, `pool` (what enters the
    statistics), `centred` (rewards - mean). [groups, 1]: `count`, `mean`, `std`, `spread`.
    """

    rewards: Tensor
    valid: Tensor
    pool: Tensor
    centred: Tensor
    count: Tensor
    mean: Tensor
    std: Tensor
    spread: Tensor
    eps: float
    gpg_norm: float
    reduce: Reduce

    @classmethod
    def measure(
        cls,
        rewards: Tensor,
        valid: Tensor,
        pool: Tensor,
        *,
        eps: float,
        gpg_norm: float,
        reduce: Reduce,
    ) -> RewardGroups:
        """The statistics of the pool of every group."""
        count = pool.sum(1, keepdim=True)
        low, high = reward_extremes(rewards, pool)
        mean = torch.where(pool, rewards, 0.0).sum(1, keepdim=True) / count.clamp(min=1)
        # Rounding in the mean must not turn equal rewards into a tiny advantage over a tiny std.
        mean = torch.where(high == low, low, mean)
        centred = torch.where(valid, rewards - mean, 0.0)
        scatter = torch.where(pool, centred, 0.0).square().sum(1, keepdim=True)
        return cls(
            rewards=rewards,
            valid=valid,
            pool=pool,
            centred=centred,
            count=count,
            mean=mean,
            std=(scatter / (count - 1).clamp(min=1)).sqrt(),
            spread=high > low,
            eps=eps,
            gpg_norm=gpg_norm,
            reduce=reduce,
        )


def reward_extremes(rewards: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest reward of each group's pool, [groups, 1]; inf and -inf where empty."""
    low = torch.where(pool, rewards, torch.inf).amin(1, keepdim=True)
    high = torch.where(pool, rewards, -torch.inf).amax(1, keepdim=True)
    return low, high


def _group(step: RewardGroups) -> Tensor:
    return step.centred / (torch.where(step.spread, step.std, 1.0) + step.eps)


def _group_mean(step: RewardGroups) -> Tensor:
    return step.centred


def _group_mean_batch_std(step: RewardGroups) -> Tensor:
    std = step_std(step.rewards, step.pool, reduce=step.reduce)
    return step.centred / (torch.where(std > 0, std, 1.0) + step.eps)


def _rloo(step: RewardGroups) -> Tensor:
    # To a sample outside the pool, all of the pool are the others.
    others = (step.count - 1).clamp(min=1)
    return torch.where(step.pool, step.centred * step.count / others, step.centred)


def _maxrl(step: RewardGroups) -> Tensor:
    size = torch.where(step.pool, step.rewards, 0.0).abs().amax(1, keepdim=True)
    zero = step.mean.abs() <= _ROUNDING * size
    below = (step.mean < 0) & ~zero & (step.count > 0)
    if below.any():
        group = int(below.nonzero()[0, 0])
        raise ValueError(
            f"the rewards of group {group} have mean {step.mean[group].item():g}; maxrl divides by "
            "the mean and would teach the opposite below 0: give rewards of 0 or more"
        )
    return torch.where(zero, 0.0, step.centred / torch.where(zero, 1.0, step.mean))


def _pass_k(step: RewardGroups) -> Tensor:
    ranked = torch.where(step.pool, step.rewards, -torch.inf)
    best = ranked.topk(2, dim=1)
    lead = torch.where(step.count > 1, best.values[:, :1] - best.values[:, 1:], 0.0)
    lead = lead / (torch.where(step.spread, step.std, 1.0) + step.eps)
    return torch.zeros_like(step.rewards).scatter(1, best.indices[:, :1], lead)


def _gpg(step: RewardGroups) -> Tensor:
    informative = step.pool & (step.rewards != 0)
    num_rows, num_informative = step.reduce(
        torch.stack([step.pool.sum(), informative.sum()]).double()
    ).unbind()
    return step.centred * (num_rows / num_informative.clamp(min=1)) / step.gpg_norm


def _opo(step: RewardGroups, lengths: Tensor) -> Tensor:
    weights = torch.where(step.pool, lengths, 0.0)
    total = weights.sum(1, keepdim=True)
    weighted = (weights * step.rewards).sum(1, keepdim=True) / torch.where(total > 0, total, 1.0)
    # Equal rewards have themselves as baseline, exactly; so has a group without a token.
    baseline = torch.where((total > 0) & step.spread, weighted, step.mean)
    return step.rewards - baseline


def _reinforce_pp_baseline(step: RewardGroups, lengths: Tensor) -> Tensor:
    # The moments are the pool's; a sample outside it is put on the same scale by a weight of 0.
    weights = torch.where(step.pool & (step.count > 1), lengths, 0.0)
    return whiten(step.centred, weights, apply_to=step.valid, reduce=step.reduce)


ESTIMATORS_BY_REWARD: dict[str, Callable[[RewardGroups], Tensor]] = {
    "group": _group,
    "group_mean": _group_mean,
    "group_mean_batch_std": _group_mean_batch_std,
    "rloo": _rloo,
    "maxrl": _maxrl,
    "pass_k": _pass_k,
    "gpg": _gpg,
}
ESTIMATORS_BY_LENGTH: dict[str, Callable[[RewardGroups, Tensor], Tensor]] = {
    "opo": _opo,
    "reinforce_pp_baseline": _reinforce_pp_baseline,
}
