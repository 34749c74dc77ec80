"""What `workings eval` prints at its end, from the summaries of its data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workings.evaluation.metrics import Estimate
from workings.evaluation.tables import format_estimate, format_share, text_table
from workings.rewards.four_classes import CATEGORIES
from workings.tracking.progress import format_duration

Summary = Mapping[str, Any]
CLASS_NAMES = ("format and answer right", "format only", "neither", "answer only")
NOT_DECIDED = {
    "undecided_rate": "undecided",
    "refused_rate": "refused as too large",
    "timeout_rate": "timed out",
    "internal_error_rate": "failed in the grader",
}


def evaluation_report(summaries: Sequence[Summary]) -> str:
    """The tables: accuracy with interval, the four classes, and several-sample estimates.

    The strict accuracy (format and answer) and the lenient one (the answer alone) have a column
    each; the second is known only where the reward grades answers outside of the format.
    """
    parts = [_accuracy_table(summaries), _class_table(summaries)]
    parts += [_estimates_table(one) for one in summaries if len(one["estimates"]) > 1]
    parts += ["\n".join(lines) for lines in [_remarks(summaries)] if lines]
    return "\n\n".join(parts)


def _accuracy_table(summaries: Sequence[Summary]) -> str:
    headers = ["data set", "estimate", "strict accuracy, 95 % interval", "answer alone", "format"]
    headers += ["truncated", "no answer", "mean tokens", "time"]
    rows = []
    for one in summaries:
        metrics = one["metrics"]
        name, headline = next(iter(one["estimates"].items()))
        rows.append(
            [
                one["dataset"],
                name,
                format_estimate(Estimate(**headline)),
                _percent(metrics["answer_accuracy"]) if _is_lenient(one) else "-",
                _percent(metrics["format_accuracy"]),
                _percent(metrics["truncation_rate"]),
                _percent(metrics.get("no_answer_rate")),
                f"{metrics['avg_response_length/total']:.1f}",
                format_duration(one["seconds"]),
            ]
        )
    return text_table(headers, rows)


def _class_table(summaries: Sequence[Summary]) -> str:
    """Counts by class, in the order of `CATEGORIES`."""
    rows = []
    for one in summaries:
        classes = one["category_breakdown"]
        cells = [
            f"{classes[name]['count']} ({classes[name]['percentage']:.1f} %)" for name in CATEGORIES
        ]
        if not _is_lenient(one):
            cells[-1] = "-"
        rows.append([one["dataset"], *cells])
    return text_table(["samples by class", *CLASS_NAMES], rows)


def _estimates_table(summary: Summary) -> str:
    rows = [
        [name, format_share(one["value"], one["low"], one["high"])]
        for name, one in summary["estimates"].items()
    ]
    return text_table([summary["dataset"], "95 % interval"], rows)


def _remarks(summaries: Sequence[Summary]) -> list[str]:
    """What a reader has to know about the numbers above."""
    lines = []
    if not all(map(_is_lenient, summaries)):
        lines.append(
            '"-": the strict reward reads no answer outside of the format; '
            "reward.mode=four_class does"
        )
    for one in summaries:
        metrics = one["metrics"]
        if metrics["num_unusable"]:
            lines.append(
                f"{one['dataset']}: {metrics['num_unusable']:.0f} problems are left out, because "
                "their gold answer is unusable"
            )
        shares = {
            words: metrics[name] for name, words in NOT_DECIDED.items() if metrics.get(name, 0.0)
        }
        if shares:
            listed = ", ".join(f"{words} {_percent(share)}" for words, share in shares.items())
            lines.append(f"{one['dataset']}: answers counted as wrong without proof: {listed}")
    return lines


def _is_lenient(summary: Summary) -> bool:
    """Whether answers outside of the format were graded: not by the strict r1_zero reward."""
    grader = summary["settings"].get("grader", {})
    return bool(grader.get("mode", "four_class") == "four_class")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
