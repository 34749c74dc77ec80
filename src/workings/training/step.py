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
from workings.training.fused.adamw import FusedAdamW, norm_of
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
    meanwhile: Callable[[], None] | None = None,
) -> StepOutcome:
    """One optimizer step over `microbatches`; model and optimizer are changed in place.

    Each microbatch adds its share of the step's loss, so nothing is divided here. Gradients are
    averaged over ranks after the last backward pass, so a share is multiplied by their number. A
    step with no microbatch (nothing to train) still steps with zero gradients, as it would had its
    rows been computed; so does a rank without any, with the gradients of the others. A gradient
    that is not finite, or longer than `skip_above`, leaves the weights alone. Nothing here waits
    for the update itself. `meanwhile` is called while the device works on the backward pass, whose
    results are waited for next: the time to prepare the next step.
    """
    _refuse_wrapper(model)
    ranks = ranks or Ranks()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.zero_grad(set_to_none=True)
    model.train()
    total: Tensor | None = None
    sums: dict[str, Tensor] = {}
    maxima: dict[str, Tensor] = {}
    widens = len(microbatches) > 1 or ranks.size > 1 or not _takes_half(optimizer)
    with compute_weights(model, autocast, widens=widens):
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
    if meanwhile is not None:
        meanwhile()
    reports = {"loss": total} if total is not None else {}
    reports |= {f"sums/{name}": value for name, value in sums.items()}
    reports |= {f"maxima/{name}": value for name, value in maxima.items()}
    if isinstance(optimizer, OffloadedAdamW) and optimizer.offloads_gradients:
        _refuse_ranks(ranks)
        grad_norm = float(optimizer.clip_gradients(max_grad_norm))
        numbers = _update(optimizer, grad_norm, skip_above, reports)
    elif _updates_on_device(optimizer, parameters):
        average_gradients(parameters, ranks)
        numbers = _update_on_device(optimizer, parameters, max_grad_norm, skip_above, reports)
        grad_norm = numbers["norm"]
    else:
        average_gradients(parameters, ranks)
        grad_norm = _clipped_norm(parameters, max_grad_norm)
        numbers = _update(optimizer, grad_norm, skip_above, reports)
    measured = Totals(
        loss=numbers.get("loss", 0.0),
        sums={name: numbers[f"sums/{name}"] for name in sums},
        maxima={name: numbers[f"maxima/{name}"] for name in maxima},
    )
    over_all = merge_totals(measured, ranks)
    return StepOutcome(
        loss=over_all.loss,
        grad_norm=grad_norm,
        skipped=_is_skipped(grad_norm, skip_above),
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


def _is_skipped(grad_norm: float, skip_above: float | None) -> bool:
    return not math.isfinite(grad_norm) or (skip_above is not None and grad_norm > skip_above)


def _update(
    optimizer: torch.optim.Optimizer,
    grad_norm: float,
    skip_above: float | None,
    reports: dict[str, Tensor],
) -> dict[str, float]:
    """Steps with gradients that have been clipped, unless they are to be skipped; the reports."""
    numbers = _Fetched(reports).numbers()
    if _is_skipped(grad_norm, skip_above):
        optimizer.zero_grad(set_to_none=True)
    else:
        optimizer.step()
    return numbers


def _takes_half(optimizer: torch.optim.Optimizer) -> bool:
    return isinstance(optimizer, FusedAdamW) and optimizer.takes_half


def _updates_on_device(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]
) -> bool:
    """True where `_update_on_device` can be used: fused AdamW with all weights on a GPU."""
    return isinstance(optimizer, FusedAdamW) and all(p.is_cuda for p in parameters)


def _update_on_device(
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[nn.Parameter],
    max_norm: float,
    skip_above: float | None,
    reports: dict[str, Tensor],
) -> dict[str, float]:
    """Clips, steps or skips without the CPU's word; the reports and the norm as `norm`.

    The fused optimizer divides gradients and leaves weights alone as two scalars on the device
    tell it. What the CPU reads is copied before the update begins, so the device is never without
    work: it updates while the next step is prepared.
    """
    norm = _norm(parameters)
    fetched = _Fetched(reports | {"norm": norm})
    steers = {"found_inf": ~norm.isfinite()}
    if skip_above is not None:
        steers["found_inf"] |= norm > skip_above
    steers["found_inf"] = steers["found_inf"].float()
    if max_norm > 0:
        steers["grad_scale"] = ((norm.float() + NORM_SLACK) / max_norm).clamp_min(1.0)
    for name, value in steers.items():
        setattr(optimizer, name, value)
    try:
        optimizer.step()
    finally:
        for name in steers:
            setattr(optimizer, name, None)
    numbers = fetched.numbers()
    if _is_skipped(numbers["norm"], skip_above):
        optimizer.zero_grad(set_to_none=True)
    return numbers


def _norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """L2 norm of all gradients; a weight without one gets zeros."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, dtype=parameter.grad_dtype)
    return norm_of([p.grad for p in parameters if p.grad is not None])


def _clipped_norm(parameters: Sequence[nn.Parameter], max_norm: float) -> float:
    """L2 norm of all gradients before they are clipped to `max_norm` in place (0: left alone).

    A gradient that is short enough is not written again.
    """
    norm = _norm(parameters)
    value = float(norm)
    if max_norm > 0 and math.isfinite(value) and value + NORM_SLACK > max_norm:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return value


class _Fetched:
    """Scalars on their way to the CPU: one copy, which later work of the device does not delay."""

    def __init__(self, values: dict[str, Tensor]) -> None:
        self._names = list(values)
        self._table = torch.zeros(len(values), dtype=torch.float64)
        self._arrival: torch.cuda.Event | None = None
        if not values:
            return
        table = torch.stack([value.double() for value in values.values()])
        if not table.is_cuda:
            self._table = table
            return
        self._table = self._table.pin_memory()
        self._table.copy_(table, non_blocking=True)
        self._arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._arrival.record(torch.cuda.current_stream(table.device))

    def numbers(self) -> dict[str, float]:
        """The scalars as Python numbers, once they are here."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return dict(zip(self._names, self._table.tolist(), strict=True))
