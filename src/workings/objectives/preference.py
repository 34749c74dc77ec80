"""Losses on preference pairs: DPO and its relatives (objectives reference, section 11).

Notation: c and j are the summed log-ratios of policy to reference of the chosen and of the rejected
response, D = c - j, n_c and n_j their lengths in tokens, b = beta, e = label smoothing. Policy =
reference is c = j = 0. Every loss is one number for each pair; a step's loss is their mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, relu

PreferenceLoss = Literal[
    "sigmoid",
    "cdpo",
    "robust",
    "hinge",
    "ipo",
    "sigmoid_norm",
    "exo_pair",
    "nca_pair",
    "bco_pair",
    "sppo_hard",
    "apo_zero",
    "apo_down",
    "aot",
    "aot_unpaired",
    "discopop",
]

DISCOPOP_TEMPERATURE = 0.05
_MAX_EXPONENT = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedPartners:
    """What aot and aot_unpaired compare each pair with, over a whole step; [P] each, no gradient.

    Attributes:
        ref_margins: the reference's margin of the rank that the pair's policy margin has.
        rejected: the rejected log-ratio of the rank that the pair's chosen one has.
        chosen: the chosen log-ratio of the rank that the pair's rejected one has.
    """

    ref_margins: Tensor
    rejected: Tensor
    chosen: Tensor

    def of(self, pairs: Tensor) -> SortedPartners:
        """The partners of some pairs of the step: `pairs` int64, their places in it."""
        return SortedPartners(
            ref_margins=self.ref_margins[pairs],
            rejected=self.rejected[pairs],
            chosen=self.chosen[pairs],
        )


def sorted_partners(chosen: Tensor, rejected: Tensor, ref_margins: Tensor) -> SortedPartners:
    """The partners of every pair of a step, from values of the whole step, [P] each.

    `chosen` and `rejected` are log-ratios; `ref_margins` is ref(chosen) - ref(rejected) in nats.
    With them each pair's loss and gradient is known whatever else stands in its microbatch.
    """
    chosen, rejected, ref_margins = chosen.detach(), rejected.detach(), ref_margins.detach()
    if len(chosen) < 2:
        raise ValueError(f"aot sorts the pairs of a step and got {len(chosen)}; expected 2 or more")
    return SortedPartners(
        ref_margins=_at_same_rank(chosen - rejected + ref_margins, ref_margins),
        rejected=_at_same_rank(chosen, rejected),
        chosen=_at_same_rank(rejected, chosen),
    )


def preference_loss(
    chosen: Tensor,
    rejected: Tensor,
    *,
    loss: PreferenceLoss = "sigmoid",
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    chosen_lengths: Tensor | None = None,
    rejected_lengths: Tensor | None = None,
    ipo_sum: bool = False,
    ref_margins: Tensor | None = None,
    partners: SortedPartners | None = None,
) -> Tensor:
    """The loss of each pair, [P], from summed log-ratios `chosen` and `rejected`, [P] in nats.

    - sigmoid: -logsig(bD) (DPO, 2305.18290, eq. 7)
    - cdpo: -(1-e) logsig(bD) - e logsig(-bD) (conservative DPO; labels flipped at rate e)
    - robust: [-(1-e) logsig(bD) + e logsig(-bD)] / (1-2e), e < 1/2 (2403.00409)
    - hinge: relu(1 - bD) (SLiC, 2305.10425)
    - ipo: (c/n_c - j/n_j - 1/(2b))^2; with `ipo_sum` of D (2310.12036, eq. 17)
    - sigmoid_norm: -logsig(b (c/n_c - j/n_j))
    - exo_pair: KL of (sig(bD), sig(-bD)) to (1-e, e), e > 0 (2402.00856)
    - nca_pair: -logsig(bc) - logsig(-bc)/2 - logsig(-bj)/2 (2402.05369)
    - bco_pair: -logsig(bc) - logsig(-bj) (2404.04656, without its running shift)
    - sppo_hard: (c - 1/(2b))^2 + (j + 1/(2b))^2 (2405.00675)
    - apo_zero: 1 - sig(bc) + sig(bj); apo_down: sig(bc) + 1 - sig(bD) (2408.06266)
    - aot: cdpo on the k-th largest policy margin minus the k-th largest reference margin; needs
      `ref_margins`, ref(chosen) - ref(rejected); aot_unpaired: on the k-th largest c minus the k-th
      largest j (2406.05882). The sort is over the pairs given, or over the whole step where its
      `partners` are given.
    - discopop: -logsig(bD) and exp(-bD), blended by sig(bD/tau), tau = 0.05 (2406.08414)

    Lengths, [P], are needed by ipo and sigmoid_norm alone.

    >>> import torch
    >>> c, j = torch.tensor([2.0]).double(), torch.tensor([-1.0]).double()
    >>> round(preference_loss(c, j, loss="sigmoid", beta=0.1).item(), 6)
    0.554355
    >>> round(preference_loss(0 * c, 0 * j).item(), 6)
    0.693147
    """
    if loss not in _LOSSES:
        raise ValueError(f"unknown preference loss {loss!r}; expected one of {', '.join(_LOSSES)}")
    if beta <= 0:
        raise ValueError(f"beta={beta}; expected a number above 0")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing={label_smoothing}; expected a value in [0, 1)")
    if loss in ("aot", "aot_unpaired") and partners is None:
        if loss == "aot" and ref_margins is None:
            raise ValueError("aot needs ref_margins, the reference's margin of every pair")
        margins = torch.zeros_like(chosen) if ref_margins is None else ref_margins
        partners = sorted_partners(chosen, rejected, margins)
    pairs = _Pairs(
        chosen=chosen,
        rejected=rejected,
        beta=beta,
        smoothing=label_smoothing,
        chosen_lengths=chosen_lengths,
        rejected_lengths=rejected_lengths,
        ipo_sum=ipo_sum,
        ref_margins=ref_margins,
        partners=partners,
    )
    return _LOSSES[loss](pairs)


def discounted_sums(
    logprobs: Tensor, mask: Tensor, shared_lengths: Tensor, *, ld_alpha: float = 1.0
) -> Tensor:
    """Summed log-probabilities of responses, [B], tokens beyond the shared length times `ld_alpha`.

    `logprobs` [B, T] and `mask` [B, T] bool; `shared_lengths` [B] int64 is the length of the
    shorter response of the row's pair. LD-DPO (2409.06411); applied to the policy and to the
    reference alike, so that policy = reference stays a log-ratio of 0. 1 sums all tokens.

    >>> import torch
    >>> row = torch.tensor([[-1.0, -2.0, -4.0]])
    >>> discounted_sums(row, row < 0, torch.tensor([2]), ld_alpha=0.5).item()
    -5.0
    """
    if ld_alpha != 1:
        beyond = mask.long().cumsum(1) > shared_lengths[:, None]
        logprobs = torch.where(beyond, ld_alpha * logprobs, logprobs)
    return torch.where(mask, logprobs, 0.0).sum(1)


def chosen_nll(chosen_logprobs: Tensor, num_tokens: int) -> Tensor:
    """Each pair's share, [P], of the token mean of -log p(chosen): the SFT term, RPO (2404.19733).

    `chosen_logprobs` are the policy's summed log-probabilities; `num_tokens` counts the tokens of
    all chosen responses of the step.
    """
    return -chosen_logprobs / max(num_tokens, 1)


def preferred(chosen: Tensor, rejected: Tensor, *, tolerance: float = 0.0) -> Tensor:
    """1 where the chosen value is larger, 0 where it is smaller, 0.5 on ties; [P], no gradient.

    Of rewards (b times log-ratios) it is the accuracy of the implicit reward; of the policy's own
    log-probabilities the raw preference, which the course calls by the same name. Values no further
    apart than `tolerance` are ties.

    >>> import torch
    >>> preferred(torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0.0, 0.0, 3.0])).tolist()
    [1.0, 0.5, 0.0]
    """
    gap = (chosen - rejected).detach()
    return torch.where(gap.abs() <= tolerance, 0.5, (gap > 0).to(gap.dtype))


# ------------------------------------------------------------------------------ the formulas


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """The arguments of `preference_loss`."""

    chosen: Tensor
    rejected: Tensor
    beta: float
    smoothing: float
    chosen_lengths: Tensor | None
    rejected_lengths: Tensor | None
    ipo_sum: bool
    ref_margins: Tensor | None
    partners: SortedPartners | None

    @property
    def logits(self) -> Tensor:
        """b D."""
        return self.beta * (self.chosen - self.rejected)

    @property
    def mean_margin(self) -> Tensor:
        """c / n_c - j / n_j."""
        if self.chosen_lengths is None or self.rejected_lengths is None:
            raise ValueError("ipo and sigmoid_norm need chosen_lengths and rejected_lengths")
        return self.chosen / self.chosen_lengths.clamp(
            min=1
        ) - self.rejected / self.rejected_lengths.clamp(min=1)


def _smoothed(logits: Tensor, smoothing: float) -> Tensor:
    return -(1 - smoothing) * logsigmoid(logits) - smoothing * logsigmoid(-logits)


def _robust(pairs: _Pairs) -> Tensor:
    e, logits = pairs.smoothing, pairs.logits
    if e >= 0.5:
        raise ValueError(f"robust needs label_smoothing below 0.5, got {e}")
    return (-(1 - e) * logsigmoid(logits) + e * logsigmoid(-logits)) / (1 - 2 * e)


def _ipo(pairs: _Pairs) -> Tensor:
    margin = pairs.chosen - pairs.rejected if pairs.ipo_sum else pairs.mean_margin
    return (margin - 1 / (2 * pairs.beta)) ** 2


def _exo_pair(pairs: _Pairs) -> Tensor:
    e, logits = pairs.smoothing, pairs.logits
    if e <= 0:
        raise ValueError("exo_pair needs label_smoothing above 0: its target has a logarithm")
    target = torch.tensor([1 - e, e], dtype=logits.dtype, device=logits.device).log()
    log_first, log_second = logsigmoid(logits), logsigmoid(-logits)
    return log_first.exp() * (log_first - target[0]) + log_second.exp() * (log_second - target[1])


def _nca_pair(pairs: _Pairs) -> Tensor:
    chosen, rejected = pairs.beta * pairs.chosen, pairs.beta * pairs.rejected
    return -logsigmoid(chosen) - 0.5 * logsigmoid(-chosen) - 0.5 * logsigmoid(-rejected)


def _sppo_hard(pairs: _Pairs) -> Tensor:
    target = 1 / (2 * pairs.beta)
    return (pairs.chosen - target) ** 2 + (pairs.rejected + target) ** 2


def _apo_zero(pairs: _Pairs) -> Tensor:
    chosen, rejected = pairs.beta * pairs.chosen, pairs.beta * pairs.rejected
    return 1 - chosen.sigmoid() + rejected.sigmoid()


def _discopop(pairs: _Pairs) -> Tensor:
    logits = pairs.logits
    share = (logits / DISCOPOP_TEMPERATURE).sigmoid()
    exponential = (-logits).clamp(max=_MAX_EXPONENT).exp()
    return (1 - share) * -logsigmoid(logits) + share * exponential


def _aot(pairs: _Pairs) -> Tensor:
    assert pairs.partners is not None
    if pairs.ref_margins is None:
        raise ValueError("aot needs ref_margins, the reference's margin of every pair")
    margins = pairs.chosen - pairs.rejected + pairs.ref_margins.detach()
    return _smoothed(pairs.beta * (margins - pairs.partners.ref_margins), pairs.smoothing)


def _aot_unpaired(pairs: _Pairs) -> Tensor:
    """Value by the chosen side; each side's gradient with the other side's partner held fixed."""
    assert pairs.partners is not None
    by_chosen = pairs.beta * (pairs.chosen - pairs.partners.rejected)
    by_rejected = _smoothed(pairs.beta * (pairs.partners.chosen - pairs.rejected), pairs.smoothing)
    return _smoothed(by_chosen, pairs.smoothing) + by_rejected - by_rejected.detach()


def _at_same_rank(values: Tensor, others: Tensor) -> Tensor:
    """For each of `values`, [P], the one of `others` with the same rank; earlier pairs win ties."""
    ranks = values.argsort(stable=True).argsort(stable=True)
    return others.sort(stable=True).values[ranks]


_LOSSES: dict[str, Callable[[_Pairs], Tensor]] = {
    "sigmoid": lambda pairs: -logsigmoid(pairs.logits),
    "cdpo": lambda pairs: _smoothed(pairs.logits, pairs.smoothing),
    "robust": _robust,
    "hinge": lambda pairs: relu(1 - pairs.logits),
    "ipo": _ipo,
    "sigmoid_norm": lambda pairs: -logsigmoid(pairs.beta * pairs.mean_margin),
    "exo_pair": _exo_pair,
    "nca_pair": _nca_pair,
    "bco_pair": lambda pairs: (
        -logsigmoid(pairs.beta * pairs.chosen) - logsigmoid(-pairs.beta * pairs.rejected)
    ),
    "sppo_hard": _sppo_hard,
    "apo_zero": _apo_zero,
    "apo_down": lambda pairs: (pairs.beta * pairs.chosen).sigmoid() + 1 - pairs.logits.sigmoid(),
    "aot": _aot,
    "aot_unpaired": _aot_unpaired,
    "discopop": _discopop,
}
