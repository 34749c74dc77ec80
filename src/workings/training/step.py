"""Hop 6: forward, backward, clip, optimizer step. What the step measured comes back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from workings.errors import TrainingError
from workings.training.compute_weights import compute_weights
from workings.training.distributed import Ranks, Totals, average_gradients, merge_totals
from workings.training.forward import ResponseScores, response_scores
from workings.training.offloaded_adamw import OffloadedAdamW
from workings.training.packing import MicroBatch

NORM_SLACK = 1e-6
"""What torch adds to a norm before it divides by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOutput:
    """A microbatch's share of the step's loss, and what to report.

    Attributes:
        loss: scalar with gradient; shares of all microbatches and ranks add up to the step's loss.
        sums: detached scalars that add up over microbatches.
        maxima: detached scalars of which the largest is kept.
    """

    loss: Tensor
    sums: dict[str, Tensor] = field(default_factory=dict)
    maxima: dict[str, Tensor] = field(default_factory=dict)


LossFunction = Callable[[ResponseScores, MicroBatch], LossOutput]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What an optimizer step did.

    Attributes:
        loss: of the whole step, over all ranks.
        grad_norm: L2, before clipping.
        skipped: True when the gradient was not finite or too long, and the weights left alone.
        sums, maxima: totals of the loss function's reports, over all ranks.
    """

    loss: float
    grad_norm: float
    skipped: bool
    sums: dict[str, float]
    maxima: dict[str, float]


def policy_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    microbatches: Sequence[MicroBatch],
    loss: LossFunction,
    *,
    temperature: float = 1.0,
    max_grad_norm: float = 1.0,
    skip_above: float | None = None,
    autocast: torch.dtype | None = None,
    ranks: Ranks | None = None,
) -> StepOutcome:
    """One optimizer step over `microbatches`; model and optimizer are changed in place.

    Each microbatch adds its share of the step's loss, so nothing is divided here. Gradients are
    averaged over ranks after the last backward pass, so a share is multiplied by their number. A
    step with no microbatch (nothing to train) still steps with zero gradients, as it would had its
    rows been computed; so does a rank without any, with the gradients of the others. A gradient
    that is not finite, or longer than `skip_above`, leaves the weights alone. Nothing here waits
    for the device after the update has begun, so the next step's rows are packed meanwhile.
    """
    _refuse_wrapper(model)
    ranks = ranks or Ranks()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.zero_grad(set_to_none=True)
    model.train()
    total: Tensor | None = None
    sums: dict[str, Tensor] = {}
    maxima: dict[str, Tensor] = {}
    with compute_weights(model, autocast):
        for batch in microbatches:
            scores = response_scores(model, batch, temperature=temperature, autocast=autocast)
            output = loss(scores, batch)
            (output.loss * ranks.size).backward()  # type: ignore[no-untyped-call]
            share = output.loss.detach()
            total = share if total is None else total + share
            for name, value in output.sums.items():
                sums[name] = sums[name] + value if name in sums else value
            for name, value in output.maxima.items():
                maxima[name] = torch.maximum(maxima[name], value) if name in maxima else value
    model.eval()
    if isinstance(optimizer, OffloadedAdamW) and optimizer.offloads_gradients:
        _refuse_ranks(ranks)
        grad_norm = float(optimizer.clip_gradients(max_grad_norm))
    else:
        average_gradients(parameters, ranks)
        grad_norm = _clipped_norm(parameters, max_grad_norm)
    skipped = not math.isfinite(grad_norm) or (skip_above is not None and grad_norm > skip_above)
    measured = Totals(
        loss=0.0 if total is None else float(total.item()),
        sums=_numbers(sums),
        maxima=_numbers(maxima),
    )
    if skipped:
        optimizer.zero_grad(set_to_none=True)
    else:
        optimizer.step()
    over_all = merge_totals(measured, ranks)
    return StepOutcome(
        loss=over_all.loss,
        grad_norm=grad_norm,
        skipped=skipped,
        sums=over_all.sums,
        maxima=over_all.maxima,
    )


@torch.no_grad()
def score(
    model: nn.Module,
    microbatches: Sequence[MicroBatch],
    *,
    temperature: float = 1.0,
    autocast: torch.dtype | None = None,
) -> list[MicroBatch]:
    """The microbatches with `old_logprobs` and `entropies` of the current weights filled in.

    Called before the first of several updates on one rollout batch, and where a whole step's values
    must be known before its loss.
    """
    model.eval()
    scored = []
    with compute_weights(model, autocast):
        for batch in microbatches:
            scores = response_scores(model, batch, temperature=temperature, autocast=autocast)
            scored.append(replace(batch, old_logprobs=scores.logprobs, entropies=scores.entropies))
    return scored


def _refuse_wrapper(model: nn.Module) -> None:
    if isinstance(model, DistributedDataParallel):
        raise TrainingError(
            "the model is wrapped in DistributedDataParallel; a step averages gradients itself, "
            "once, whatever the number of microbatches",
            hint="pass the wrapped model, `model.module`",
        )


def _refuse_ranks(ranks: Ranks) -> None:
    if ranks.size > 1:
        raise TrainingError(
            f"gradients in CPU memory are those of one process; there are {ranks.size}",
            hint="set optimizer.offload_gradients=false",
        )


def _clipped_norm(parameters: Sequence[nn.Parameter], max_norm: float) -> float:
    """L2 norm of all gradients before they are clipped to `max_norm` in place (0: left alone).

    Reading it is the one time that a step waits for the device before its end; a gradient that is
    short enough is then not written again.
    """
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, dtype=parameter.grad_dtype)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    value = float(norm)
    if max_norm > 0 and math.isfinite(value) and value + NORM_SLACK > max_norm:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return value


def _numbers(values: dict[str, Tensor]) -> dict[str, float]:
    """Scalars as Python numbers, fetched from their device at once."""
    if not values:
        return {}
    table = torch.stack([value.double() for value in values.values()])
    return dict(zip(values, table.tolist(), strict=True))
