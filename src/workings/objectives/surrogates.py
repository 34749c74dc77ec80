"""Per-token policy losses. Each maps tensors to a loss of the same shape; nothing is reduced here.

Shapes: `logprobs`, `old_logprobs` and `log_ratios` [B, T], `advantages` [B, T] or [B, 1].
`log_ratios` comes from `ratios.level_log_ratio` and r is its exponential; `old_logprobs` carries no
gradient, and sg[.] stops one. Losses are minimised. `surrogate_loss` chooses by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from workings.config.objective import SURROGATE_CONSTANTS, Surrogate
from workings.objectives.ratios import MAX_LOG_RATIO, at_least_float32

SURROGATES: tuple[str, ...] = get_args(Surrogate)
# Keywords that each surrogate reads; `surrogate_loss` refuses any other.
SURROGATE_KEYWORDS = SURROGATE_CONSTANTS
# Surrogates that treat the tokens of `selection` apart.
COVARIANCE_SURROGATES = frozenset({"clip_cov", "kl_cov"})
# VESPO looks at weights within [1e-8, e^20].
MIN_LOG_WEIGHT = math.log(1e-8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedTokens:
    """Where `ppo_clip` has no gradient, each [B, T] bool.

    `low` is r < 1 - epsilon with A < 0, `high` is r > 1 + epsilon_high with A > 0, `dual` is
    r > dual_clip with A < 0.
    """

    low: Tensor
    high: Tensor
    dual: Tensor


def surrogate_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    log_ratios: Tensor,
    advantages: Tensor,
    *,
    surrogate: Surrogate,
    mask: Tensor | None = None,
    chosen: Tensor | None = None,
    correction: Tensor | None = None,
    **constants: Any,
) -> Tensor:
    """Per-token loss [B, T] of the named surrogate, float32 or wider.

    Args:
        mask: [B, T] bool. Off it the loss is 0 with gradient 0, whatever stands in the other
            tensors, inf and NaN included.
        chosen: [B, T] bool from `selection`, for clip_cov and kl_cov, which need it.
        correction: [B, T] weights for the mismatch of sampler and trainer, 1 off the mask. They
            multiply the loss; vespo folds their product over the row into its weight instead, and
            needs `mask` for it.
        constants: keywords of the function of that surrogate, with its defaults. One that it does
            not read raises ValueError.
    """
    _check(surrogate, constants, chosen)
    logprobs, log_ratios = at_least_float32(logprobs), at_least_float32(log_ratios)
    advantages, old_logprobs = at_least_float32(advantages), old_logprobs.detach()
    if mask is not None:
        mask = mask.bool()
        logprobs, old_logprobs, log_ratios, advantages = (
            torch.where(mask, values, 0.0)
            for values in (logprobs, old_logprobs, log_ratios, advantages)
        )
    if correction is not None:
        correction = correction.detach()
        correction = correction if mask is None else torch.where(mask, correction, 1.0)
    if surrogate == "vespo":
        if correction is not None:
            if mask is None:
                raise ValueError("vespo with a correction needs mask, to multiply over the row")
            log_ratios = _log_row_weights(logprobs, old_logprobs, correction)
        return vespo(logprobs, log_ratios, advantages, **constants)
    loss = _plain_loss(
        logprobs, old_logprobs, log_ratios, advantages, surrogate, chosen, **constants
    )
    return loss if correction is None else loss * correction


def policy_gradient(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """-A log pi (REINFORCE, Williams 1992). GPG is this with its advantage (2504.02546)."""
    return -advantages * logprobs


def ratio_surrogate(log_ratios: Tensor, advantages: Tensor) -> Tensor:
    """-r A, not clipped."""
    return -advantages * _ratio(log_ratios)


def ppo_clip(
    log_ratios: Tensor,
    advantages: Tensor,
    *,
    epsilon: float,
    epsilon_high: float | None = None,
    dual_clip: float | None = None,
) -> Tensor:
    """-min(min(r, dual_clip) A, clip(r, 1 - epsilon, 1 + epsilon_high) A).

    PPO (1707.06347, eq. 7); a wider `epsilon_high` is the clip-higher of DAPO (2503.14476, eq. 8),
    None takes `epsilon`. `dual_clip` bounds the loss of tokens with A < 0 (1912.09729, eq. 5);
    being above 1 + `epsilon_high`, it is also the delta of INTELLECT-2 (2505.07291).
    """
    high = 1 + (epsilon if epsilon_high is None else epsilon_high)
    ratio = _ratio(log_ratios)
    clipped = ratio.clamp(1 - epsilon, high)
    if dual_clip is not None:
        if dual_clip < high:
            raise ValueError(
                f"dual_clip={dual_clip} lies inside the clip range, which ends at {high}; "
                "3.0 is usual"
            )
        ratio = ratio.clamp(max=dual_clip)
    return -torch.minimum(ratio * advantages, clipped * advantages)


def cispo(
    logprobs: Tensor,
    log_ratios: Tensor,
    advantages: Tensor,
    *,
    cap_low: float | None = None,
    cap_high: float | None = 5.0,
) -> Tensor:
    """-sg[clip(r, cap_low, cap_high)] A log pi (MiniMax-M1, 2506.13585, eq. 4).

    A capped token keeps its gradient. The caps are on the ratio itself; None leaves a side open.
    """
    ratio = _ratio(log_ratios.detach())
    if cap_low is not None or cap_high is not None:
        ratio = ratio.clamp(cap_low, cap_high)
    return -ratio * advantages * logprobs


def sapo(
    log_ratios: Tensor,
    advantages: Tensor,
    *,
    tau_positive: float = 1.0,
    tau_negative: float = 1.05,
) -> Tensor:
    """-(4 / tau) sigmoid(tau (r - 1)) A with tau by the sign of A (SAPO, 2511.20347)."""
    good, bad = log_ratios.new_tensor([tau_positive, tau_negative])
    tau = torch.where(advantages > 0, good, bad)
    return -(4 / tau) * torch.sigmoid(tau * (_ratio(log_ratios) - 1)) * advantages


def vespo(
    logprobs: Tensor,
    log_weights: Tensor,
    advantages: Tensor,
    *,
    vespo_positive: tuple[float, float] = (2.0, 3.0),
    vespo_negative: tuple[float, float] = (3.0, 2.0),
) -> Tensor:
    """-sg[phi] A log pi with phi = exp(lam + k log w - lam w) (VESPO, 2602.10693).

    `log_weights` [B, T] holds log w, of the whole row, at each of its tokens. (k, lam) is
    `vespo_positive` where A >= 0, else `vespo_negative`; phi peaks at w = k / lam and is 1 at 1.
    """
    log_w = log_weights.detach().clamp(MIN_LOG_WEIGHT, MAX_LOG_RATIO)
    positive = advantages >= 0
    above, below = log_w.new_tensor([vespo_positive, vespo_negative])
    k, lam = (torch.where(positive, above[i], below[i]) for i in range(2))
    phi = torch.exp(lam + k * log_w - lam * log_w.exp())
    phi = torch.where(torch.isfinite(phi), phi, 0.0)
    return -phi * advantages * logprobs


def gmpo(log_ratios: Tensor, advantages: Tensor) -> Tensor:
    """-A r with r the geometric mean of the row's clipped ratios (GMPO, 2507.20673, eq. 4).

    `log_ratios` are those of the level geo_clipped, which is where the clip is.
    """
    return ratio_surrogate(log_ratios, advantages)


def dppo_tv(
    logprobs: Tensor,
    old_logprobs: Tensor,
    log_ratios: Tensor,
    advantages: Tensor,
    *,
    tv_low: float = 0.2,
    tv_high: float = 0.2,
    ratio_cap: float = 20.0,
    log_ratio_penalty: float = 0.0,
) -> Tensor:
    """-A sg[min(r, ratio_cap)] log pi on the tokens kept, plus log_ratio_penalty (log r)^2 on all.

    A token is kept while its probability p has not moved too far the way the advantage pushes it:
    p - p_old <= `tv_high` where A > 0, p - p_old >= -`tv_low` elsewhere (DPPO, 2602.04879).
    """
    moved = logprobs.detach().exp() - old_logprobs.detach().exp()
    kept = torch.where(advantages > 0, moved <= tv_high, moved >= -tv_low)
    weight = _ratio(log_ratios.detach()).clamp(max=ratio_cap)
    loss = torch.where(kept, -advantages * weight * logprobs, 0.0)
    if log_ratio_penalty:
        loss = loss + log_ratio_penalty * log_ratios.square()
    return loss


def clip_cov(
    log_ratios: Tensor,
    advantages: Tensor,
    chosen: Tensor,
    *,
    epsilon: float,
    epsilon_high: float | None = None,
    dual_clip: float | None = None,
) -> Tensor:
    """`ppo_clip`, and 0 on the tokens `chosen` for their covariance (2505.22617, eq. 11)."""
    loss = ppo_clip(
        log_ratios, advantages, epsilon=epsilon, epsilon_high=epsilon_high, dual_clip=dual_clip
    )
    return torch.where(chosen, 0.0, loss)


def kl_cov(
    log_ratios: Tensor, advantages: Tensor, chosen: Tensor, *, kl_cov_coef: float = 0.1
) -> Tensor:
    """-r A, and kl_cov_coef |log r| on top on the tokens `chosen` (2505.22617, eq. 13)."""
    loss = ratio_surrogate(log_ratios, advantages)
    return torch.where(chosen, loss + kl_cov_coef * log_ratios.abs(), loss)


def dro(logprobs: Tensor, log_ratios: Tensor, advantages: Tensor, *, dro_beta: float) -> Tensor:
    """-(A log pi - (dro_beta / 2) (log r)^2) (direct reward optimisation, 2405.19107)."""
    return -advantages * logprobs + dro_beta / 2 * log_ratios.square()


def clipped_tokens(
    log_ratios: Tensor,
    advantages: Tensor,
    *,
    epsilon: float,
    epsilon_high: float | None = None,
    dual_clip: float | None = None,
) -> ClippedTokens:
    """Where `ppo_clip` with these bounds takes a constant branch, three kinds apart."""
    ratio = _ratio(log_ratios.detach())
    high = 1 + (epsilon if epsilon_high is None else epsilon_high)
    negative = (advantages < 0).expand_as(ratio)
    return ClippedTokens(
        low=(ratio < 1 - epsilon) & negative,
        high=(ratio > high) & (advantages > 0),
        dual=torch.zeros_like(negative) if dual_clip is None else (ratio > dual_clip) & negative,
    )


def _plain_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    log_ratios: Tensor,
    advantages: Tensor,
    surrogate: str,
    chosen: Tensor | None,
    **constants: Any,
) -> Tensor:
    """The loss of any surrogate but vespo, from arguments that were checked."""
    if surrogate == "logp":
        return policy_gradient(logprobs, advantages)
    if surrogate == "ratio":
        return ratio_surrogate(log_ratios, advantages)
    if surrogate == "ppo_clip":
        return ppo_clip(log_ratios, advantages, **constants)
    if surrogate == "cispo":
        return cispo(logprobs, log_ratios, advantages, **constants)
    if surrogate == "sapo":
        return sapo(log_ratios, advantages, **constants)
    if surrogate == "gmpo":
        return gmpo(log_ratios, advantages)
    if surrogate == "dppo_tv":
        return dppo_tv(logprobs, old_logprobs, log_ratios, advantages, **constants)
    if surrogate == "dro":
        return dro(logprobs, log_ratios, advantages, **constants)
    assert chosen is not None
    if surrogate == "clip_cov":
        return clip_cov(log_ratios, advantages, chosen, **constants)
    return kl_cov(log_ratios, advantages, chosen, **constants)


def _check(surrogate: str, constants: dict[str, Any], chosen: Tensor | None) -> None:
    if surrogate not in SURROGATE_KEYWORDS:
        raise ValueError(f"unknown surrogate {surrogate!r}; expected {', '.join(SURROGATES)}")
    read = SURROGATE_KEYWORDS[surrogate]
    for name, value in constants.items():
        if name not in read:
            raise ValueError(
                f"{name}={value} was given, but the surrogate {surrogate!r} does not read it; "
                f"it reads {', '.join(read) or 'no constant'}"
            )
    for name, users in (("epsilon", ("ppo_clip", "clip_cov")), ("dro_beta", ("dro",))):
        if surrogate in users and constants.get(name) is None:
            raise ValueError(f"the surrogate {surrogate!r} needs {name}")
    if (chosen is not None) != (surrogate in COVARIANCE_SURROGATES):
        verb = "does not read" if chosen is not None else "needs"
        raise ValueError(f"the surrogate {surrogate!r} {verb} chosen, the tokens of `selection`")


def _log_row_weights(logprobs: Tensor, old_logprobs: Tensor, correction: Tensor) -> Tensor:
    """log of the row's product of ratios and corrections, [B, 1], from inputs that are 0 or 1 off
    the mask. The sum is not bounded on the way: the two factors may be huge and cancel.
    """
    logs = logprobs.detach() - old_logprobs + correction.to(logprobs.dtype).log()
    return logs.sum(1, keepdim=True)


def _ratio(log_ratios: Tensor) -> Tensor:
    return log_ratios.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
