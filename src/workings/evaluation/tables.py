"""Text tables, legible anywhere: no colour, no box characters, intervals beside every accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from workings.evaluation.metrics import Estimate, PairedDifference
from workings.evaluation.result import EvaluationResult
from workings.tracking.progress import format_duration

Alignment = Literal["left", "right"]


def text_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    alignments: Sequence[Alignment] | None = None,
) -> str:
    """The table as text: a header, a rule, the rows. The first column is left, the others right.

    >>> print(text_table(["stage", "right"], [["base", "38.0"], ["after SFT", "63.0"]]))
    stage      right
    ---------  -----
    base        38.0
    after SFT   63.0
    """
    others: list[Alignment] = ["right"] * (len(headers) - 1)
    sides = alignments or ["left", *others]
    widths = [max(len(row[i]) for row in (headers, *rows)) for i in range(len(headers))]
    lines = []
    for row in (headers, ["-" * width for width in widths], *rows):
        cells = [
            cell.ljust(width) if side == "left" else cell.rjust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def format_accuracy(counted: str, low: float, high: float) -> str:
    """A count with its share and interval, in percent.

    >>> format_accuracy("412/500", 0.7882, 0.8549)
    '412/500  82.4 % [78.8, 85.5]'
    """
    right, _, total = counted.partition("/")
    return f"{counted}  {format_share(int(right) / int(total), low, high)}"


def format_share(value: float, low: float, high: float) -> str:
    """A share with its interval, in percent.

    >>> format_share(0.824, 0.7882, 0.8549)
    '82.4 % [78.8, 85.5]'
    """
    return f"{100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def format_estimate(estimate: Estimate) -> str:
    """An estimate as text; single samples show the count as well.

    >>> format_estimate(Estimate(value=0.5, low=0.24, high=0.76, num_problems=10, num_samples=1,
    ...     interval="wilson"))
    '5/10  50.0 % [24.0, 76.0]'
    """
    if estimate.num_samples == 1 and estimate.interval == "wilson":
        right = round(estimate.value * estimate.num_problems)
        return format_accuracy(f"{right}/{estimate.num_problems}", estimate.low, estimate.high)
    return format_share(estimate.value, estimate.low, estimate.high)


def format_difference(difference: PairedDifference) -> str:
    """A paired difference in points, and whether it is clear.

    >>> from workings.evaluation.metrics import paired_difference
    >>> format_difference(paired_difference([0, 0, 1, 1] * 25, [1, 0, 1, 1] * 25))
    '+25.0 points [+17.5, +34.3] over 100 problems (25 better, 0 worse): clear'
    """
    low, high = 100 * difference.low, 100 * difference.high
    return (
        f"{100 * difference.difference:+.1f} points [{low:+.1f}, {high:+.1f}] over "
        f"{difference.num_problems} problems ({difference.num_better} better, "
        f"{difference.num_worse} worse): {'clear' if difference.is_clear else 'not clear'}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One row of a before-and-after table: a model on the same held-out problems.

    `seconds` is the training time of the stage, None where nothing was trained; `mean_length` is
    in tokens.
    """

    name: str
    accuracy: Estimate
    format_rate: float
    mean_length: float
    seconds: float | None = None


def stage_of(name: str, result: EvaluationResult, *, seconds: float | None = None) -> Stage:
    """The row of an evaluated stage."""
    return Stage(
        name=name,
        accuracy=result.accuracy,
        format_rate=result.metrics["format_accuracy"],
        mean_length=result.metrics["avg_response_length/total"],
        seconds=seconds,
    )


def stages_table(stages: Sequence[Stage]) -> str:
    """base, SFT, GRPO, control ...: accuracy with interval, format, length and training time."""
    headers = ["model", "accuracy, 95 % interval", "format", "mean tokens", "training"]
    rows = [
        [
            stage.name,
            format_estimate(stage.accuracy),
            _percent(stage.format_rate),
            f"{stage.mean_length:.1f}",
            "-" if stage.seconds is None else format_duration(stage.seconds),
        ]
        for stage in stages
    ]
    return text_table(headers, rows)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
