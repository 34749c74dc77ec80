"""Rules that SFT and GRPO share about when to evaluate, to save and to stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from workings.errors import ConfigError, StoppedBySignal, TrainingError, unknown_name
from workings.training.checkpointer import Checkpointer
from workings.training.distributed import Ranks
from workings.training.state import TrainerState
from workings.training.step import StepOutcome
from workings.training.stop import StopRequest

Evaluator = Callable[[int], Mapping[str, float]]
"""`step -> metrics` on the validation split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """How a run ended: its last state and its last evaluation (empty where there was none)."""

    state: TrainerState
    evaluation: Mapping[str, float]


def due(step: int, every: int) -> bool:
    """True on every `every`-th step; 0 is never."""
    return every > 0 and step % every == 0


def after_evaluation(
    state: TrainerState,
    evaluation: Mapping[str, float],
    *,
    stop_metric: str | None = None,
    stop_at: float | None = None,
) -> TrainerState:
    """The state with the best value updated and the stop rule applied.

    The best is by accuracy on the validation split, step 0 included. A `stop_metric` that the
    evaluation does not report raises ConfigError with the names it does.
    """
    state = state.with_best(evaluation.get("accuracy"))
    if stop_metric is None or stop_at is None:
        return state
    if stop_metric not in evaluation:
        raise ConfigError(unknown_name("evaluation.stop_metric", stop_metric, evaluation))
    return replace(state, stopped_by_rule=evaluation[stop_metric] >= stop_at)


def finish_run(
    result: TrainResult,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    checkpointer: Checkpointer,
    evaluate: Evaluator | None,
    extra: Mapping[str, Mapping[str, object]] | None = None,
) -> TrainResult:
    """The result after the last evaluation (None leaves it out), with the end of the run saved.

    `extra` are further files of the checkpoint.
    """
    if evaluate is not None:
        evaluation = evaluate(result.state.step)
        state = after_evaluation(result.state, evaluation)
        checkpointer.keep_best(state, model)
        result = TrainResult(state=state, evaluation=evaluation)
    checkpointer.tell_of_start(result.state)
    if checkpointer.at_end:
        checkpointer.save(result.state, model, optimizer, extra=extra)
        checkpointer.save_final(model)
    return result


def nonfinite_in_a_row(
    outcome: StepOutcome, before: int, *, most: int, skip_above: float | None = None
) -> int:
    """Skipped steps since the last good one; TrainingError from `most` on.

    `skip_above` is the norm above which a finite gradient was skipped too.
    """
    count = before + 1 if outcome.skipped else 0
    if count < most:
        return count
    if skip_above is not None and math.isfinite(outcome.grad_norm):
        raise TrainingError(
            f"{count} steps in a row were skipped, so nothing is learnt: the last gradient has a "
            f"norm of {outcome.grad_norm:.4g}, above optimizer.skip_above_grad_norm="
            f"{skip_above:g}",
            hint="set optimizer.skip_above_grad_norm above the usual train/grad_norm, or to null; "
            "if the norm grew in the run, lower optimizer.learning_rate",
        )
    what = "not finite" if skip_above is None else "not finite or too long"
    raise TrainingError(
        f"the gradient was {what} in {count} steps in a row, so nothing is learnt",
        hint="lower optimizer.learning_rate, or set model.dtype=float32; "
        "the last good checkpoint is in the run's folder",
    )


def stop_agreed(stop: StopRequest, ranks: Ranks) -> bool:
    """True on all ranks as soon as one of them was asked to stop, so that they stop together."""
    if any(ranks.all_objects(stop.requested)) and not stop.requested:
        stop.request()
    return stop.requested


def stopped(stop: StopRequest, state: TrainerState) -> StoppedBySignal:
    """The error that ends a run that was asked to stop."""
    assert stop.signal_number is not None
    return StoppedBySignal(
        stop.signal_number,
        f"stopped by signal {stop.signal_number} after step {state.step}, which is saved",
        hint="the same command with --resume goes on from there",
    )
