"""GRPO and its family: the file to read first. One batch is six hops, one under the other.

    prompts, cursor = sampler.next_batch(cursor)          1  which problems
    groups = collect_groups(engine, prompts, ...)         2  n samples each
    groups = grade_groups(groups, reward)                 3  right or wrong
    credit = assign_credit(objective, groups, ...)        4  against the own group
    updates = packer.updates(rows)                        5  ids to tensors
    outcome = policy_step(model, optimizer, ...)          6  forward, backward, step

Hops 1 to 3 stand in `draw.py`, since a batch is drawn plainly, filtered, guided or replayed.
Then the engine gets the new weights. The loop is synchronous: every sample is drawn with the
weights of the step it trains. What the objective does not ask for does not run: old
log-probabilities (several updates per batch), a reference (beta), statistics of the whole step
(token selection).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from workings.config.grpo import GRPOConfig
from workings.config.objective_settings import ResolvedObjective
from workings.data.sampler import PromptSampler
from workings.models.weights import named_full_weights
from workings.objectives.entropy import applied_entropy_coefficient, next_entropy_coefficient
from workings.objectives.kl import next_kl_coefficient
from workings.rewards.four_classes import answer_right, format_right
from workings.rewards.reward import Reward
from workings.rewards.reward_metrics import reward_metrics
from workings.rollout.collect import completion_metrics
from workings.rollout.engine import Engine, SamplingParams
from workings.rollout.replay_batch import replay_started, solve_rate
from workings.seeds import derive_seed
from workings.tracking.flat_rewards import FlatRewardWarner
from workings.tracking.recorder import Recorder
from workings.tracking.rollout_statistics import rollout_statistics
from workings.training.checkpointer import Checkpointer
from workings.training.credit import assign_credit
from workings.training.distributed import Ranks
from workings.training.draw import Guidance, Replay, Source, draw_batch
from workings.training.forward import check_head, choose_layout
from workings.training.metrics import Stopwatch, speed_metrics
from workings.training.optim import (
    build_optimizer,
    learning_rate_at,
    set_learning_rate,
    warmup_from,
)
from workings.training.policy_loss import policy_gradient_loss
from workings.training.policy_metrics import policy_metrics
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
from workings.training.reference import Reference
from workings.training.reward_kl import kl_of_rows, token_penalties
from workings.training.state import TrainerState
from workings.training.step import policy_step
from workings.training.stop import StopRequest
from workings.training.updates import Packer, score_updates, step_statistics, training_rows

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
    ranks = ranks or Ranks()
    device = next(model.parameters()).device
    check_head(model)
    wanted = config.objective.resolve()
    layout = choose_layout(model, config.batch.layout, grouped=True)
    num_updates = config.max_steps * config.updates_per_rollout
    rates = config.optimizer
    warmup = warmup_from(rates.warmup_steps, rates.warmup_ratio, num_updates)
    optimizer = build_optimizer(
        model,
        name=rates.name,
        betas=rates.betas,
        rmsprop_alpha=rates.rmsprop_alpha,
        eps=rates.eps,
        weight_decay=rates.weight_decay,
        offload=rates.offload,
    )
    reference = Reference(model) if wanted.needs_reference else None
    restored = checkpointer.restore(model, optimizer)
    state = restored or TrainerState(kind="grpo")
    if replay is not None and restored is not None:
        replay.buffer.load_state(checkpointer.restored_file(REPLAY))
    engine.load_weights(state.step, named_full_weights(model))
    checkpointer.refuse_if_finished(state, done=state.step >= config.max_steps)
    recorder.truncate_after(-1 if restored is None else state.step)
    recorder.log(f"{wanted.describe()}; {layout} layout; sampling {sampling}")
    for warning in wanted.warnings():
        recorder.warn(warning)
    flat = FlatRewardWarner(recorder.warn)
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
        evaluation = evaluate(0)
        state = after_evaluation(state, evaluation)

    while state.step < config.max_steps:
        clock = Stopwatch()
        seed = derive_seed(config.seed, "grpo", state.step)
        torch.manual_seed(seed)
        waiting = wanted.replay and not state.replay_started
        objective = wanted.before_replay() if waiting else wanted
        coefficients = Coefficients.of(objective, state.controllers)

        drawn = draw_batch(source, wanted, state, clock)
        groups = drawn.groups
        packer = Packer(
            config=config,
            objective=objective,
            layout=layout,
            pad_id=pad_id,
            device=device,
            ranks=ranks,
        )
        first_key = sum(ranks.all_objects(config.num_generations * len(groups))[: ranks.rank])
        penalties = None
        if reference is not None and objective.kl_in == "reward":
            scored = score_updates(
                packer.updates(training_rows(groups, first_key=first_key), whole=True),
                model,
                temperature=sampling.temperature,
                autocast=autocast,
                old=True,
                reference=reference,
            )
            penalties = token_penalties(
                scored, groups, coefficient=coefficients.beta, first_key=first_key
            )
        credit = assign_credit(
            objective,
            groups,
            penalties=penalties,
            baselines=drawn.baselines,
            weights=reward.weights,
            controllers=state.controllers,
            ranks=ranks,
        )
        rows = training_rows(
            groups,
            credit.advantages,
            mask_truncated=objective.mask_truncated,
            first_key=first_key,
        )
        updates = score_updates(
            packer.updates(rows),
            model,
            temperature=sampling.temperature,
            autocast=autocast,
            old=config.updates_per_rollout > 1,
            reference=reference if objective.kl_in == "loss" else None,
        )
        clock.lap("score")
        outcomes = []
        for number, update in enumerate(updates * config.epochs_per_rollout):
            rate = learning_rate_at(
                state.num_updates,
                num_updates,
                peak=rates.learning_rate,
                schedule=rates.schedule,
                warmup_steps=warmup,
            )
            set_learning_rate(optimizer, rate)
            known = step_statistics(
                update,
                objective,
                model,
                temperature=sampling.temperature,
                autocast=autocast,
                seed=derive_seed(seed, "update", number),
                ranks=ranks,
            )
            outcome = policy_step(
                model,
                optimizer,
                known.update.microbatches,
                policy_gradient_loss(
                    known.update.totals,
                    objective,
                    max_length=sampling.max_tokens,
                    beta=coefficients.beta,
                    entropy_coef=coefficients.applied_entropy(known.entropy),
                    num_ranks=ranks.size,
                ),
                temperature=sampling.temperature,
                max_grad_norm=rates.max_grad_norm,
                skip_above=rates.skip_above_grad_norm,
                autocast=autocast,
                ranks=ranks,
            )
            outcomes.append(outcome)
            coefficients = coefficients.after_update(known.entropy)
            state = replace(
                state,
                num_updates=state.num_updates + 1,
                consumed_tokens=state.consumed_tokens + update.totals.num_tokens,
                nonfinite_in_a_row=nonfinite_in_a_row(
                    outcome.skipped, state.nonfinite_in_a_row, most=rates.max_nonfinite_steps
                ),
            )
        clock.lap("train")
        engine.load_weights(state.step + 1, named_full_weights(model))
        clock.lap("sync")

        measured = {
            **policy_metrics(outcomes),
            **(kl_of_rows(penalties, coefficients.beta, ranks) if penalties is not None else {}),
        }
        coefficients = coefficients.after_batch(
            measured.get("kl"), num_rows=sum(ranks.all_objects(len(rows)))
        )
        started = waiting and replay_started(
            solve_rate(groups, is_right=answer_right),
            threshold=config.replay.start_solve_rate,
            started=False,
        )
        state = replace(
            state,
            step=state.step + 1,
            cursor=drawn.cursor,
            elapsed_seconds=state.elapsed_seconds + clock.total,
            controllers={**state.controllers, **credit.controllers, **coefficients.controllers()},
            replay_started=state.replay_started or started,
        )
        num_tokens = sum(update.totals.num_tokens for update in updates)
        recorder.record(
            state.step,
            {
                **measured,
                **reward_metrics(groups),
                **credit.metrics,
                **drawn.metrics,
                **coefficients.metrics(),
                **(completion_metrics(groups, weight_version=state.step - 1) if groups else {}),
                **speed_metrics(device, seconds=clock.total, num_tokens=num_tokens),
                **clock.metrics(),
                "learning_rate": rate,
                "epoch": sampler.epoch_of(drawn.cursor),
                "consumed_tokens": state.consumed_tokens,
            },
        )
        recorder.record_rollouts(state.step, groups, advantages=credit.by_row)
        statistics = rollout_statistics(
            groups, format_right=format_right, answer_right=answer_right
        )
        # Samples that are all wrong teach beside a right trace, or against a baseline.
        num_flat = sum(not any(line) for line in credit.by_row)
        flat.update(state.step, replace(statistics, num_flat_groups=num_flat))
        if evaluate is not None and due(state.step, config.evaluation.every_steps):
            evaluation = evaluate(state.step)
            state = after_evaluation(state, evaluation)
            checkpointer.keep_best(state, model)
        stopping = stop_agreed(stop, ranks)
        if stopping or due(state.step, config.checkpoint.every_steps):
            checkpointer.save(state, model, optimizer, extra=_extra(replay))
        if stopping and state.step < config.max_steps:
            raise stopped(stop, state)

    measured_at_end = not config.evaluation.at_end or due(state.step, config.evaluation.every_steps)
    return finish_run(
        TrainResult(state=state, evaluation=evaluation),
        model,
        optimizer,
        checkpointer=checkpointer,
        evaluate=None if measured_at_end else evaluate,
        extra=_extra(replay),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """The factors of the KL and of the entropy bonus, which a controller may steer."""

    objective: ResolvedObjective
    beta: float
    entropy: float

    @classmethod
    def of(cls, objective: ResolvedObjective, controllers: Mapping[str, float]) -> Coefficients:
        """As the last step left them, or as the objective begins."""
        return cls(
            objective=objective,
            beta=controllers.get("beta", objective.beta),
            entropy=controllers.get("entropy_coef", objective.entropy_coef),
        )

    def applied_entropy(self, entropy: float | None) -> float:
        """The factor of this step's bonus, given its mean entropy (None: it is not steered)."""
        target = self.objective.entropy_target
        if target is None or entropy is None:
            return self.entropy
        return applied_entropy_coefficient(self.entropy, entropy, target=target)

    def after_update(self, entropy: float | None) -> Coefficients:
        """With the entropy's factor moved towards its target (Skywork-OR1, 2505.22312)."""
        objective = self.objective
        if objective.entropy_target is None or entropy is None or not math.isfinite(entropy):
            return self
        moved = next_entropy_coefficient(
            self.entropy,
            entropy,
            target=objective.entropy_target,
            step=objective.entropy_coef_step,
            low=objective.entropy_coef_min,
            high=objective.entropy_coef_max,
        )
        return replace(self, entropy=moved)

    def after_batch(self, kl: float | None, *, num_rows: int) -> Coefficients:
        """With beta moved towards its target (Ziegler et al., 1909.08593)."""
        objective = self.objective
        if objective.kl_target is None or kl is None or not math.isfinite(kl):
            return self
        moved = next_kl_coefficient(
            self.beta,
            kl,
            target=objective.kl_target,
            horizon=objective.kl_horizon,
            num_rows=num_rows,
        )
        return replace(self, beta=moved)

    def controllers(self) -> dict[str, float]:
        """What a checkpoint has to remember: the factors that move."""
        moving = {}
        if self.objective.kl_target is not None:
            moving["beta"] = self.beta
        if self.objective.entropy_target is not None:
            moving["entropy_coef"] = self.entropy
        return moving

    def metrics(self) -> dict[str, float]:
        """The factors that move, for the log."""
        return {f"controller/{name}": value for name, value in self.controllers().items()}


def _extra(replay: Replay | None) -> dict[str, dict[str, object]]:
    return {} if replay is None else {REPLAY: replay.buffer.to_state()}
