"""Rules of a schedule that samples the next batch while this one trains.

Samples of the weights of one step before are weighed by the ratio of the two policies; what a batch
asks for must be known before the batch ahead of it is graded; and the engine must be able to sample
while the trainer trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from workings.config.objective import PRESETS
from workings.config.objective_settings import ObjectiveConfig, ResolvedObjective
from workings.config.sections import EngineConfig
from workings.errors import ConfigError

Schedule = Literal["synchronous", "one_step_off"]
STALE_CORRECTION = "tis_token"
"""min(pi / mu, 2) per token: the importance weight of decoupled PPO (2110.00641, eq. 13; AReaL,
2505.24298, eq. 5), truncated as in IMPALA (1802.01561) so that its variance is bounded."""


def with_correction(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run, with a correction where samples are stale and none is named."""
    values = dict(values)
    if values.get("schedule") != "one_step_off":
        return values
    objective = values.get("objective") or {}
    if isinstance(objective, ObjectiveConfig):
        if objective.correction is None and objective.resolve().correction == "none":
            values["objective"] = objective.model_copy(update={"correction": STALE_CORRECTION})
    elif isinstance(objective, Mapping) and objective.get("correction") is None:
        preset = PRESETS.get(objective.get("preset", "grpo"))
        if preset is None or preset.values.get("correction", "none") == "none":
            values["objective"] = {**objective, "correction": STALE_CORRECTION}
    return values


def describe_one_step_off(objective: ResolvedObjective, engine: EngineConfig) -> str:
    """What happens, in one line."""
    where = "a server" if engine.name == "server" else "a process of its own"
    device = "" if engine.device is None else f" on {engine.device}"
    return (
        f"step k + 1 is sampled by {where}{device} while step k trains, with the weights that step "
        f"k starts from; objective.correction={objective.correction} weighs what is stale by one "
        "version, and a checkpoint keeps the batch ahead"
    )


def check_one_step_off(objective: ResolvedObjective, engine: EngineConfig) -> None:
    """Raise for what cannot be sampled ahead, is not corrected, or would not overlap."""
    if objective.replay:
        raise ConfigError(
            "schedule=one_step_off asks for a batch before the one ahead of it is graded, and "
            "objective.replay chooses by these grades what a batch replays",
            hint="set schedule=synchronous, or objective.replay=false",
        )
    if objective.correction == "none":
        raise ConfigError(
            "objective.correction=none, but with schedule=one_step_off the samples come from the "
            "weights of the step before and have to be weighed",
            hint=f"leave objective.correction out, which takes {STALE_CORRECTION}, or choose "
            "another one",
        )
    if not engine.own_process and engine.name != "server":
        raise ConfigError(
            f"schedule=one_step_off with engine.name={engine.name}, which samples in the trainer's "
            "process: nothing would be sampled during training, and samples would be stale for "
            "nothing",
            hint="set engine.own_process=true (and engine.device to another card, if there is "
            "one), engine.name=server, or schedule=synchronous",
        )
