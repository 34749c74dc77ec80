"""Speed of a run's own steps: tokens per second, MFU and the time of every phase, from metrics."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workings.evaluation.tables import text_table

TIMING = "timing/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median of the measured steps, and the smallest and largest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(median=statistics.median(values), low=min(values), high=max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What was measured over `num_steps` steps.

    Attributes:
        step_seconds: of a whole step.
        phases: seconds by phase ("rollout", "train", ...); one phase where a run has no others.
        trained_tokens_per_second: over the whole step.
        sampled_tokens_per_second: over the rollout; None where nothing is sampled.
        train_tflops: operations of training per second of its phase, in TFLOP/s.
        mfu: that over the device's peak; None where the peak is not known.
        peak_memory_gb: the most that the process held, 10^9 bytes.
    """

    num_steps: int
    step_seconds: Spread
    phases: Mapping[str, Spread]
    trained_tokens_per_second: Spread
    sampled_tokens_per_second: Spread | None
    train_tflops: Spread
    mfu: Spread | None
    peak_memory_gb: float

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return asdict(self)


def measure(
    rows: Sequence[Mapping[str, Any]], *, samples_per_step: int, peak_flops: float | None
) -> Throughput:
    """The throughput of steps by their rows of metrics ("train/step_time", "timing/train", ...)."""
    trains = [row.get(f"{TIMING}train", row["train/step_time"]) for row in rows]
    flops = [row["train/model_flops"] / seconds for row, seconds in zip(rows, trains, strict=True)]
    names = [name for name in rows[0] if name.startswith(TIMING)]
    phases = {name.removeprefix(TIMING): Spread.of([row[name] for row in rows]) for name in names}
    length = "train/completion_length/mean"
    sampled = [
        row[length] * samples_per_step / row[f"{TIMING}rollout"]
        for row in rows
        if length in row and row.get(f"{TIMING}rollout", 0) > 0
    ]
    return Throughput(
        num_steps=len(rows),
        step_seconds=Spread.of([row["train/step_time"] for row in rows]),
        phases=phases or {"train": Spread.of(trains)},
        trained_tokens_per_second=Spread.of([row["train/tokens_per_sec"] for row in rows]),
        sampled_tokens_per_second=Spread.of(sampled) if sampled else None,
        train_tflops=Spread.of([value / 1e12 for value in flops]),
        mfu=None if peak_flops is None else Spread.of([value / peak_flops for value in flops]),
        peak_memory_gb=max(row["train/peak_memory_gb"] for row in rows),
    )


def throughput_table(found: Throughput) -> str:
    """Phases with their share of the step, then speeds, as text."""
    whole = found.step_seconds.median
    lines = [
        [name, _spread(seconds, ".3f"), f"{100 * seconds.median / whole:.1f} %"]
        for name, seconds in found.phases.items()
    ]
    lines.append(["whole step", _spread(found.step_seconds, ".3f"), ""])
    speeds = [["trained tokens/s", _spread(found.trained_tokens_per_second, ",.0f")]]
    if found.sampled_tokens_per_second is not None:
        speeds.append(["sampled tokens/s", _spread(found.sampled_tokens_per_second, ",.0f")])
    speeds.append(["TFLOP/s in training", _spread(found.train_tflops, ",.3g")])
    mfu = "-" if found.mfu is None else _spread(found.mfu, ".1%")
    speeds.append(["MFU in training", mfu])
    speeds.append(["peak memory", f"{found.peak_memory_gb:.2f} GB"])
    return "\n\n".join(
        (
            text_table([f"phase, {found.num_steps} steps", "seconds", "share"], lines),
            text_table(["speed", "median [lowest, highest]"], speeds),
        )
    )


def _spread(value: Spread, form: str) -> str:
    return f"{value.median:{form}} [{value.low:{form}}, {value.high:{form}}]"
