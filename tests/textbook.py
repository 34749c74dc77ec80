"""The policy objectives as the papers write them: one row, one token at a time, in float64.

Nothing of `workings.objectives` is used here. `step_loss` is what every cut of an optimizer step is
compared with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Chosen = Mapping[int, Sequence[bool]]


def response_logits(model, row):
    """Logits [T, V] that predict the response's tokens."""
    ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
    return model(ids).logits[0, len(row.prompt_ids) - 1 : -1]


def step_loss(
    rows,
    objective,
    model,
    *,
    max_length: int,
    shift: float = 0.3,
    reference=None,
    chosen: Chosen | None = None,
    kept: Chosen | None = None,
) -> Tensor:
    """The loss of a step. Old log-probabilities are the current ones plus shift * sin(token)."""
    o = objective
    trained = [row for row in rows if any(row.mask)]
    num_rows = len(rows) if o.count_masked_rows else len(trained)
    num_tokens = sum(sum(row.mask) for row in trained)
    group_tokens: dict[int, int] = {}
    for row in trained:
        group_tokens[row.group] = group_tokens.get(row.group, 0) + sum(row.mask)
    num_off = sum(1 for row in trained for t in _trained(row) if _is_off(row, t))
    total = torch.zeros((), dtype=torch.float64)
    for row in trained:
        table = torch.log_softmax(response_logits(model, row), -1)
        lp = [table[t, row.response_ids[t]] for t in range(len(row.response_ids))]
        old = [
            lp[t].detach() + shift * math.sin(row.response_ids[t])
            for t in range(len(row.response_ids))
        ]
        own = [t for t in _trained(row) if not _is_off(row, t)]
        ratios = _ratios(o, row, lp, old, own)
        n = sum(row.mask)
        scale = {
            "seq_mean_token_mean": 1 / (n * num_rows),
            "token_mean": 1 / num_tokens,
            "seq_mean_token_sum_norm": 1 / (num_rows * max_length),
            "seq_mean_token_sum": 1 / num_rows,
            "prompt_mean": 1 / (len(group_tokens) * group_tokens[row.group]),
        }[o.reduction]
        correction = _correction(o, row, old, own)
        for t in _trained(row):
            a = row.advantage[t] if isinstance(row.advantage, Sequence) else row.advantage
            if _is_off(row, t):
                loss = -a * _shaped(o, row, t, lp[t]) if o.off_policy_loss else 0.0
            else:
                is_chosen = bool(chosen and chosen[row.key][t])
                loss = _surrogate(o, lp[t], old[t], ratios.get(t), a, is_chosen, correction)
                if o.surrogate != "vespo":
                    loss = loss * correction[t]
            if kept is None or kept[row.key][t]:
                total = total + scale * loss * (num_rows if o.luffy_scale else 1)
            if o.beta > 0 and o.kl_in == "loss":
                ref = torch.log_softmax(response_logits(reference, row), -1)
                x = lp[t] - ref[t, row.response_ids[t]].detach()
                total = total + scale * o.beta * _kl(o, x, (lp[t] - old[t]).exp())
            if o.entropy_coef > 0:
                entropy = -(table[t].exp() * table[t]).sum()
                total = total - o.entropy_coef * entropy / num_tokens
            if o.sft_loss_coef > 0 and _is_off(row, t):
                total = total - o.sft_loss_coef * lp[t] / num_off
    return total


def stored(value: float) -> float:
    """The value as a rollout keeps it, in float32."""
    return torch.tensor(value, dtype=torch.float32).item()


def behaviour(row, t: int) -> float:
    """Log-probability with which the engine drew a token; it is float32 all the way."""
    kept = torch.tensor(row.kept_mass[t], dtype=torch.float32)
    return (torch.tensor(row.sampling_logprobs[t], dtype=torch.float32) - kept.log()).item()


def _trained(row) -> list[int]:
    return [t for t, keep in enumerate(row.mask) if keep]


def _is_off(row, t: int) -> bool:
    return bool(row.off_policy) and row.off_policy[t]


def _ratios(o, row, lp, old, own) -> dict[int, Tensor]:
    if o.ratio in ("none", "token"):
        return {t: (lp[t] - old[t]).exp() for t in own}
    if not own:
        return {}
    d = [lp[t] - old[t] for t in own]
    if o.ratio == "geo_clipped":
        a = row.advantage
        d = [
            (v.clamp(max=o.log_range) if a > 0 else v.clamp(min=-o.log_range)) if a else v
            for v in d
        ]
    total = torch.stack(d).sum()
    if o.ratio == "sequence_product":
        return {t: total.exp() for t in own}
    mean = (total / len(own)).exp()
    if o.ratio == "sequence_token":
        return {t: mean.detach() * (lp[t] - lp[t].detach()).exp() for t in own}
    return dict.fromkeys(own, mean)


def _clipped(o, r, a):
    low, high = 1 - o.epsilon, 1 + o.epsilon_high
    loss = -torch.minimum(r * a, r.clamp(low, high) * a)
    if o.dual_clip is not None and a < 0:
        loss = torch.minimum(loss, torch.tensor(-o.dual_clip * a, dtype=torch.float64))
    return loss


def _surrogate(o, lp, old, r, a, is_chosen, correction):
    if o.surrogate == "logp":
        return -a * lp
    if o.surrogate == "ratio":
        return -a * r
    if o.surrogate == "ppo_clip":
        return _clipped(o, r, a)
    if o.surrogate == "cispo":
        weight = r.detach().clamp(o.cap_low, o.cap_high)
        return -weight * a * lp
    if o.surrogate == "sapo":
        tau = o.tau_positive if a > 0 else o.tau_negative
        return -(4 / tau) / (1 + torch.exp(-tau * (r - 1))) * a
    if o.surrogate == "vespo":
        k, lam = o.vespo_positive if a >= 0 else o.vespo_negative
        w = (r.detach() * math.prod(correction.values())).clamp(1e-8)
        return -torch.exp(lam + k * torch.log(w) - lam * w) * a * lp
    if o.surrogate == "gmpo":
        return -a * r
    if o.surrogate == "dppo_tv":
        moved = lp.exp().item() - old.exp().item()
        keep = moved <= o.tv_high if a > 0 else moved >= -o.tv_low
        penalty = o.log_ratio_penalty * (lp - old) ** 2
        return -a * r.detach().clamp(max=o.ratio_cap) * lp * keep + penalty
    if o.surrogate == "clip_cov":
        return 0.0 * lp if is_chosen else _clipped(o, r, a)
    if o.surrogate == "kl_cov":
        return -r * a + (o.kl_cov_coef * (lp - old).abs() if is_chosen else 0.0)
    if o.surrogate == "dro":
        return -(a * lp - o.dro_beta / 2 * (lp - old) ** 2)
    raise AssertionError(o.surrogate)


def _shaped(o, row, t, lp):
    log_p = lp
    recorded = stored(row.recorded_logprobs[t]) if row.recorded_logprobs else math.nan
    if (o.use_teacher_probs or o.replay) and not math.isnan(recorded):
        floor = 1e-6 if o.use_teacher_probs else 0.0
        log_p = lp - math.log(math.exp(recorded) + floor)
    p = log_p.exp()
    if o.use_teacher_probs and not o.shape_teacher_ratio:
        return p
    return {
        "no_reshape": lambda: p,
        "ratio": lambda: p / (p + o.gamma),
        "square_root": lambda: p.sqrt(),
        "pow": lambda: p**o.off_shaping_power,
        "logp": lambda: o.off_shaping_weight * log_p,
        "p_logp": lambda: p + o.off_shaping_weight * log_p,
    }[o.off_shaping]()


def _correction(o, row, old, own) -> dict[int, float]:
    """Weight of every own token for the mismatch of sampler and trainer, kept mass included."""
    rho = {t: math.exp(old[t].item() - behaviour(row, t)) for t in own if o.correction != "none"}
    mean_log = sum(map(math.log, rho.values())) / max(len(rho), 1)
    product, geometric = math.exp(mean_log * len(rho)), math.exp(mean_log)
    k3 = sum(r - 1 - math.log(r) for r in rho.values()) / max(len(rho), 1)
    low, high, cap = o.correction_low, o.correction_high, o.correction_cap
    rules = {
        "none": lambda r: 1.0,
        "tis_token": lambda r: min(r, cap),
        "icepop": lambda r: r if low <= r <= high else 0.0,
        "seq_product_truncate": lambda r: min(product, cap),
        "seq_product_mask": lambda r: product if product <= cap else 0.0,
        "geometric_truncate": lambda r: min(geometric, cap),
        "geometric_mask": lambda r: float(low <= geometric <= high),
        "k3_reject": lambda r: float(k3 <= o.correction_threshold),
    }
    rule = rules[o.correction]
    return {t: rule(rho.get(t, 1.0)) for t in _trained(row)} | {
        t: rule(rho.get(t, 1.0)) for t in own
    }


def _kl(o, x, r):
    k3 = torch.exp(-x) + x - 1
    k2 = x**2 / 2
    return {
        "k1": lambda: x,
        "abs": lambda: x.abs(),
        "k2": lambda: k2,
        "k3": lambda: k3,
        "k1_plus": lambda: x.detach() + k2 - k2.detach(),
        "k3_plus": lambda: k3.detach() + k2 - k2.detach(),
        "k3_is": lambda: r * k3,
    }[o.kl_estimator]()
