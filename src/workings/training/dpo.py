"""Direct preference optimization: pairs, reference, pack, step. The loop reads from the top."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from workings.config.dpo import DPOConfig
from workings.data.encoding import EncodedPair
from workings.data.sampler import BatchSampler
from workings.errors import DataError
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
from workings.training.pair_reference import build_reference
from workings.training.pairs import (
    PackPairs,
    pack_pairs,
    pair_rows,
    score_microbatches,
    score_pairs,
)
from workings.training.preference_loss import (
    PairObjective,
    pair_metrics,
    pair_sums,
    pair_terms,
    pair_totals,
    partners_of_step,
    preference_step_loss,
    sum_of_terms,
)
from workings.training.progress import (
    TrainResult,
    due,
    finish_run,
    nonfinite_in_a_row,
    stop_agreed,
    stopped,
)
from workings.training.state import TrainerState
from workings.training.step import policy_step
from workings.training.stop import StopRequest


def train_dpo(
    config: DPOConfig,
    *,
    model: nn.Module,
    pairs: Sequence[EncodedPair],
    recorder: Recorder,
    checkpointer: Checkpointer,
    stop: StopRequest,
    validation: Sequence[EncodedPair] = (),
    reference_file: Path | None = None,
    template: str = "",
    autocast: torch.dtype | None = None,
    pad_id: int = 0,
    ranks: Ranks | None = None,
) -> TrainResult:
    """Train `model` in place; checkpoints and metrics go where the parts put them.

    Args:
        pairs, validation: encoded pairs; those of validation are never trained.
        reference_file: where precomputed reference log-probabilities are kept, or None.
        template: text that the prompts were made with; the stored reference carries its hash.
        autocast: bfloat16 runs the arithmetic in it; weights stay float32.

    Raises:
        StoppedBySignal: a stop was requested; the step was finished and saved.
        TrainingError: too many non-finite steps in a row.
        CheckpointError: the stored reference is of another model, template or set of pairs.
    """
    ranks = ranks or Ranks()
    device = next(model.parameters()).device
    config = settled(
        config,
        model,
        longest_row=max(len(pair.chosen.ids) + len(pair.rejected.ids) for pair in pairs)
        if pairs
        else 1,
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
    layout = choose_layout(model, config.batch.layout, grouped=True, autocast=autocast)
    pack_rows = partial(
        pack_pairs,
        layout=layout,
        max_tokens=config.batch.settled_tokens,
        max_rows=config.batch.microbatch_rows,
        pad_id=pad_id,
        device=device,
    )
    objective = objective_of(config)
    examples = BatchSampler(
        range(len(pairs)),
        batch_size=config.batch_size,
        seed=derive_seed(config.seed, "order"),
        rank=ranks.rank,
        num_ranks=ranks.size,
    )
    num_steps = (
        examples.num_batches(config.epochs) if config.max_steps is None else config.max_steps
    )
    check_sizes(
        objective, len(pairs), len(validation), batch_size=config.batch_size, num_steps=num_steps
    )
    # The reference is the model that the run starts from, so it comes before any restoring.
    reference = build_reference(
        model,
        pairs,
        validation,
        live=config.reference == "live",
        file=reference_file,
        template=template,
        pack_rows=pack_rows,
        ld_alpha=objective.ld_alpha,
        autocast=autocast,
        log=recorder.log,
        ranks=ranks,
    )
    rates = config.optimizer
    warmup = warmup_from(rates.warmup_steps, rates.warmup_ratio, num_steps)
    optimizer = configured_optimizer(model, rates)
    restored = checkpointer.restore(model, optimizer)
    state = replace(
        restored or TrainerState(kind="dpo"), microbatch_tokens=config.batch.settled_tokens
    )

    def finished() -> bool:
        out_of_time = config.max_seconds is not None and state.elapsed_seconds >= config.max_seconds
        return state.step >= num_steps or out_of_time

    def evaluate(step: int) -> Mapping[str, float]:
        metrics = evaluate_pairs(
            model,
            validation,
            reference.validation,
            objective,
            pack_rows=pack_rows,
            autocast=autocast,
        )
        recorder.record(step, metrics, prefix="eval")
        return metrics

    checkpointer.refuse_if_finished(state, done=finished())
    recorder.truncate_after(-1 if restored is None else state.step)
    recorder.log(
        f"dpo: {len(pairs)} pairs, {num_steps} steps of {config.batch_size}, {layout} layout, "
        + layers
        + (f", resumed at step {state.step}" if state.step else "")
    )
    evaluation: Mapping[str, float] = {}
    if validation and restored is None and config.evaluation.at_start:
        evaluation = evaluate(0)
        state = state.with_best(best_value(evaluation, config.evaluation.best))
        checkpointer.keep_best(state, model)

    while not finished():
        started = time.perf_counter()
        torch.manual_seed(derive_seed(config.seed, "dpo", state.step))
        chosen, cursor = examples.next_batch(state.cursor)
        rows = pair_rows([pairs[index] for index in chosen])
        totals = pair_totals(
            [row.num_trained for row in rows[0::2]], [row.num_trained for row in rows[1::2]], ranks
        )
        microbatches = pack_rows(rows)
        scored = reference.of_step(chosen, microbatches)
        partners = None
        if objective.sorts:
            current = score_microbatches(
                model, microbatches, ld_alpha=objective.ld_alpha, autocast=autocast
            )
            partners = partners_of_step(current.discounted, scored, ranks)
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
            microbatches,
            preference_step_loss(objective, scored, totals, partners=partners),
            max_grad_norm=rates.max_grad_norm,
            skip_above=rates.skip_above_grad_norm,
            autocast=autocast,
            ranks=ranks,
        )
        seconds = ranks.all_objects(time.perf_counter() - started)[0]
        state = replace(
            state,
            step=state.step + 1,
            num_updates=state.num_updates + 1,
            cursor=cursor,
            consumed_tokens=state.consumed_tokens + totals.num_tokens,
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
                "loss": outcome.loss,
                "grad_norm": outcome.grad_norm,
                "skipped_steps": float(outcome.skipped),
                **pair_metrics(outcome.sums),
                **speed_metrics(device, seconds=seconds, num_tokens=totals.num_tokens),
                "model_flops": training_flops(shape, work_of(rows, layout, ranks)),
                "learning_rate": rate,
                "epoch": examples.epoch_of(cursor),
                "consumed_tokens": state.consumed_tokens,
            },
        )
        if validation and due(state.step, config.evaluation.every_steps):
            evaluation = evaluate(state.step)
            state = state.with_best(best_value(evaluation, config.evaluation.best))
            checkpointer.keep_best(state, model)
        stopping = stop_agreed(stop, ranks)
        if stopping or due(state.step, config.checkpoint.every_steps):
            checkpointer.save(state, model, optimizer)
        if stopping and not finished():
            raise stopped(stop, state)
    measured = not config.evaluation.at_end or due(state.step, config.evaluation.every_steps)
    if validation and not measured:
        evaluation = evaluate(state.step)
        state = state.with_best(best_value(evaluation, config.evaluation.best))
        checkpointer.keep_best(state, model)
    return finish_run(
        TrainResult(state=state, evaluation=evaluation),
        model,
        optimizer,
        checkpointer=checkpointer,
        evaluate=None,
    )


def objective_of(config: DPOConfig) -> PairObjective:
    """What a run minimises."""
    return PairObjective(
        terms=config.terms,
        beta=config.beta,
        label_smoothing=config.label_smoothing,
        ipo_sum=config.ipo_sum,
        ld_alpha=1.0 if config.ld_alpha is None else config.ld_alpha,
    )


def check_sizes(
    objective: PairObjective,
    num_pairs: int,
    num_validation: int,
    *,
    batch_size: int,
    num_steps: int,
) -> None:
    """Raise DataError where a loss that sorts the pairs of a step would get a single one."""
    if not objective.sorts:
        return
    reaches_end = num_steps >= math.ceil(num_pairs / batch_size)
    if reaches_end and num_pairs % batch_size == 1:
        raise DataError(
            f"the last batch of {num_pairs} pairs in batches of {batch_size} holds one pair, and "
            "aot sorts the pairs of a step",
            hint=f"set data.train.limit={num_pairs - 1}, or another batch_size",
        )
    if num_validation == 1:
        raise DataError(
            "there is one validation pair, and aot sorts the pairs that it measures",
            hint="hold out 2 or more",
        )


# --------------------------------------------------------------------------------- evaluation


def evaluate_pairs(
    model: nn.Module,
    validation: Sequence[EncodedPair],
    reference: Tensor,
    objective: PairObjective,
    *,
    pack_rows: PackPairs,
    autocast: torch.dtype | None = None,
) -> dict[str, float]:
    """Loss and metrics on validation pairs, all of them as one step; no weight changes."""
    found = score_pairs(
        model, validation, pack_rows=pack_rows, ld_alpha=objective.ld_alpha, autocast=autocast
    )
    reference = reference.to(found.chosen)
    terms = pair_terms(
        objective, found, reference, num_chosen_tokens=int(found.chosen_lengths.sum())
    )
    sums = pair_sums(objective, found, reference, terms)
    loss = sum_of_terms(objective, terms, num_pairs=len(validation))
    return {
        "loss": float(loss),
        **pair_metrics({name: float(value) for name, value in sums.items()}),
    }


def best_value(evaluation: Mapping[str, float], metric: str) -> float:
    """What is to be as large as possible: the reward's accuracy, or minus the loss."""
    return evaluation["rewards/accuracies"] if metric == "accuracy" else -evaluation["loss"]
