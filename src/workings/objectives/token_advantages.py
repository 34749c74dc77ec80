"""Advantages that differ from token to token of one answer."""

from __future__ import annotations

import torch
from torch import Tensor

from workings.objectives.whitening import WHITENING_EPS, Reduce, on_one_rank, whiten


def token_returns(
    rewards: Tensor,
    mask: Tensor,
    token_penalties: Tensor | None = None,
    discount: float = 1.0,
) -> Tensor:
    """Discounted return from each token on, [rows, T], float32 (float64 for float64); 0 off mask.

    `rewards` [rows] stands on the last trained token of each row; `token_penalties` [rows, T] (the
    KL term: coefficient times log(pi / ref)) is subtracted at every trained token. Time runs over
    trained tokens: a gap in `mask` [rows, T] (bool) neither acts nor discounts. Rows without a
    trained token give 0, whatever their reward. Raises ValueError for non-finite input.

    >>> token_returns(torch.tensor([1.0]), torch.ones(1, 3, dtype=torch.bool), discount=0.5)
    tensor([[0.2500, 0.5000, 1.0000]])
    """
    if mask.ndim != 2 or rewards.shape != mask.shape[:1]:
        raise ValueError(
            f"rewards have shape {tuple(rewards.shape)}, mask {tuple(mask.shape)}; "
            "expected [rows] and [rows, tokens]"
        )
    if not 0 < discount <= 1:
        raise ValueError(f"discount={discount}; expected a value above 0 and at most 1")
    mask = mask.bool()
    dtype = torch.float64 if rewards.dtype == torch.float64 else torch.float32
    trained = mask.any(1)
    _refuse_non_finite(rewards, trained, "reward of row {}")
    gains = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
    if token_penalties is not None:
        _refuse_non_finite(token_penalties, mask, "penalty of row {}, token {}")
        gains = torch.where(mask, -token_penalties.detach().double(), 0.0)
    if mask.shape[1]:
        is_last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
        gains = gains + torch.where(is_last, rewards.double()[:, None], 0.0)
    return torch.where(mask, _discounted_sums(gains, mask, discount), 0.0).to(dtype)


def reinforce_pp_advantages(
    rewards: Tensor,
    mask: Tensor,
    token_penalties: Tensor | None = None,
    *,
    discount: float = 1.0,
    eps: float = WHITENING_EPS,
    reduce: Reduce = on_one_rank,
) -> Tensor:
    """`token_returns`, whitened over all trained tokens of the step (REINFORCE++, 2501.03262).

    [rows, T], 0 off the mask. Rows must be those of the whole optimizer step, or of this rank's
    share of it with `reduce` summing over ranks. One trained token, or returns that are all equal,
    give exactly 0.
    """
    returns = token_returns(rewards, mask, token_penalties, discount)
    return whiten(returns, mask, eps=eps, reduce=reduce)


def optimal_token_baseline_advantages(
    returns: Tensor, mask: Tensor, logprobs: Tensor, sum_squared_probs: Tensor
) -> Tensor:
    """G_t - E[G_t W_t] / E[W_t] over a group, [groups, samples, T], float32 (float64); 0 off mask.

    W_t is the running sum of 1 - 2 p + sum_v p_v^2, the squared norm of the score in the logits,
    so the baseline is the one of least variance (optimal token baseline). The expectation runs
    over the samples of the group that have a token t.

    Args:
        returns: G_t, [groups, samples, T] with token t of every answer in column t.
        mask: bool, trained tokens.
        logprobs: log p of the sampled token.
        sum_squared_probs: sum over the vocabulary of p^2.

    Where one sample alone reaches t, or all returns there are equal, the advantage is exactly 0.
    Raises ValueError for groups of one.
    """
    if returns.ndim != 3 or returns.shape[1] < 2:
        raise ValueError(
            f"returns have shape {tuple(returns.shape)}; expected [groups, samples, tokens] with "
            "two samples or more, since the baseline is the group's"
        )
    mask = mask.bool()
    dtype = torch.float64 if returns.dtype == torch.float64 else torch.float32
    gains = torch.where(mask, returns.detach().double(), 0.0)
    norms = 1 - 2 * logprobs.detach().double().exp() + sum_squared_probs.detach().double()
    energy = torch.where(mask, torch.where(mask, norms, 0.0).cumsum(2), 0.0)
    total = energy.sum(1, keepdim=True)
    low = torch.where(mask, gains, torch.inf).amin(1, keepdim=True)
    high = torch.where(mask, gains, -torch.inf).amax(1, keepdim=True)
    count = mask.sum(1, keepdim=True).clamp(min=1)
    # Without any energy (every token certain) no baseline matters; the mean keeps it finite.
    weighted = torch.where(
        total > 0,
        (gains * energy).sum(1, keepdim=True) / torch.where(total > 0, total, 1.0),
        gains.sum(1, keepdim=True) / count,
    )
    baseline = torch.where(high > low, weighted, low)
    return torch.where(mask, gains - baseline, 0.0).to(dtype)


def _discounted_sums(gains: Tensor, mask: Tensor, discount: float) -> Tensor:
    """sum_{s >= t} discount^(trained tokens from t to s) gains_s, by doubling: log2(T) passes."""
    factors = torch.where(mask, discount, torch.ones_like(gains))
    sums, shift = gains, 1
    while shift < gains.shape[1]:
        later = torch.nn.functional.pad(sums[:, shift:], (0, shift))
        sums = sums + factors * later
        factors = factors * torch.nn.functional.pad(factors[:, shift:], (0, shift))
        shift *= 2
    return sums


def _refuse_non_finite(values: Tensor, where: Tensor, place: str) -> None:
    broken = where & ~torch.isfinite(values)
    if broken.any():
        index = tuple(int(i) for i in broken.nonzero()[0])
        raise ValueError(f"{place.format(*index)} is {values[index].item()}")
