"""Expert iteration: sample, keep what is right, fine-tune on it, repeat.

    questions, cursor = sampler.next_batch(cursor)        1  which questions
    groups = collect_groups(engine, questions, ...)       2  samples of the current policy
    groups = grade_groups(groups, reward)                 3  right or wrong
    kept = keep_right(groups, ...)                           the samples to imitate
    microbatches = pack(rows, ...)                        5  ids to tensors
    outcome = policy_step(model, optimizer, ...)          6  forward, backward, step

Hops 5 and 6 are repeated until every kept sample was trained `epochs` times. A round takes one step
for its samples and one for each of its updates, so that a checkpoint may stand between any two.
Source: CS336 assignment 5, expert iteration; Anthony et al., 2017 (1705.08439).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from workings.config.expert_iteration import ExpertIterationConfig
from workings.data.sampler import BatchSampler, PromptSampler
from workings.models.weights import named_full_weights
from workings.rewards.reward import Reward, grade_groups
from workings.rewards.reward_metrics import check_grader, reward_metrics
from workings.rollout.collect import collect_groups, completion_metrics
from workings.rollout.engine import Engine, SamplingParams
from workings.seeds import derive_seed
from workings.tracking.recorder import Recorder
from workings.training.checkpointer import Checkpointer
from workings.training.distributed import Ranks
from workings.training.forward import check_head, choose_layout
from workings.training.kept import KeptFiles, keep_right, kept_metrics, kept_rows
from workings.training.layers import prepare_layers
from workings.training.metrics import Stopwatch, speed_metrics
from workings.training.microbatch_tokens import longest_sampled, settled
from workings.training.optim import (
    configured_optimizer,
    learning_rate_at,
    set_learning_rate,
    warmup_from,
)
from workings.training.packing import TrainRow, pack, step_totals
from workings.training.progress import (
    Evaluator,
    TrainResult,
    after_evaluation,
    due,
    finish_run,
    nonfinite_in_a_row,
    stopped,
)
from workings.training.sft import sft_metrics
from workings.training.state import TrainerState
from workings.training.step import policy_step
from workings.training.stop import StopRequest
from workings.training.supervised_loss import supervised_loss


def train_expert_iteration(
    config: ExpertIterationConfig,
    *,
    model: nn.Module,
    engine: Engine,
    sampler: PromptSampler,
    sampling: SamplingParams,
    reward: Reward,
    recorder: Recorder,
    checkpointer: Checkpointer,
    kept_files: KeptFiles,
    stop: StopRequest,
    evaluate: Evaluator | None = None,
    autocast: torch.dtype | None = None,
    pad_id: int = 0,
) -> TrainResult:
    """Train `model` in place on its own right samples, in one process.

    The learning-rate schedule spans one round; AdamW's moments carry over. A round in which nothing
    is right is counted, said, and trains nothing.

    Args:
        engine: gets the current weights before every round.
        kept_files: where the rows of each round are kept, for resuming inside of it.
        evaluate: `step -> metrics` on the validation split, called after every round.
        autocast: bfloat16 runs the arithmetic in it; weights stay float32.

    Raises:
        StoppedBySignal: a stop was requested; the step was finished and saved.
        TrainingError: too many non-finite steps in a row.
    """
    device = next(model.parameters()).device
    config = settled(
        config,
        model,
        longest_row=longest_sampled(sampler.prompts, max_tokens=sampling.max_tokens),
        checkpointer=checkpointer,
        recorder=recorder,
        autocast=autocast,
    )
    check_head(model)
    layers = prepare_layers(
        model,
        checkpointing=config.batch.activation_checkpointing,
        kernels=config.model.kernels,
    )
    layout = choose_layout(model, config.batch.layout, grouped=True, autocast=autocast)
    rates = config.optimizer
    optimizer = configured_optimizer(model, rates)
    restored = checkpointer.restore(model, optimizer)
    state = replace(
        restored or TrainerState(kind="expert-iteration"),
        microbatch_tokens=config.batch.settled_tokens,
    )
    checkpointer.refuse_if_finished(state, done=_is_done(state, config.iterations))
    recorder.truncate_after(-1 if restored is None else state.step)
    kept_files.truncate_after(state.step)
    recorder.log(
        f"expert iteration: {config.iterations} rounds of {config.questions_per_iteration} "
        f"questions x {config.num_generations}; {layout} layout, {layers}; sampling {sampling}"
        + (f"; resumed at step {state.step}, round {state.iteration}" if state.step else "")
    )
    rows: list[TrainRow] = []
    if state.step < state.iteration_end:
        rows = kept_rows(kept_files.read(state.iteration_start))
    evaluation: Mapping[str, float] = {}
    if evaluate is not None and restored is None and config.evaluation.at_start:
        evaluation = evaluate(0)
        state = after_evaluation(state, evaluation)
        checkpointer.keep_best(state, model)

    while not _is_done(state, config.iterations):
        if state.step == state.iteration_end:
            clock = Stopwatch()
            engine.load_weights(state.step, named_full_weights(model))
            if config.engine.rests:
                engine.wake()
            clock.lap("sync")
            questions, cursor = sampler.next_batch(state.cursor)
            groups = collect_groups(
                engine,
                questions,
                sampling,
                num_samples=config.num_generations,
                seed=derive_seed(config.seed, "rollout", state.iteration),
                expected_version=state.step,
            )
            if config.engine.rests:
                engine.sleep()
            clock.lap("rollout")
            groups = grade_groups(groups, reward)
            check_grader(groups)
            clock.lap("reward")
            kept = keep_right(
                groups,
                above=config.keep_above,
                max_per_question=config.max_kept_per_question,
                drop_duplicates=config.drop_duplicates,
            )
            rows = kept_rows(kept.groups)
            first = state.step + 1
            kept_files.write(first, kept.groups)
            num_updates = config.epochs * math.ceil(len(rows) / config.batch_size)
            state = replace(
                state,
                step=first,
                iteration=state.iteration + 1,
                iteration_start=first,
                iteration_end=first + num_updates,
                cursor=cursor,
                elapsed_seconds=state.elapsed_seconds + clock.total,
            )
            recorder.record(
                state.step,
                {
                    **kept_metrics(groups, kept),
                    **reward_metrics(groups),
                    **completion_metrics(groups, weight_version=first - 1),
                    **clock.metrics(),
                    "iteration": state.iteration,
                    "epoch": sampler.epoch_of(cursor),
                },
            )
            recorder.record_rollouts(state.step, groups)
            if not rows:
                recorder.warn(
                    f"round {state.iteration}: none of {config.rollout_batch_size} samples has a "
                    f"reward above {config.keep_above:g}, so nothing is trained; see "
                    "`workings inspect rollouts`, or begin from a model that is sometimes right"
                )

        while state.step < state.iteration_end and not stop.requested:
            started = time.perf_counter()
            torch.manual_seed(derive_seed(config.seed, "expert-iteration", state.step))
            update = state.step - state.iteration_start
            num_updates = state.iteration_end - state.iteration_start
            batch = _batch(rows, update, config=config, iteration=state.iteration)
            totals = step_totals(batch, Ranks())
            rate = learning_rate_at(
                update,
                num_updates,
                peak=rates.learning_rate,
                schedule=rates.schedule,
                warmup_steps=warmup_from(rates.warmup_steps, rates.warmup_ratio, num_updates),
            )
            set_learning_rate(optimizer, rate)
            outcome = policy_step(
                model,
                optimizer,
                pack(
                    batch,
                    layout=layout,
                    max_tokens=config.batch.settled_tokens,
                    max_rows=config.batch.microbatch_rows,
                    pad_id=pad_id,
                    device=device,
                ),
                supervised_loss(
                    totals, loss=config.loss, normalize_constant=config.normalize_constant
                ),
                max_grad_norm=rates.max_grad_norm,
                skip_above=rates.skip_above_grad_norm,
                autocast=autocast,
            )
            seconds = time.perf_counter() - started
            state = replace(
                state,
                step=state.step + 1,
                num_updates=state.num_updates + 1,
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
                    **sft_metrics(outcome),
                    **speed_metrics(device, seconds=seconds, num_tokens=totals.num_tokens),
                    "learning_rate": rate,
                    "iteration": state.iteration,
                    "consumed_tokens": state.consumed_tokens,
                },
            )
            inside = state.step < state.iteration_end
            if inside and due(state.step, config.checkpoint.every_steps):
                checkpointer.save(state, model, optimizer)

        done = _is_done(state, config.iterations)
        measured = state.step == state.iteration_end and (not done or config.evaluation.at_end)
        if evaluate is not None and measured:
            evaluation = evaluate(state.step)
            state = after_evaluation(state, evaluation)
            checkpointer.keep_best(state, model)
        checkpointer.save(state, model, optimizer)
        if stop.requested and not done:
            raise stopped(stop, state)

    return finish_run(
        TrainResult(state=state, evaluation=evaluation),
        model,
        optimizer,
        checkpointer=checkpointer,
        evaluate=None,
    )


def _is_done(state: TrainerState, iterations: int) -> bool:
    """True where the last round is over."""
    return state.iteration >= iterations and state.step == state.iteration_end


def _batch(
    rows: list[TrainRow], update: int, *, config: ExpertIterationConfig, iteration: int
) -> list[TrainRow]:
    """The rows of a round's `update`-th optimizer step, a pure function of the seed.

    The last batch of a pass is short rather than lost.
    """
    examples = BatchSampler(
        rows,
        batch_size=config.batch_size,
        seed=derive_seed(config.seed, "order", iteration),
    )
    epoch, number = divmod(update, math.ceil(len(rows) / config.batch_size))
    chosen, _ = examples.next_batch(epoch * len(rows) + number * config.batch_size)
    return chosen
