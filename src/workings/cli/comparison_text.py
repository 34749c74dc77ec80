"""What `workings compare` prints: paired tables, and the final metrics of training runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from workings.cli.terminal_text import on_one_line
from workings.evaluation.comparison import SIGNIFICANCE, Comparison, Finding
from workings.evaluation.tables import format_share, text_table

WORDS: Mapping[Finding, str] = {
    "better": "clearly better",
    "worse": "clearly worse",
    "not clear": "not clear",
}
Cell = tuple[float, int]
"""A metric's last value and its step."""


def comparison_report(comparisons: Sequence[Comparison]) -> str:
    """One table for each side that is held against the reference, and how to read them."""
    pairs = dict.fromkeys((one.reference, one.other) for one in comparisons)
    p_header = "p" if len(comparisons) == 1 else "p (Holm)"
    parts = [
        _pair_table(
            [one for one in comparisons if (one.reference, one.other) == pair],
            *pair,
            p_header=p_header,
        )
        for pair in pairs
    ]
    parts += ["\n".join(lines) for lines in [_seed_lines(comparisons)] if lines]
    return "\n\n".join([*parts, _how_to_read(len(comparisons))])


def final_metrics_table(metrics: Mapping[str, Mapping[str, Cell]]) -> str:
    """{run: {metric: (value, step)}} with one column per run; accuracies keep their intervals."""
    names = list(dict.fromkeys(name for run in metrics.values() for name in run))
    shown = [name for name in names if not _is_end(name, names)]
    rows = [[on_one_line(name), *(_cell(run, name) for run in metrics.values())] for name in shown]
    return text_table(["last recorded (step)", *map(on_one_line, metrics)], rows)


def _pair_table(
    comparisons: Sequence[Comparison], reference: str, other: str, *, p_header: str
) -> str:
    headers = ["data set", "problems", reference, other, "difference", "better", "worse", p_header]
    headers.append("")
    rows = []
    for one in comparisons:
        first, second, difference = one.reference_accuracy, one.other_accuracy, one.difference
        rows.append(
            [
                on_one_line(one.dataset),
                str(difference.num_problems),
                format_share(first.value, first.low, first.high),
                format_share(second.value, second.low, second.high),
                f"{100 * difference.difference:+.1f} "
                f"[{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]",
                str(difference.num_better),
                str(difference.num_worse),
                _p_value(one.corrected_p_value),
                WORDS[one.finding],
            ]
        )
    title = f"{on_one_line(other)} against {on_one_line(reference)}"
    return f"{title}\n\n{text_table([*map(on_one_line, headers)], rows)}"


def _seed_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """The accuracy of every pooled evaluation: its interval says nothing about other seeds."""
    lines = []
    for one in comparisons:
        for label, seeds in ((one.reference, one.reference_seeds), (one.other, one.other_seeds)):
            if len(seeds) > 1:
                listed = ", ".join(f"{100 * value:.1f} %" for value in seeds)
                lines.append(f"{one.dataset}, {label}: {len(seeds)} pooled by problem, {listed}")
    return list(dict.fromkeys(map(on_one_line, lines)))


def _how_to_read(num_comparisons: int) -> str:
    text = (
        "Accuracies and differences (in points) have 95 % intervals over problems; better and "
        "worse\ncount problems."
    )
    if num_comparisons == 1:
        return f"{text} Clear: the interval leaves zero out."
    return (
        f"{text} p is corrected for {num_comparisons} comparisons (Holm), and clear is what\n"
        f"stays below {SIGNIFICANCE:g}; the intervals are not corrected."
    )


def _p_value(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _cell(run: Mapping[str, Cell], name: str) -> str:
    if name not in run:
        return "-"
    value, step = run[name]
    low, high = run.get(f"{name}_low"), run.get(f"{name}_high")
    if low is not None and high is not None:
        return f"{format_share(value, low[0], high[0])} ({step})"
    number = f"{value:.4g}" if math.isfinite(value) else str(value)
    return f"{number} ({step})"


def _is_end(name: str, names: Sequence[str]) -> bool:
    """Whether this is the low or high end of another metric."""
    return any(name == f"{other}{end}" for end in ("_low", "_high") for other in names)
