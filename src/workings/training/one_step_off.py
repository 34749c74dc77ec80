"""GRPO with the next batch sampled during training: `grpo.py` with its hops in another order.

    ahead = arrived(...)            2  the samples of this batch, drawn with the weights before
    engine.load_weights(...)           the weights of now
    ahead = ask_ahead(...)          1  which problems the next batch has; the engine starts on it
    drawn = grade_batch(...)        3  right or wrong
    credit = credit_batch(...)      4  against the own group
    updates = pack_batch(...)       5  ids to tensors
    trained = update_policy(...)    6  forward, backward, step

Hops 3 to 6 run while the engine samples. Every sample but those of a run's first batch is thus one
version behind the weights that it trains. The behaviour policy mu of a batch is what the engine
sampled it with, which its `sampling_logprobs` and `kept_mass` say exactly; the proximal policy,
which ratio and clip are taken against, is the trainer's at the start of the step (`old_logprobs`).
The objective's correction weighs each token by proximal over behaviour: decoupled PPO (Hilton et
al., 2110.00641; AReaL, 2505.24298, eq. 5), with one update a batch AIPO (LlamaRL, 2505.24034). It
takes what engine and trainer compute differently and what the weights moved in one.

A checkpoint keeps the batch ahead, since the weights that sampled it are gone by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from workings.config.grpo import GRPOConfig
from workings.data.sampler import PromptSampler
from workings.errors import ConfigError
from workings.models.weights import named_full_weights
from workings.rewards.reward import Reward
from workings.rollout.engine import Engine, SamplingParams
from workings.tracking.recorder import Recorder
from workings.training.ahead import Ahead, ahead_to_state, arrived, ask_ahead, take_up
from workings.training.checkpointer import Checkpointer
from workings.training.distributed import Ranks
from workings.training.draw import grade_batch
from workings.training.learn import (
    begin_step,
    credit_batch,
    finish_step,
    open_learner,
    pack_batch,
    update_policy,
)
from workings.training.metrics import Stopwatch
from workings.training.microbatch_tokens import longest_sampled, settled
from workings.training.progress import (
    Evaluator,
    TrainResult,
    after_evaluation,
    due,
    finish_run,
    stop_agreed,
    stopped,
)
from workings.training.source import Guidance, Source
from workings.training.state import TrainerState
from workings.training.step_record import StepRecord
from workings.training.stop import StopRequest

AHEAD = "ahead.pt"


def train_one_step_off(
    config: GRPOConfig,
    *,
    model: nn.Module,
    engine: Engine,
    sampler: PromptSampler,
    sampling: SamplingParams,
    reward: Reward,
    recorder: Recorder,
    checkpointer: Checkpointer,
    stop: StopRequest,
    guidance: Guidance | None = None,
    evaluate: Evaluator | None = None,
    autocast: torch.dtype | None = None,
    pad_id: int = 0,
    ranks: Ranks | None = None,
) -> TrainResult:
    """Train `model` in place, sampling one batch ahead; the other arguments are `train_grpo`'s.

    Args:
        config: with schedule=one_step_off.
        engine: samples after `submit` has returned, from weights of its own (a `ProcessEngine`, a
            server); with another one the result is the same, and nothing overlaps.

    Raises:
        StoppedBySignal: a stop was requested; the step was finished and saved.
        TrainingError: too many non-finite steps in a row.
    """
    if config.schedule != "one_step_off":
        raise ConfigError(
            f"schedule={config.schedule}; expected one_step_off", hint="train_grpo runs the other"
        )
    ranks = ranks or Ranks()
    config = settled(
        config,
        model,
        longest_row=longest_sampled(
            sampler.prompts, max_tokens=sampling.max_tokens, guidance=guidance
        ),
        checkpointer=checkpointer,
        recorder=recorder,
        autocast=autocast,
        ranks=ranks,
    )
    learner = open_learner(
        config,
        model,
        sampling=sampling,
        reward_weights=reward.weights,
        autocast=autocast,
        pad_id=pad_id,
        ranks=ranks,
    )
    optimizer = learner.optimizer
    restored = checkpointer.restore(model, optimizer)
    state = replace(
        restored or TrainerState(kind="grpo"), microbatch_tokens=config.batch.settled_tokens
    )
    engine.load_weights(state.step, named_full_weights(model))
    checkpointer.refuse_if_finished(state, done=state.step >= config.max_steps)
    recorder.truncate_after(-1 if restored is None else state.step)
    wanted = config.objective.resolve()
    recorder.log(
        f"{wanted.describe()}; {learner.layout} layout, {learner.layers}; sampling {sampling}"
    )
    recorder.log(config.describe_schedule())
    for warning in wanted.warnings():
        recorder.warn(warning)
    record = StepRecord(recorder, learner)
    source = Source(
        config=config,
        engine=engine,
        sampler=sampler,
        sampling=sampling,
        reward=reward,
        guidance=guidance,
        ranks=ranks,
        max_staleness=config.max_staleness,
    )
    evaluation: Mapping[str, float] = {}
    if evaluate is not None and restored is None and config.evaluation.at_start:
        evaluation = evaluate(0)
        state = after_evaluation(state, evaluation)
        checkpointer.keep_best(state, model)
    ahead: Ahead | None = None
    if state.step < config.max_steps:
        if restored is not None:
            stored = checkpointer.restored_file(AHEAD)
            ahead = take_up(source, wanted, state, stored=stored, warn=recorder.warn)
        ahead = ahead or ask_ahead(source, wanted, state)

    while ahead is not None:
        clock = Stopwatch()
        plan = begin_step(wanted, state, seed=config.seed)
        collected = arrived(source, wanted, ahead, clock)
        engine.load_weights(state.step, named_full_weights(model))
        clock.lap("sync")
        after = replace(state, step=state.step + 1, cursor=collected.cursor)
        ahead = ask_ahead(source, wanted, after) if after.step < config.max_steps else None
        drawn = grade_batch(source, wanted, collected, clock)
        credit = credit_batch(learner, plan, drawn, controllers=state.controllers)
        updates = pack_batch(learner, plan, drawn.groups, credit)
        clock.lap("score")
        trained = update_policy(learner, plan, updates, state)
        clock.lap("train")
        evaluating = evaluate is not None and due(after.step, config.evaluation.every_steps)
        saving = due(after.step, config.checkpoint.every_steps)
        if ahead is not None and (evaluating or saving):
            ahead = arrived(source, wanted, ahead, clock)
        state = finish_step(
            learner, plan, drawn, credit=credit, trained=trained, seconds=clock.total
        )
        record.write(
            state,
            drawn,
            credit=credit,
            trained=trained,
            clock=clock,
            epoch=sampler.epoch_of(drawn.cursor),
        )
        if evaluate is not None and evaluating:
            evaluation = evaluate(state.step)
            state = after_evaluation(state, evaluation)
            checkpointer.keep_best(state, model)
        stopping = stop_agreed(stop, ranks)
        if stopping or saving:
            if ahead is not None:
                ahead = arrived(source, wanted, ahead, clock)
            extra = {} if ahead is None else {AHEAD: ahead_to_state(source, ahead)}
            checkpointer.save(state, model, optimizer, extra=extra)
        if stopping and ahead is not None:
            raise stopped(stop, state)

    measured_at_end = not config.evaluation.at_end or due(state.step, config.evaluation.every_steps)
    return finish_run(
        TrainResult(state=state, evaluation=evaluation),
        model,
        optimizer,
        checkpointer=checkpointer,
        evaluate=None if measured_at_end else evaluate,
    )
