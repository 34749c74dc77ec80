"""How far the policy is from its reference: estimators per token, and an adaptive coefficient."""

from __future__ import annotations

import math
from typing import get_args

import torch
from torch import Tensor

from workings.config.objective import KLEstimator
from workings.objectives.ratios import MAX_LOG_RATIO

KL_ESTIMATORS: tuple[str, ...] = get_args(KLEstimator)
# Largest relative error that moves the adaptive coefficient (Ziegler et al., 1909.08593).
MAX_KL_ERROR = 0.2


def kl_penalty(
    logprobs: Tensor,
    ref_logprobs: Tensor,
    *,
    estimator: KLEstimator,
    log_ratios: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Estimate of KL(pi, ref) at every token, of the shape of `logprobs`, float32 (or float64).

    With x = logprobs - ref_logprobs (objectives reference, section 6; k1 to k3 by Schulman):

    - k1: x. Its expected gradient is 0: fine in the reward, useless in the loss
    - abs: |x|
    - k2: x^2 / 2. Its expected gradient is that of KL(pi, ref)
    - k3: exp(-x) + x - 1. Low variance, biased gradient
    - k1_plus, k3_plus: the value of k1 or k3 with the gradient of k2
    - k3_is: r k3 with r = exp(`log_ratios`), pi / pi_old at the level of the objective and with
      its gradient (DeepSeek-V3.2, 2512.02556): unbiased

    Gradients flow into `logprobs` (and `log_ratios`), never into `ref_logprobs`. Exponents are
    clamped to [-20, 20] before exp; k3 is constant where x < -20, since the gradient of what is
    left of it would point away from the reference. Entries off `mask` (bool) are 0 with gradient
    0, whatever stands there.

    >>> x = torch.tensor([0.5, -0.5, 2.0])
    >>> [round(k3, 6) for k3 in kl_penalty(x, torch.zeros(3), estimator="k3").tolist()]
    [0.106531, 0.148721, 1.135335]
    """
    x = _wide(logprobs) - _wide(ref_logprobs.detach())
    if mask is not None:
        x = torch.where(mask.bool(), x, 0.0)
    if estimator == "k1":
        return x
    if estimator == "abs":
        return x.abs()
    if estimator == "k2":
        return x.square() / 2
    if estimator == "k3":
        return _k3(x)
    if estimator == "k1_plus":
        return _with_gradient_of_k2(x.detach(), x)
    if estimator == "k3_plus":
        return _with_gradient_of_k2(_k3(x.detach()), x)
    if estimator == "k3_is":
        return _ratio(log_ratios, mask) * _k3(x)
    raise ValueError(f"unknown KL estimator {estimator!r}; expected {', '.join(KL_ESTIMATORS)}")


def kl_token_penalties(
    logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor, *, coefficient: float
) -> Tensor:
    """coefficient * k1 at every trained token, [B, T], detached; 0 off the mask.

    What a KL in the reward subtracts: per token in `token_returns`, or summed over a row from the
    reward of that row.
    """
    x = kl_penalty(logprobs.detach(), ref_logprobs, estimator="k1", mask=mask)
    return coefficient * x


def next_kl_coefficient(
    coefficient: float, kl: float, *, target: float, horizon: float, num_rows: int
) -> float:
    """The coefficient after a step whose mean KL per row was `kl` (Ziegler et al., 1909.08593).

    coefficient * (1 + clip(kl / target - 1, -0.2, 0.2) * num_rows / horizon), with `kl` and
    `target` in the same unit and `horizon` in rows.

    >>> next_kl_coefficient(0.1, 12.0, target=6.0, horizon=1000, num_rows=100)
    0.10200000000000001
    """
    if target <= 0 or horizon <= 0:
        raise ValueError(f"target={target}, horizon={horizon}; expected values above 0")
    if not math.isfinite(kl):
        raise ValueError(f"kl={kl}; expected the finite mean of a step that was not skipped")
    error = min(max(kl / target - 1, -MAX_KL_ERROR), MAX_KL_ERROR)
    # More rows than the horizon in one step must not turn the sign of the coefficient.
    return max(coefficient * (1 + error * num_rows / horizon), 0.0)


def _k3(x: Tensor) -> Tensor:
    return (-x).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp() + x.clamp(min=-MAX_LOG_RATIO) - 1


def _with_gradient_of_k2(value: Tensor, x: Tensor) -> Tensor:
    k2 = x.square() / 2
    return value + (k2 - k2.detach())


def _ratio(log_ratios: Tensor | None, mask: Tensor | None) -> Tensor:
    if log_ratios is None:
        raise ValueError("the KL estimator k3_is needs log_ratios, log(pi / pi_old) per token")
    log_ratios = _wide(log_ratios)
    if mask is not None:
        log_ratios = torch.where(mask.bool(), log_ratios, 0.0)
    return log_ratios.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()
