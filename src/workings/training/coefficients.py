"""Factors of KL and entropy bonus that a controller may steer from one step to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from workings.config.objective_settings import ResolvedObjective
from workings.objectives.entropy import applied_entropy_coefficient, next_entropy_coefficient
from workings.objectives.kl import next_kl_coefficient


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
