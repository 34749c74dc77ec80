"""GRPO and its family: the file to read first. One batch is six hops, one under the other.

    prompts, cursor = sampler.next_batch(cursor)          1  which problems
    groups = collect_groups(engine, prompts, ...)         2  n samples each
    groups = grade_groups(groups, reward)                 3  right or wrong
    credit = assign_credit(objective, groups, ...)        4  against the own group
    updates = packer.updates(rows)                        5  ids to tensors
    outcome = policy_step(model, optimizer, ...)          6  forward, backward, step

Hops 1 to 3 stand in `draw.py`, since a batch is drawn plainly, filtered, guided or replayed; hops 4
to 6 in `learn.py`. Then the engine gets the new weights. The loop is synchronous: every sample is
drawn with the weights of the step it trains; `one_step_off.py` has the other one. What the
objective does not ask for does not run: old log-probabilities (several updates per batch), a
reference (beta), statistics of the whole step (token selection).
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
from workings.training.checkpointer import Checkpointer
from workings.training.distributed import Ranks
from workings.training.draw import draw_batch
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
from workings.training.source import Guidance, Replay, Source
from workings.training.state import TrainerState
from workings.training.step_record import StepRecord
from workings.training.stop import StopRequest

REPLAY = "replay.pt"


def train_grpo(
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
    replay: Replay | None = None,
    evaluate: Evaluator | None = None,
    autocast: torch.dtype | None = None,
    pad_id: int = 0,
    ranks: Ranks | None = None,
) -> TrainResult:
    """Train `model` in place from graded rollouts; metrics and checkpoints go where the parts say.

    Args:
        engine: has the model's weights at the start and gets new ones after every rollout batch.
        guidance: a teacher's traces, where the objective has teacher rows.
        replay: past successes, where the objective replays them.
        evaluate: `step -> metrics` on the validation split; called as `config.evaluation` says.
        autocast: bfloat16 runs the arithmetic in it; weights stay float32.

    Raises:
        StoppedBySignal: a stop was requested; the step was finished and saved.
        TrainingError: too many non-finite steps in a row.
    """
    if config.schedule != "synchronous":
        raise ConfigError(
            f"schedule={config.schedule}; expected synchronous",
            hint="train_one_step_off runs the other",
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
    if replay is not None and restored is not None:
        replay.buffer.load_state(checkpointer.restored_file(REPLAY))
    engine.load_weights(state.step, named_full_weights(model))
    checkpointer.refuse_if_finished(state, done=state.step >= config.max_steps)
    recorder.truncate_after(-1 if restored is None else state.step)
    wanted = config.objective.resolve()
    recorder.log(
        f"{wanted.describe()}; {learner.layout} layout, {learner.layers}; sampling {sampling}"
    )
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
        replay=replay,
        ranks=ranks,
    )
    evaluation: Mapping[str, float] = {}
    if evaluate is not None and restored is None and config.evaluation.at_start:
        evaluation = _evaluated(evaluate, 0, engine, model, rests=config.engine.rests)
        state = after_evaluation(state, evaluation)
        checkpointer.keep_best(state, model)

    while state.step < config.max_steps:
        clock = Stopwatch()
        plan = begin_step(wanted, state, seed=config.seed)
        if config.engine.rests:
            engine.wake()
        drawn = draw_batch(source, wanted, state, clock)
        if config.engine.rests:
            engine.sleep()
        credit = credit_batch(learner, plan, drawn, controllers=state.controllers)
        updates = pack_batch(learner, plan, drawn.groups, credit)
        clock.lap("score")
        trained = update_policy(learner, plan, updates, state)
        clock.lap("train")
        engine.load_weights(state.step + 1, named_full_weights(model))
        clock.lap("sync")
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
        if evaluate is not None and due(state.step, config.evaluation.every_steps):
            evaluation = _evaluated(evaluate, state.step, engine, model, rests=config.engine.rests)
            state = after_evaluation(state, evaluation)
            checkpointer.keep_best(state, model)
        stopping = stop_agreed(stop, ranks)
        if stopping or due(state.step, config.checkpoint.every_steps):
            checkpointer.save(state, model, optimizer, extra=_extra(replay))
        if stopping and state.step < config.max_steps:
            raise stopped(stop, state)

    if config.engine.rests:
        engine.wake()
    measured_at_end = not config.evaluation.at_end or due(state.step, config.evaluation.every_steps)
    return finish_run(
        TrainResult(state=state, evaluation=evaluation),
        model,
        optimizer,
        checkpointer=checkpointer,
        evaluate=None if measured_at_end else evaluate,
        extra=_extra(replay),
    )


def _evaluated(
    evaluate: Evaluator, step: int, engine: Engine, model: nn.Module, *, rests: bool
) -> Mapping[str, float]:
    """Metrics of the validation split; afterwards the engine has the weights of `step`, as before.

    An engine that rests is put to sleep behind an evaluation too, and may drop its weights there
    (vLLM does), whereas the next batch only wakes it.
    """
    evaluation = evaluate(step)
    if rests:
        engine.load_weights(step, named_full_weights(model))
    return evaluation


def _extra(replay: Replay | None) -> dict[str, dict[str, object]]:
    return {} if replay is None else {REPLAY: replay.buffer.to_state()}
