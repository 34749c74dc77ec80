"""What a loop remembers between steps, beside weights and optimizer: plain numbers, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from workings.errors import CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """Progress of a run after a whole number of steps.

    Order of rows, sampling and dropout are functions of the seed and these numbers, so no random
    state is stored (`seeds.derive_seed`).

    Attributes:
        kind: of the run; a checkpoint of one kind does not resume another.
        step: steps finished; of SFT optimizer steps, of GRPO rollout batches, of expert iteration
            both.
        num_updates: optimizer steps attempted, skipped ones included.
        cursor: rows (SFT) or prompts (GRPO) drawn.
        consumed_tokens: trained tokens.
        elapsed_seconds: training time so far, evaluation left out.
        nonfinite_in_a_row: skipped steps since the last good one.
        best_value, best_step: of the validation metric; step 0 is the start.
        stopped_by_rule: the run ended because its stop rule held.
        controllers: numbers that steer a coefficient or a baseline, by name: "beta",
            "entropy_coef", "rae/ROLE".
        replay_started: own past successes are being replayed.
        microbatch_tokens: of the run; 0 where an earlier version did not store it.
        iteration: rounds of expert iteration begun.
        iteration_start, iteration_end: the step at which the current round was sampled, and the
            one that ends it.
    """

    kind: str
    step: int = 0
    num_updates: int = 0
    cursor: int = 0
    consumed_tokens: int = 0
    elapsed_seconds: float = 0.0
    nonfinite_in_a_row: int = 0
    best_value: float | None = None
    best_step: int | None = None
    stopped_by_rule: bool = False
    controllers: dict[str, float] = field(default_factory=dict)
    replay_started: bool = False
    microbatch_tokens: int = 0
    iteration: int = 0
    iteration_start: int = 0
    iteration_end: int = 0

    def with_best(self, value: float | None) -> TrainerState:
        """The state with `value` of this step as the best, where it is better than before."""
        if value is None or (self.best_value is not None and value <= self.best_value):
            return self
        return replace(self, best_value=value, best_step=self.step)

    def write(self, path: Path) -> None:
        """Store as JSON; floats survive exactly."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path, *, kind: str) -> TrainerState:
        """The stored state; CheckpointError where the file is of another kind or a later version.

        What an earlier version did not store has its default.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        known = {entry.name for entry in fields(cls)}
        if not isinstance(values, dict) or "kind" not in values or set(values) - known:
            raise CheckpointError(
                f"{path} does not hold the training state of this version; "
                f"expected {', '.join(sorted(known))}"
            )
        if values["kind"] != kind:
            raise CheckpointError(
                f"{path} is from a {values['kind']} run; this is a {kind} run",
                hint="give --resume a checkpoint of the same command, or another name=",
            )
        return cls(**values)
