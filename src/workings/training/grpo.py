"""GRPO: the file to read first. One batch is the six calls that stand one under the other.

    prompts, cursor = sampler.next_batch(cursor)          1  which problems
    groups = collect_groups(engine, prompts, ...)         2  n samples each
    groups = grade_groups(groups, reward)                 3  right or wrong
    advantages = group_advantages(rewards, ...)           4  against the own group
    microbatches = pack(rows, ...)                        5  ids to tensors
    outcome = policy_step(model, optimizer, ...)          6  forward, backward, step

Then the engine gets the new weights. The loop is synchronous: every sample is drawn with the
weights of the step it trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from workings.config.objective_settings import ResolvedObjective
from workings.config.run import GRPOConfig
from workings.data.sampler import PromptSampler
from workings.models.weights import named_full_weights
from workings.objectives.advantages import group_advantages
from workings.objectives.reductions import StepTotals
from workings.rewards.four_classes import answer_right, format_right
from workings.rewards.length import kept_when_masking_overlong
from workings.rewards.reward import Reward, grade_groups
from workings.rewards.reward_metrics import check_grader, reward_metrics
from workings.rollout.collect import collect_groups, completion_metrics
from workings.rollout.engine import Engine, SamplingParams
from workings.seeds import derive_seed
from workings.tracking.flat_rewards import FlatRewardWarner
from workings.tracking.recorder import Recorder
from workings.tracking.rollout_statistics import rollout_statistics
from workings.training.checkpointer import Checkpointer
from workings.training.distributed import Ranks
from workings.training.forward import check_head, choose_layout
from workings.training.losses import policy_gradient_loss
from workings.training.metrics import Stopwatch, speed_metrics
from workings.training.optim import (
    build_adamw,
    learning_rate_at,
    set_learning_rate,
    warmup_from,
)
from workings.training.packing import MicroBatch, TrainRow, pack, step_totals
from workings.training.progress import (
    Evaluator,
    TrainResult,
    after_evaluation,
    due,
    finish_run,
    nonfinite_in_a_row,
    stopped,
)
from workings.training.state import TrainerState
from workings.training.step import LossFunction, StepOutcome, policy_step, score
from workings.training.stop import StopRequest
from workings.types import RolloutGroup


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
    evaluate: Evaluator | None = None,
    autocast: torch.dtype | None = None,
    pad_id: int = 0,
    ranks: Ranks | None = None,
) -> TrainResult:
    """Train `model` in place from graded rollouts; metrics and checkpoints go where the parts say.

    Args:
        engine: has the model's weights at the start and gets new ones after every rollout batch.
        evaluate: `step -> metrics` on the validation split; called as `config.evaluation` says.
        autocast: bfloat16 runs the arithmetic in it; weights stay float32.

    Raises:
        StoppedBySignal: a stop was requested; the step was finished and saved.
        TrainingError: too many non-finite steps in a row.
    """
    ranks = ranks or Ranks()
    device = next(model.parameters()).device
    check_head(model)
    objective = config.objective.resolve()
    layout = choose_layout(model, config.batch.layout, grouped=True)
    num_updates = config.max_steps * config.updates_per_rollout
    rates = config.optimizer
    warmup = warmup_from(rates.warmup_steps, rates.warmup_ratio, num_updates)
    optimizer = build_adamw(
        model,
        betas=rates.betas,
        eps=rates.eps,
        weight_decay=rates.weight_decay,
        offload=rates.offload,
    )
    restored = checkpointer.restore(model, optimizer)
    state = restored or TrainerState(kind="grpo")
    engine.load_weights(state.step, named_full_weights(model))
    checkpointer.refuse_if_finished(state, done=state.step >= config.max_steps)
    recorder.truncate_after(-1 if restored is None else state.step)
    recorder.log(f"{objective.describe()}; {layout} layout; sampling {sampling}")
    flat = FlatRewardWarner(recorder.warn)
    evaluation: Mapping[str, float] = {}
    if evaluate is not None and restored is None and config.evaluation.at_start:
        evaluation = evaluate(0)
        state = after_evaluation(state, evaluation)

    while state.step < config.max_steps:
        clock = Stopwatch()
        torch.manual_seed(derive_seed(config.seed, "grpo", state.step))

        prompts, cursor = sampler.next_batch(state.cursor)
        groups = collect_groups(
            engine,
            prompts,
            sampling,
            num_samples=config.num_generations,
            seed=derive_seed(config.seed, "rollout", state.step),
            expected_version=state.step,
        )
        clock.lap("rollout")
        groups = grade_groups(groups, reward)
        check_grader(groups)
        clock.lap("reward")
        advantages = group_advantages(
            *reward_table(groups), estimator=objective.advantage, eps=objective.advantage_eps
        )
        updates = [
            Update(
                totals=step_totals(rows, ranks),
                microbatches=pack(
                    [row for row in rows if row.advantage or not config.batch.skip_zero_advantage],
                    layout=layout,
                    max_tokens=config.batch.microbatch_tokens,
                    max_rows=config.batch.microbatch_rows,
                    pad_id=pad_id,
                    device=device,
                ),
            )
            for rows in update_rows(config, groups, advantages)
        ]
        if config.updates_per_rollout > 1:
            updates = [update.scored(model, sampling.temperature, autocast) for update in updates]
        outcomes = []
        for update in updates * config.epochs_per_rollout:
            rate = learning_rate_at(
                state.num_updates,
                num_updates,
                peak=rates.learning_rate,
                schedule=rates.schedule,
                warmup_steps=warmup,
            )
            set_learning_rate(optimizer, rate)
            outcome = policy_step(
                model,
                optimizer,
                update.microbatches,
                objective_loss(objective, update.totals, max_length=sampling.max_tokens),
                temperature=sampling.temperature,
                max_grad_norm=rates.max_grad_norm,
                autocast=autocast,
                ranks=ranks,
            )
            outcomes.append(outcome)
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

        state = replace(
            state,
            step=state.step + 1,
            cursor=cursor,
            elapsed_seconds=state.elapsed_seconds + clock.total,
        )
        num_tokens = sum(update.totals.num_tokens for update in updates)
        recorder.record(
            state.step,
            {
                **policy_metrics(outcomes),
                **reward_metrics(groups),
                **completion_metrics(groups, weight_version=state.step - 1),
                **speed_metrics(device, seconds=clock.total, num_tokens=num_tokens),
                **clock.metrics(),
                "learning_rate": rate,
                "epoch": sampler.epoch_of(cursor),
                "consumed_tokens": state.consumed_tokens,
            },
        )
        recorder.record_rollouts(state.step, groups, advantages=advantages.tolist())
        statistics = rollout_statistics(
            groups, format_right=format_right, answer_right=answer_right
        )
        flat.update(state.step, statistics)
        if evaluate is not None and due(state.step, config.evaluation.every_steps):
            evaluation = evaluate(state.step)
            state = after_evaluation(state, evaluation)
            checkpointer.keep_best(state, model)
        if stop.requested or due(state.step, config.checkpoint.every_steps):
            checkpointer.save(state, model, optimizer)
        if stop.requested and state.step < config.max_steps:
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
class Update:
    """One optimizer step's share of a rollout batch."""

    totals: StepTotals
    microbatches: list[MicroBatch]

    def scored(self, model: nn.Module, temperature: float, autocast: torch.dtype | None) -> Update:
        """The same with the log-probabilities of the rollout's weights, before they change."""
        batches = score(model, self.microbatches, temperature=temperature, autocast=autocast)
        return replace(self, microbatches=batches)


def reward_table(groups: Sequence[RolloutGroup]) -> tuple[Tensor, Tensor]:
    """Rewards [groups, samples] float32 and which of them are usable (bool)."""
    values = [[rollout.reward for rollout in group.rollouts] for group in groups]
    rewards = torch.tensor([[0.0 if v is None else v for v in line] for line in values])
    valid = torch.tensor([[v is not None for v in line] for line in values])
    return rewards, valid


def update_rows(
    config: GRPOConfig, groups: Sequence[RolloutGroup], advantages: Tensor
) -> list[list[TrainRow]]:
    """The rollouts as rows, cut into the optimizer steps of one pass over them.

    A rollout whose gold is unusable is not trained, nor is a truncated one under
    `mask_truncated`; both then leave the denominators too.
    """
    mask_truncated = config.objective.mask_truncated
    rows: list[TrainRow] = []
    for number, (group, line) in enumerate(zip(groups, advantages.tolist(), strict=True)):
        whole = kept_when_masking_overlong([rollout.finish_reason for rollout in group.rollouts])
        for rollout, advantage, is_whole in zip(group.rollouts, line, whole, strict=True):
            trained = rollout.reward is not None and (is_whole or not mask_truncated)
            rows.append(
                TrainRow(
                    key=len(rows),
                    group=number,
                    prompt_ids=group.prompt.ids,
                    response_ids=rollout.ids,
                    mask=[keep and trained for keep in rollout.mask],
                    advantage=advantage,
                    sampling_logprobs=rollout.sampling_logprobs,
                    kept_mass=rollout.kept_mass,
                )
            )
    size = config.rows_per_update
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def objective_loss(
    objective: ResolvedObjective, totals: StepTotals, *, max_length: int
) -> LossFunction:
    """The objective's loss for an optimizer step with these totals."""
    return policy_gradient_loss(
        totals,
        surrogate=objective.surrogate,
        reduction=objective.reduction,
        epsilon=objective.epsilon,
        epsilon_high=objective.epsilon_high,
        correction_cap=objective.correction_cap if objective.correction == "tis_token" else None,
        max_length=max_length,
    )


def policy_metrics(outcomes: Sequence[StepOutcome]) -> dict[str, float]:
    """Metrics of a rollout batch's optimizer steps, by their names in the log."""

    def total(name: str) -> float:
        return sum(outcome.sums.get(name, 0.0) for outcome in outcomes)

    def largest(name: str) -> float:
        return max((outcome.maxima.get(name, 0.0) for outcome in outcomes), default=0.0)

    tokens, scored = max(total("tokens"), 1.0), max(total("scored"), 1.0)
    loss = sum(outcome.loss for outcome in outcomes) / len(outcomes)
    return {
        "loss": loss,
        "policy_loss": loss,
        "grad_norm": sum(outcome.grad_norm for outcome in outcomes) / len(outcomes),
        "skipped_steps": float(sum(outcome.skipped for outcome in outcomes)),
        "num_updates": float(len(outcomes)),
        "trained_tokens": total("tokens"),
        "token_entropy": total("entropy") / tokens,
        "clip_fraction": (total("clip_low") + total("clip_high")) / tokens,
        "clip_fraction/low": total("clip_low") / tokens,
        "clip_fraction/high": total("clip_high") / tokens,
        "ratio/mean": total("ratio") / tokens,
        "ratio/max": largest("ratio"),
        "mismatch_ratio/mean": total("mismatch") / tokens,
        "mismatch_ratio/max": largest("mismatch"),
        "logprob_difference/mean": total("gap") / scored,
        "logprob_difference/max": largest("gap"),
    }
