"""Importance ratios at every level, as logarithms; a surrogate takes the exponential.

d = logprobs - old_logprobs per token. Logarithms are clamped to [-20, 20] *before* any exp: a clamp
after it gives a right value and a NaN gradient (objectives reference, rule 7).
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
# GSPO-token bounds its ratio closer, since every token carries the whole row's.
MAX_SEQUENCE_TOKEN_LOG_RATIO = 10.0

RatioLevel = Literal["token", "sequence", "sequence_token", "sequence_product", "geo_clipped"]

RATIO_LEVELS: tuple[str, ...] = get_args(RatioLevel)


def at_least_float32(values: Tensor) -> Tensor:
    """`values` in float32, or in float64 where they are: what ratios and losses are computed in."""
    return values if values.dtype == torch.float64 else values.float()


def log_ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """log(pi / pi_old) per token, within [-20, 20], float32 or wider; `old_logprobs` is fixed."""
    difference = at_least_float32(logprobs) - at_least_float32(old_logprobs.detach())
    return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def level_log_ratio(
    logprobs: Tensor,
    old_logprobs: Tensor,
    mask: Tensor,
    *,
    level: RatioLevel,
    advantages: Tensor | None = None,
    log_range: float | None = None,
) -> Tensor:
    """log of the importance ratio at every token, [B, T] float32 or wider; 0 off the mask.

    With n the trained tokens of a row and sums over them (objectives reference, section 1):

    - token: d
    - sequence: sum(d) / n, one value per row (GSPO, 2507.18071, eq. 7)
    - sequence_token: that value with the gradient of the token's own log-probability, for
      advantages that differ within a row; at most 10 (GSPO-token, 2507.18071, eq. 14)
    - sequence_product: sum(d), one value per row. Grows with the length of the row
    - geo_clipped: mean of min(d, `log_range`) where A >= 0 and of max(d, -`log_range`) where A < 0,
      one value per row (GMPO, 2507.20673, eq. 4)

    Args:
        logprobs, old_logprobs, mask: [B, T]; `mask` is bool. What stands off the mask, inf and NaN
            included, has no effect on values or gradients. No gradient goes into `old_logprobs`.
        advantages: [B, T] or [B, 1], for geo_clipped.
        log_range: for geo_clipped.

    >>> old, mask = torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool)
    >>> logs = level_log_ratio(torch.tensor([[0.2, -0.1, 0.05]]), old, mask, level="sequence")
    >>> [round(value, 6) for value in logs.exp()[0].tolist()]
    [1.051271, 1.051271, 1.051271]
    """
    mask = mask.bool()
    trained = torch.where(mask, at_least_float32(logprobs), 0.0)
    differences = trained - torch.where(mask, at_least_float32(old_logprobs.detach()), 0.0)
    if level == "token":
        return differences.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if level == "geo_clipped":
        differences = _clipped_where_it_helps(differences, advantages, log_range)
    elif level not in RATIO_LEVELS:
        raise ValueError(f"unknown ratio level {level!r}; expected {', '.join(RATIO_LEVELS)}")
    rows = differences.sum(1, keepdim=True)
    if level != "sequence_product":
        rows = rows / mask.sum(1, keepdim=True).clamp(min=1)
    if level == "sequence_token":
        own = trained - trained.detach()  # 0, with a gradient of 1 in the token's log-probability
        logs = (rows.detach() + own).clamp(-MAX_LOG_RATIO, MAX_SEQUENCE_TOKEN_LOG_RATIO)
    else:
        logs = rows.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.where(mask, logs, 0.0)


def _clipped_where_it_helps(
    differences: Tensor, advantages: Tensor | None, log_range: float | None
) -> Tensor:
    """Log-ratios bounded on the side on which the objective would gain from a larger step."""
    if advantages is None or log_range is None:
        raise ValueError("the ratio level 'geo_clipped' needs advantages and log_range")
    return torch.where(
        advantages >= 0, differences.clamp(max=log_range), differences.clamp(min=-log_range)
    )
