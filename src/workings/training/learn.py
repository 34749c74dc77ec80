"""Hops 4 to 6: graded groups to advantages, to microbatches, to optimizer steps.

Every loop over rollouts trains with these three calls, one under the other:

    credit = credit_batch(learner, plan, drawn, ...)      4  assign_credit
    updates = pack_batch(learner, plan, groups, credit)   5  packer.updates
    trained = update_policy(learner, plan, updates, ...)  6  policy_step, once for each update

What only some objectives need is done between them: the reference's log-probabilities (beta), old
ones (several updates per batch), what has to be known of a whole step (token selection).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from workings.config.grpo import GRPOConfig
from workings.config.objective_settings import ResolvedObjective
from workings.rewards.four_classes import answer_right
from workings.rollout.engine import SamplingParams
from workings.rollout.replay_batch import replay_started, solve_rate
from workings.seeds import derive_seed
from workings.training.coefficients import Coefficients
from workings.training.credit import Credit, assign_credit
from workings.training.distributed import Ranks
from workings.training.draw import Drawn
from workings.training.flops import Work
from workings.training.forward import check_head, choose_layout
from workings.training.layers import prepare_layers
from workings.training.optim import (
    configured_optimizer,
    learning_rate_at,
    set_learning_rate,
    warmup_from,
)
from workings.training.packing import Layout
from workings.training.policy_loss import policy_gradient_loss
from workings.training.policy_metrics import policy_metrics
from workings.training.progress import nonfinite_in_a_row
from workings.training.reference import Reference
from workings.training.reward_kl import Penalties, kl_of_rows, token_penalties
from workings.training.state import TrainerState
from workings.training.step import StepOutcome, policy_step
from workings.training.updates import (
    Packer,
    Update,
    score_updates,
    step_statistics,
    training_rows,
)
from workings.types import RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """What batches are trained with; the same for the whole run.

    Attributes:
        reference: the policy at the start of the run, where the objective compares with it.
        layers: how they run, as text.
        reward_weights: of the reward's components, for advantages that weigh them.
        autocast: bfloat16 runs the arithmetic in it; weights stay float32.
    """

    config: GRPOConfig
    model: nn.Module
    optimizer: torch.optim.Optimizer
    reference: Reference | None
    layout: Layout
    layers: str
    sampling: SamplingParams
    reward_weights: Mapping[str, float]
    autocast: torch.dtype | None
    pad_id: int
    ranks: Ranks

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What is settled before a step's batch is there.

    Attributes:
        objective: of this step; before its replay begins, ExGRPO has another one.
        coefficients: of KL and entropy, as the step before left them.
        seed: of the step.
        waits_for_replay: the replay has not begun.
    """

    objective: ResolvedObjective
    coefficients: Coefficients
    seed: int
    waits_for_replay: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What the optimizer steps of a batch did.

    Attributes:
        outcomes: one for each step.
        state: with the steps and their tokens counted.
        learning_rate: of the last one.
        num_tokens: trained tokens of the batch, counted once.
        work: of all steps, every pass over the batch counted.
    """

    outcomes: list[StepOutcome]
    state: TrainerState
    coefficients: Coefficients
    learning_rate: float
    num_tokens: int
    work: Work


def open_learner(
    config: GRPOConfig,
    model: nn.Module,
    *,
    sampling: SamplingParams,
    reward_weights: Mapping[str, float],
    autocast: torch.dtype | None,
    pad_id: int,
    ranks: Ranks,
) -> Learner:
    """The learner of a run that begins or resumes; the reference is the model as it is now."""
    check_head(model)
    layers = prepare_layers(
        model,
        checkpointing=config.batch.activation_checkpointing,
        kernels=config.model.kernels,
    )
    rates = config.optimizer
    return Learner(
        config=config,
        model=model,
        optimizer=configured_optimizer(model, rates),
        reference=Reference(model) if config.objective.resolve().needs_reference else None,
        layout=choose_layout(model, config.batch.layout, grouped=True, autocast=autocast),
        layers=layers,
        sampling=sampling,
        reward_weights=reward_weights,
        autocast=autocast,
        pad_id=pad_id,
        ranks=ranks,
    )


def begin_step(wanted: ResolvedObjective, state: TrainerState, *, seed: int) -> StepPlan:
    """The plan of the step after `state`, with torch's random state set for it."""
    seed = derive_seed(seed, "grpo", state.step)
    torch.manual_seed(seed)
    waits = wanted.replay and not state.replay_started
    objective = wanted.before_replay() if waits else wanted
    return StepPlan(
        objective=objective,
        coefficients=Coefficients.of(objective, state.controllers),
        seed=seed,
        waits_for_replay=waits,
    )


def credit_batch(
    learner: Learner, plan: StepPlan, drawn: Drawn, *, controllers: Mapping[str, float]
) -> Credit:
    """Hop 4: what each row is worth against its own group, a KL in the reward taken off."""
    penalties = _penalties(learner, plan, drawn.groups)
    credit = assign_credit(
        plan.objective,
        drawn.groups,
        penalties=penalties,
        baselines=drawn.baselines,
        weights=learner.reward_weights,
        controllers=controllers,
        ranks=learner.ranks,
    )
    if penalties is None:
        return credit
    kl = kl_of_rows(penalties, plan.coefficients.beta, learner.ranks)
    return replace(credit, metrics={**credit.metrics, **kl})


def pack_batch(
    learner: Learner, plan: StepPlan, groups: Sequence[RolloutGroup], credit: Credit
) -> list[Update]:
    """Hop 5: the updates of a batch, with the scores that stay fixed over all of them."""
    rows = training_rows(
        groups,
        credit.advantages,
        mask_truncated=plan.objective.mask_truncated,
        first_key=_first_key(learner, groups),
    )
    return score_updates(
        _packer(learner, plan).updates(rows),
        learner.model,
        temperature=learner.sampling.temperature,
        autocast=learner.autocast,
        old=learner.config.updates_per_rollout > 1,
        first_is_current=learner.config.epochs_per_rollout == 1,
        reference=learner.reference if plan.objective.kl_in == "loss" else None,
    )


def update_policy(
    learner: Learner, plan: StepPlan, updates: Sequence[Update], state: TrainerState
) -> Trained:
    """Hop 6: one optimizer step for each update; model and optimizer are changed in place.

    Raises TrainingError after too many steps in a row whose gradient was not finite.
    """
    config, rates = learner.config, learner.config.optimizer
    num_updates = config.max_steps * config.updates_per_rollout
    warmup = warmup_from(rates.warmup_steps, rates.warmup_ratio, num_updates)
    coefficients, outcomes, rate = plan.coefficients, [], 0.0
    for number, update in enumerate([*updates] * config.epochs_per_rollout):
        rate = learning_rate_at(
            state.num_updates,
            num_updates,
            peak=rates.learning_rate,
            schedule=rates.schedule,
            warmup_steps=warmup,
        )
        set_learning_rate(learner.optimizer, rate)
        known = step_statistics(
            update,
            plan.objective,
            learner.model,
            temperature=learner.sampling.temperature,
            autocast=learner.autocast,
            seed=derive_seed(plan.seed, "update", number),
            ranks=learner.ranks,
        )
        outcome = policy_step(
            learner.model,
            learner.optimizer,
            known.update.microbatches,
            policy_gradient_loss(
                known.update.totals,
                plan.objective,
                max_length=learner.sampling.max_tokens,
                beta=coefficients.beta,
                entropy_coef=coefficients.applied_entropy(known.entropy),
                num_ranks=learner.ranks.size,
            ),
            temperature=learner.sampling.temperature,
            max_grad_norm=rates.max_grad_norm,
            skip_above=rates.skip_above_grad_norm,
            autocast=learner.autocast,
            ranks=learner.ranks,
        )
        outcomes.append(outcome)
        coefficients = coefficients.after_update(known.entropy)
        state = replace(
            state,
            num_updates=state.num_updates + 1,
            consumed_tokens=state.consumed_tokens + update.totals.num_tokens,
            nonfinite_in_a_row=nonfinite_in_a_row(
                outcome,
                state.nonfinite_in_a_row,
                most=rates.max_nonfinite_steps,
                skip_above=rates.skip_above_grad_norm,
            ),
        )
    return Trained(
        outcomes=outcomes,
        state=state,
        coefficients=coefficients,
        learning_rate=rate,
        num_tokens=sum(update.totals.num_tokens for update in updates),
        work=sum([update.work for update in updates] * config.epochs_per_rollout, Work()),
    )


def finish_step(
    learner: Learner,
    plan: StepPlan,
    drawn: Drawn,
    *,
    credit: Credit,
    trained: Trained,
    seconds: float,
) -> TrainerState:
    """The state after the step, with what steers the next one: controllers, cursor, replay."""
    groups, ranks = drawn.groups, learner.ranks
    num_rows = sum(ranks.all_objects(sum(len(group.rollouts) for group in groups)))
    coefficients = trained.coefficients.after_batch(
        {**policy_metrics(trained.outcomes), **credit.metrics}.get("kl"), num_rows=num_rows
    )
    started = plan.waits_for_replay and replay_started(
        solve_rate(groups, is_right=answer_right),
        threshold=learner.config.replay.start_solve_rate,
        started=False,
    )
    state = trained.state
    return replace(
        state,
        step=state.step + 1,
        cursor=drawn.cursor,
        elapsed_seconds=state.elapsed_seconds + seconds,
        controllers={**state.controllers, **credit.controllers, **coefficients.controllers()},
        replay_started=state.replay_started or started,
    )


def _penalties(
    learner: Learner, plan: StepPlan, groups: Sequence[RolloutGroup]
) -> Penalties | None:
    """The KL to the reference per token, where it is taken from the reward."""
    if learner.reference is None or plan.objective.kl_in != "reward":
        return None
    first_key = _first_key(learner, groups)
    scored = score_updates(
        _packer(learner, plan).updates(training_rows(groups, first_key=first_key), whole=True),
        learner.model,
        temperature=learner.sampling.temperature,
        autocast=learner.autocast,
        old=True,
        reference=learner.reference,
    )
    return token_penalties(scored, groups, coefficient=plan.coefficients.beta, first_key=first_key)


def _packer(learner: Learner, plan: StepPlan) -> Packer:
    return Packer(
        config=learner.config,
        objective=plan.objective,
        layout=learner.layout,
        pad_id=learner.pad_id,
        device=learner.device,
        ranks=learner.ranks,
    )


def _first_key(learner: Learner, groups: Sequence[RolloutGroup]) -> int:
    """Rows of the ranks before this one."""
    ranks = learner.ranks
    return sum(ranks.all_objects(learner.config.num_generations * len(groups))[: ranks.rank])
