"""LUFFY's reshaping of probabilities and ratios: how hard an off-policy token pulls.

With f a shaping of the probability p, the loss of a token is -A f(p) and its pull in log p is
df/dlog p = p f'(p) (2504.14945, section 3.2). Functions take logarithms, since p of a rare token
may not be representable, and compute in float32 or wider.
"""

from __future__ import annotations

import math
from typing import get_args

import torch
from torch import Tensor

from workings.config.objective import Shaping
from workings.objectives.ratios import MAX_LOG_RATIO, at_least_float32

SHAPINGS: tuple[str, ...] = get_args(Shaping)


def shaped(
    log_values: Tensor,
    *,
    shaping: Shaping,
    gamma: float = 0.1,
    weight: float = 0.1,
    power: float = 0.5,
    clip_min: float | None = None,
    clip_max: float | None = None,
) -> Tensor:
    """f(x) for x = exp(`log_values`), of the shape of `log_values`; x is p, or a ratio pi / q.

    - no_reshape: x
    - ratio: x / (x + `gamma`), whose pull peaks at x = gamma, with 1/4
    - square_root: the root of x
    - pow: x ** `power`
    - logp: `weight` log x
    - p_logp: x + `weight` log x

    `clip_min` and `clip_max` bound f afterwards; outside them there is no gradient. (2504.14945;
    the options of its code, where `ratio` is called p_div_p_0.1 with gamma in the name.)

    >>> f = shaped(torch.tensor([0.5, 0.1], dtype=torch.float64).log(), shaping="ratio")
    >>> [round(value, 6) for value in f.tolist()]
    [0.833333, 0.5]
    """
    _check(gamma, power)
    log_values = at_least_float32(log_values)
    value = _shaped(log_values, shaping, gamma=gamma, weight=weight, power=power)
    if clip_min is None and clip_max is None:
        return value
    return value.clamp(clip_min, clip_max)


def shaped_ratio(
    logprobs: Tensor,
    old_logprobs: Tensor,
    log_ratios: Tensor,
    *,
    shaping: Shaping,
    gamma: float = 0.1,
    weight: float = 0.1,
    power: float = 0.5,
) -> Tensor:
    """What stands for r = exp(`log_ratios`) on on-policy tokens, [B, T] (luffy reference, 1.4).

    - no_reshape: r
    - ratio: f(p) / f(p_old) with f(p) = p / (p + `gamma`)
    - square_root: the root of r
    - pow: r ** `power`
    - logp: log r
    - p_logp: r + `weight` log r

    No gradient goes into `old_logprobs`. The paper's authors saw no clear gain from any of them.
    """
    _check(gamma, power)
    if shaping == "ratio":
        now, before = (
            torch.nn.functional.logsigmoid(at_least_float32(values) - math.log(gamma))
            for values in (logprobs, old_logprobs.detach())
        )
        return (now - before).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    log_ratios = at_least_float32(log_ratios).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if shaping == "logp":
        return log_ratios
    return _shaped(log_ratios, shaping, gamma=gamma, weight=weight, power=power)


def _shaped(
    log_values: Tensor, shaping: str, *, gamma: float, weight: float, power: float
) -> Tensor:
    if shaping == "no_reshape":
        return log_values.exp()
    if shaping == "ratio":
        return torch.sigmoid(log_values - math.log(gamma))
    if shaping == "square_root":
        return (log_values / 2).exp()
    if shaping == "pow":
        return (power * log_values).exp()
    if shaping == "logp":
        return weight * log_values
    if shaping == "p_logp":
        return log_values.exp() + weight * log_values
    raise ValueError(f"unknown shaping {shaping!r}; expected {', '.join(SHAPINGS)}")


def _check(gamma: float, power: float) -> None:
    if not gamma > 0:
        raise ValueError(f"gamma={gamma}; expected a number above 0 (0.1 is the published one)")
    if not power > 0:
        raise ValueError(f"power={power}; expected a number above 0 (0.5 is the published one)")
