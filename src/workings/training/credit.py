"""Hop 4: what each row of a batch is worth. Rewards to advantages, per row or per token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from workings.config.objective_settings import ResolvedObjective
from workings.errors import TrainingError
from workings.objectives.advantages import group_advantages
from workings.objectives.component_advantages import gdpo_advantages
from workings.objectives.group_statistics import group_statistics
from workings.objectives.role_averages import RoleAverages
from workings.objectives.token_advantages import reinforce_pp_advantages
from workings.training.distributed import Ranks
from workings.types import Rollout, RolloutGroup

Advantage = float | list[float]
ROLE = "rae/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """Advantages by group and row; a list where they differ within the row.

    `controllers` are the averages that `rae` goes on with; `metrics` are of the groups.
    """

    advantages: list[list[Advantage]]
    controllers: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def by_row(self) -> list[list[float]]:
        """One number a row, the mean over tokens where they differ; what is stored with it."""
        return [
            [sum(a) / max(len(a), 1) if isinstance(a, list) else a for a in line]
            for line in self.advantages
        ]


def reward_table(groups: Sequence[RolloutGroup]) -> tuple[Tensor, Tensor]:
    """Rewards [groups, samples] float32 and which of them are usable (bool)."""
    values = [[rollout.reward for rollout in group.rollouts] for group in groups]
    rewards = _by_row([[0.0 if v is None else v for v in line] for line in values]).float()
    valid = _by_row([[v is not None for v in line] for line in values]).bool()
    return rewards, valid


def _by_row(table: list[list[float]] | list[list[int]] | list[list[bool]]) -> Tensor:
    """[groups, samples]. Without a group (a rank may have none) groups of two, as if comparable."""
    return torch.tensor(table) if table else torch.zeros(0, 2)


def assign_credit(
    objective: ResolvedObjective,
    groups: Sequence[RolloutGroup],
    *,
    penalties: Sequence[Sequence[Sequence[float]]] | None = None,
    baselines: Sequence[float] | None = None,
    weights: Mapping[str, float] | None = None,
    controllers: Mapping[str, float] | None = None,
    ranks: Ranks | None = None,
) -> Credit:
    """The advantages of all rows, over complete groups.

    Args:
        penalties: per token of each row, taken from its reward (KL in the reward).
        baselines: the reward of each prompt's greedy answer (remax).
        weights: of the reward's components (gdpo).
        controllers: the averages by role so far (rae).
    """
    ranks = ranks or Ranks()
    rewards, valid = reward_table(groups)
    statistics = group_statistics(rewards, valid, reduce=ranks.all_sum)
    if objective.advantage == "reinforce_pp":
        table = _token_table(objective, groups, rewards, valid, penalties, ranks)
        return Credit(advantages=_scaled(objective, groups, table), metrics=statistics.metrics())
    if penalties is not None:
        rewards = rewards - _by_row([[sum(row) for row in line] for line in penalties])
    lengths = _by_row([[sum(r.mask) for r in group.rollouts] for group in groups])
    averages = RoleAverages(
        values={
            name.removeprefix(ROLE): value
            for name, value in (controllers or {}).items()
            if name.startswith(ROLE)
        },
        decay=objective.rae_decay,
    )
    roles = [_role(group) for group in groups]
    if objective.advantage == "gdpo":
        names = sorted(weights or {})
        advantages = gdpo_advantages(
            _components(groups, names),
            torch.tensor([(weights or {})[name] for name in names]),
            valid,
            eps=objective.advantage_eps,
            lengths=lengths,
            reduce=ranks.all_sum,
        )
    else:
        given = baselines
        if objective.advantage == "rae":
            given = averages.baselines(roles).tolist()
        advantages = group_advantages(
            rewards,
            valid,
            estimator=objective.advantage,
            eps=objective.advantage_eps,
            counted=_counted(groups) if objective.advantage_pool == "on_policy" else None,
            lengths=lengths,
            baselines=None if given is None else torch.tensor(given),
            gpg_norm=objective.gpg_norm,
            reduce=ranks.all_sum,
        )
    after: dict[str, float] = {}
    if objective.advantage == "rae":
        if ranks.size > 1:
            raise TrainingError("objective.advantage=rae runs on one process")
        moved = averages.updated(rewards, roles, valid)
        after = {ROLE + role: value for role, value in moved.values.items()}
    return Credit(
        advantages=_scaled(objective, groups, [list(line) for line in advantages.tolist()]),
        controllers=after,
        metrics=statistics.metrics(),
    )


def _token_table(
    objective: ResolvedObjective,
    groups: Sequence[RolloutGroup],
    rewards: Tensor,
    valid: Tensor,
    penalties: Sequence[Sequence[Sequence[float]]] | None,
    ranks: Ranks,
) -> list[list[Advantage]]:
    """reinforce_pp: discounted returns of every token, whitened over the step."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    width = max((len(rollout.ids) for rollout in rollouts), default=0)
    usable = valid.flatten().tolist()
    mask = torch.tensor(
        [
            [keep and ok for keep in r.mask] + [False] * (width - len(r.ids))
            for r, ok in zip(rollouts, usable, strict=True)
        ],
        dtype=torch.bool,
    ).view(len(rollouts), width)
    costs = None
    if penalties is not None:
        rows = [row for line in penalties for row in line]
        costs = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows]).view_as(mask)
    values = reinforce_pp_advantages(
        rewards.flatten(), mask, costs, discount=objective.discount, reduce=ranks.all_sum
    ).tolist()
    flat: list[Advantage] = [
        line[: len(rollout.ids)] for line, rollout in zip(values, rollouts, strict=True)
    ]
    remaining = iter(flat)
    return [[next(remaining) for _ in group.rollouts] for group in groups]


def _scaled(
    objective: ResolvedObjective, groups: Sequence[RolloutGroup], table: list[list[Advantage]]
) -> list[list[Advantage]]:
    """0 for truncated rows where asked, and the factors on teacher and own tokens."""
    return [
        [
            _row(objective, rollout, advantage)
            for rollout, advantage in zip(group.rollouts, line, strict=True)
        ]
        for group, line in zip(groups, table, strict=True)
    ]


def _row(objective: ResolvedObjective, rollout: Rollout, advantage: Advantage) -> Advantage:
    if objective.zero_truncated_advantage and rollout.finish_reason == "length":
        return 0.0
    off, own = objective.off_advantage_scale, objective.on_advantage_scale
    if off == own == 1.0:
        return advantage
    values = advantage if isinstance(advantage, list) else [advantage] * len(rollout.ids)
    return [
        value * (off if is_off else own)
        for value, is_off in zip(values, rollout.off_policy, strict=True)
    ]


def _counted(groups: Sequence[RolloutGroup]) -> Tensor:
    """The rows that the policy sampled from their first token on, [groups, samples] bool."""
    return _by_row([[not any(r.off_policy) for r in group.rollouts] for group in groups]).bool()


def _components(groups: Sequence[RolloutGroup], names: Sequence[str]) -> Tensor:
    """[components, groups, samples]; a component that skipped a row counts 0 there."""
    return torch.stack(
        [
            _by_row([[r.components.get(name, 0.0) for r in group.rollouts] for group in groups])
            for name in names
        ]
    )


def _role(group: RolloutGroup) -> str:
    """What `rae` averages over: the problem's role, or its data set."""
    return str(group.problem.extra.get("role", group.problem.source))
