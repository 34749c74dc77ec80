"""What `workings eval` prints at its end, from the summaries of its data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workings.evaluation.headlines import Average, headline_averages
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
BREAKDOWNS = {"subject_breakdown": "by subject", "level_breakdown": "by level"}
MOST_NAMES = 20
"""Subjects or levels that are printed of one data set; summary.json has all."""


def evaluation_report(summaries: Sequence[Summary]) -> str:
    """The tables: accuracies with intervals, shares of samples, classes, estimates, breakdowns.

    The strict accuracy (format and answer) and the lenient one (the answer alone) have a column
    each; the second is known only where the reward grades answers outside of the format. What was
    truncated, unanswered or not decided stands apart from both. Summaries of earlier versions,
    which `--resume` keeps, have a dash where they say nothing.
    """
    parts = [_accuracy_table(summaries), _share_table(summaries), _class_table(summaries)]
    parts += [_estimates_table(one) for one in summaries if len(one["estimates"]) > 1]
    parts += [
        _breakdown_table(one, field)
        for one in summaries
        for field in BREAKDOWNS
        if len(one[field]) > 1 and all("low" in cell for cell in one[field].values())
    ]
    parts += ["\n".join(lines) for lines in [_remarks(summaries)] if lines]
    return "\n\n".join(parts)


def _accuracy_table(summaries: Sequence[Summary]) -> str:
    headers = ["data set", "estimate", "strict accuracy, 95 % interval"]
    headers += ["answer alone, 95 % interval", "time"]
    rows = []
    for one in summaries:
        name, strict = next(iter(one["estimates"].items()))
        lenient = one.get("lenient_estimates")
        rows.append(
            [
                one["dataset"],
                name,
                format_estimate(Estimate(**strict)),
                "-" if lenient is None else format_estimate(Estimate(**lenient[name])),
                format_duration(one["seconds"]),
            ]
        )
    strict_means = headline_averages(_headlines(summaries, "estimates"))
    lenient_means = headline_averages(_headlines(summaries, "lenient_estimates"))
    for title, average in strict_means.items():
        of_answers = lenient_means.get(title)
        same_sets = of_answers is not None and of_answers.data_sets == average.data_sets
        rows.append(
            [
                f"{title} of {len(average.data_sets)}",
                "mean",
                _average(average),
                _average(of_answers) if same_sets and of_answers is not None else "-",
                "",
            ]
        )
    return text_table(headers, rows)


def _headlines(summaries: Sequence[Summary], field: str) -> dict[str, Estimate]:
    """The first estimate of every data set that has any."""
    return {
        one["dataset"]: Estimate(**next(iter(one[field].values())))
        for one in summaries
        if one.get(field)
    }


def _share_table(summaries: Sequence[Summary]) -> str:
    """Shares of samples beside the accuracy, and how samples ended."""
    headers = ["shares of samples", "format", "truncated", "no answer", "timed out", "ended by EOS"]
    headers += ["by stop string", "mean tokens"]
    rows = []
    for one in summaries:
        metrics, reasons = one["metrics"], one.get("finish_reasons", {})
        rows.append(
            [
                one["dataset"],
                _percent(metrics["format_accuracy"]),
                _percent(metrics["truncation_rate"]),
                _percent(metrics.get("no_answer_rate")),
                _percent(metrics.get("timeout_rate")),
                *(_percent(_ended(reasons, name)) for name in ("eos", "stop")),
                f"{metrics['avg_response_length/total']:.1f}",
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
        if one.get("lenient_estimates") is None:
            cells[-1] = "-"
        rows.append([one["dataset"], *cells])
    return text_table(["samples by class", *CLASS_NAMES], rows)


def _estimates_table(summary: Summary) -> str:
    """avg@n, pass@k and maj@n, strict and lenient side by side."""
    lenient = summary.get("lenient_estimates")
    rows = [
        [name, _share(one), "-" if lenient is None else _share(lenient[name])]
        for name, one in summary["estimates"].items()
    ]
    return text_table([summary["dataset"], "strict, 95 % interval", "answer alone"], rows)


def _breakdown_table(summary: Summary, field: str) -> str:
    """Strict accuracy by subject or level; `correct` and `total` are samples."""
    names = summary[field]
    rows = [
        [
            name,
            str(one["num_problems"]),
            f"{one['correct']}/{one['total']}",
            format_share(one["accuracy"], one["low"], one["high"]),
        ]
        for name, one in list(names.items())[:MOST_NAMES]
    ]
    if len(names) > MOST_NAMES:
        rows.append([f"{len(names) - MOST_NAMES} more: summary.json", "", "", ""])
    average = summary.get("subject_average") if field == "subject_breakdown" else None
    if average is not None:
        rows.append([f"unweighted mean of {len(names)}", "", "", _share(average)])
    headers = [f"{summary['dataset']} {BREAKDOWNS[field]}", "problems", "right", "95 % interval"]
    return text_table(headers, rows)


def _remarks(summaries: Sequence[Summary]) -> list[str]:
    """What a reader has to know about the numbers above."""
    lines = []
    if any(one.get("lenient_estimates") is None for one in summaries):
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


def _share(one: Mapping[str, Any]) -> str:
    return format_share(one["value"], one["low"], one["high"])


def _ended(reasons: Mapping[str, Any], name: str) -> float | None:
    return reasons[name]["percentage"] / 100 if name in reasons else None


def _average(average: Average) -> str:
    return format_share(average.value, average.low, average.high)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
