"""Supervised fine-tuning: rows, pack, step, the next rows being packed while the device works."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from workings.config.sft import SFTConfig
from workings.data.encoding import EncodedDemonstration, TrainedTokens
from workings.data.sampler import BatchSampler
from workings.objectives.reductions import StepTotals
from workings.seeds import derive_seed
from workings.tracking.recorder import Recorder
from workings.training.checkpointer import Checkpointer
from workings.training.distributed import Ranks
from workings.training.flops import shape_of, training_flops, work_of
from workings.training.forward import check_head, choose_layout
from workings.training.layers import prepare_layers
from workings.training.metrics import speed_metrics
from workings.training.microbatch_tokens import settled
from workings.training.optim import (
    configured_optimizer,
    learning_rate_at,
    set_learning_rate,
    warmup_from,
)
from workings.training.packing import Layout, MicroBatch, TrainRow, pack, step_totals
from workings.training.progress import (
    Evaluator,
    TrainResult,
    after_evaluation,
    due,
    finish_run,
    nonfinite_in_a_row,
    stop_agreed,
    stopped,
)
from workings.training.state import TrainerState
from workings.training.step import StepOutcome, policy_step
from workings.training.stop import StopRequest
from workings.training.supervised_loss import supervised_loss


def train_sft(
    config: SFTConfig,
    *,
    model: nn.Module,
    examples: BatchSampler[EncodedDemonstration],
    recorder: Recorder,
    checkpointer: Checkpointer,
    stop: StopRequest,
    evaluate: Evaluator | None = None,
    autocast: torch.dtype | None = None,
    pad_id: int = 0,
    ranks: Ranks | None = None,
) -> TrainResult:
    """Train `model` in place; checkpoints and metrics go where the parts put them.

    Args:
        examples: encoded demonstrations in their order.
        evaluate: `step -> metrics` on the validation split; called as `config.evaluation` says.
        autocast: bfloat16 runs the arithmetic in it; weights stay float32.

    Raises:
        StoppedBySignal: a stop was requested; the step was finished and saved.
        TrainingError: too many non-finite steps in a row.
    """
    ranks = ranks or Ranks()
    device = next(model.parameters()).device
    config = settled(
        config,
        model,
        longest_row=max(len(example.ids) for example in examples.rows),
        checkpointer=checkpointer,
        recorder=recorder,
        autocast=autocast,
        ranks=ranks,
    )
    shape = shape_of(model)
    check_head(model)
    layers = prepare_layers(
        model,
        checkpointing=config.batch.activation_checkpointing,
        kernels=config.model.kernels,
    )
    layout = choose_layout(model, config.batch.layout, grouped=False, autocast=autocast)
    num_steps = (
        examples.num_batches(config.epochs) if config.max_steps is None else config.max_steps
    )
    rates = config.optimizer
    warmup = warmup_from(rates.warmup_steps, rates.warmup_ratio, num_steps)
    optimizer = configured_optimizer(model, rates)
    restored = checkpointer.restore(model, optimizer)
    state = replace(
        restored or TrainerState(kind="sft"), microbatch_tokens=config.batch.settled_tokens
    )

    def finished() -> bool:
        out_of_time = config.max_seconds is not None and state.elapsed_seconds >= config.max_seconds
        return state.step >= num_steps or state.stopped_by_rule or out_of_time

    checkpointer.refuse_if_finished(state, done=finished())
    recorder.truncate_after(-1 if restored is None else state.step)
    recorder.log(
        f"sft: {len(examples)} rows, {num_steps} steps of {config.batch_size}, {layout} layout, "
        + layers
        + (f", resumed at step {state.step}" if state.step else "")
    )
    evaluation: Mapping[str, float] = {}
    if evaluate is not None and restored is None and config.evaluation.at_start:
        evaluation = evaluate(0)
        state = after_evaluation(state, evaluation)
        checkpointer.keep_best(state, model)

    prepare = partial(
        _prepare, config, examples, layout=layout, pad_id=pad_id, device=device, ranks=ranks
    )
    ahead: list[_Prepared] = []

    def prepare_ahead(cursor: int) -> None:
        ahead.append(prepare(cursor))

    while not finished():
        started = time.perf_counter()
        torch.manual_seed(derive_seed(config.seed, "sft", state.step))
        batch = ahead.pop() if ahead else prepare(state.cursor)
        is_last = state.step + 1 >= num_steps
        rate = learning_rate_at(
            state.num_updates,
            num_steps,
            peak=rates.learning_rate,
            schedule=rates.schedule,
            warmup_steps=warmup,
        )
        set_learning_rate(optimizer, rate)
        outcome = policy_step(
            model,
            optimizer,
            batch.microbatches,
            supervised_loss(
                batch.totals, loss=config.loss, normalize_constant=config.normalize_constant
            ),
            max_grad_norm=rates.max_grad_norm,
            skip_above=rates.skip_above_grad_norm,
            autocast=autocast,
            ranks=ranks,
            meanwhile=None if is_last else partial(prepare_ahead, batch.cursor),
        )
        seconds = ranks.all_objects(time.perf_counter() - started)[0]
        state = replace(
            state,
            step=state.step + 1,
            num_updates=state.num_updates + 1,
            cursor=batch.cursor,
            consumed_tokens=state.consumed_tokens + batch.totals.num_tokens,
            elapsed_seconds=state.elapsed_seconds + seconds,
            nonfinite_in_a_row=nonfinite_in_a_row(
                outcome,
                state.nonfinite_in_a_row,
                most=rates.max_nonfinite_steps,
                skip_above=rates.skip_above_grad_norm,
            ),
        )
        recorder.record(
            state.step,
            {
                **sft_metrics(outcome),
                **speed_metrics(device, seconds=seconds, num_tokens=batch.totals.num_tokens),
                "model_flops": training_flops(shape, work_of(batch.rows, layout, ranks)),
                "learning_rate": rate,
                "epoch": examples.epoch_of(batch.cursor),
                "consumed_tokens": state.consumed_tokens,
            },
        )
        if evaluate is not None and due(state.step, config.evaluation.every_steps):
            evaluation = evaluate(state.step)
            state = after_evaluation(
                state,
                evaluation,
                stop_metric=config.evaluation.stop_metric,
                stop_at=config.evaluation.stop_at,
            )
            checkpointer.keep_best(state, model)
        stopping = stop_agreed(stop, ranks)
        if stopping or due(state.step, config.checkpoint.every_steps):
            checkpointer.save(state, model, optimizer)
        if stopping and not finished():
            raise stopped(stop, state)
    measured = not config.evaluation.at_end or due(state.step, config.evaluation.every_steps)
    return finish_run(
        TrainResult(state=state, evaluation=evaluation),
        model,
        optimizer,
        checkpointer=checkpointer,
        evaluate=None if measured else evaluate,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """What a step trains on; `cursor` is where the next one begins."""

    rows: list[TrainRow]
    totals: StepTotals
    microbatches: list[MicroBatch]
    cursor: int


def _prepare(
    config: SFTConfig,
    examples: BatchSampler[EncodedDemonstration],
    cursor: int,
    *,
    layout: Layout,
    pad_id: int,
    device: torch.device,
    ranks: Ranks,
) -> _Prepared:
    """The batch at `cursor`, which alone decides on it."""
    chosen, cursor = examples.next_batch(cursor)
    rows = [
        demonstration_row(example, key, trained_tokens=config.trained_tokens)
        for key, example in enumerate(chosen)
    ]
    return _Prepared(
        rows=rows,
        totals=step_totals(rows, ranks),
        microbatches=pack(
            rows,
            layout=layout,
            max_tokens=config.batch.settled_tokens,
            max_rows=config.batch.microbatch_rows,
            pad_id=pad_id,
            device=device,
        ),
        cursor=cursor,
    )


def demonstration_row(
    example: EncodedDemonstration, key: int, *, trained_tokens: TrainedTokens = "completion"
) -> TrainRow:
    """The row to train on: what stands before its first trained id is the prompt."""
    mask = example.trained_mask(trained_tokens)
    start = len(example.prompt.ids)
    if trained_tokens != "completion":
        start = mask.index(True) if True in mask else len(mask)
    return TrainRow(
        key=key,
        group=key,
        prompt_ids=example.ids[:start],
        response_ids=example.ids[start:],
        mask=mask[start:],
    )


def sft_metrics(outcome: StepOutcome) -> dict[str, float]:
    """Metrics of a supervised step, by their names in the log."""
    tokens = max(outcome.sums.get("tokens", 0.0), 1.0)
    return {
        "loss": outcome.loss,
        "grad_norm": outcome.grad_norm,
        "skipped_steps": float(outcome.skipped),
        "avg_token_entropy": outcome.sums.get("entropy", 0.0) / tokens,
        "mean_token_accuracy": outcome.sums.get("top", 0.0) / tokens,
    }
