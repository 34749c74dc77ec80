"""One line of text for a row of metrics, as the console and the log file show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

KEY_METRICS = (
    "train/reward",
    "train/loss",
    "train/policy_loss",
    "train/completion_length/mean",
    "train/truncated_fraction",
    "train/frac_reward_zero_std",
    "train/mean_token_accuracy",
    "train/rewards/accuracies",
    "train/grad_norm",
    "train/kl",
    "train/learning_rate",
    "train/tokens_per_sec",
)
"""What a line about a training step shows, in this order, where the row has it."""

EVALUATION_METRICS = (
    "accuracy",
    "answer_accuracy",
    "format_accuracy",
    "format_reward",
    "reward",
    "loss",
    "avg_response_length/total",
    "truncation_rate",
)
"""What a line about an evaluation shows of each data set, in this order."""


def format_number(value: float) -> str:
    """Four significant digits, whole numbers as they are, thousands separated.

    >>> format_number(0.123456), format_number(1e-5), format_number(3.0), format_number(12345.6)
    ('0.1235', '1e-05', '3', '12,346')
    """
    if abs(value) >= 1000 and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def select_metrics(metrics: Mapping[str, float], names: Iterable[str]) -> str:
    """The named metrics that are there, as "name value", two spaces between.

    >>> select_metrics({"train/loss": 0.5, "train/kl": 0.01}, ["train/kl", "train/reward"])
    'kl 0.01'
    """
    shown = ((name.partition("/")[2], name) for name in names if name in metrics)
    return "  ".join(f"{label} {format_number(metrics[name])}" for label, name in shown)


def evaluation_lines(metrics: Mapping[str, float]) -> list[str]:
    """One line per evaluated data set; accuracies carry their interval where the row has it.

    A row with none of the names in `EVALUATION_METRICS` is shown whole, on one line.

    >>> evaluation_lines({
    ...     "eval/sums/accuracy": 0.8, "eval/sums/accuracy_low": 0.76,
    ...     "eval/sums/accuracy_high": 0.83, "eval/sums/reward": 0.8})
    ['sums: accuracy 80.0 % [76.0, 83.0]  reward 0.8']
    """
    by_set: dict[str, dict[str, float]] = {}
    for name, value in metrics.items():
        rest = name.partition("/")[2]
        for suffix in EVALUATION_METRICS:
            if rest == suffix or rest.endswith("/" + suffix):
                data_set = rest[: -len(suffix)].rstrip("/")
                by_set.setdefault(data_set, {})[suffix] = value
                break
    lines = []
    for data_set, found in by_set.items():
        stem = f"eval/{data_set}/" if data_set else "eval/"
        parts = [
            _evaluation_part(name, found[name], metrics, stem)
            for name in EVALUATION_METRICS
            if name in found
        ]
        lines.append((f"{data_set}: " if data_set else "") + "  ".join(parts))
    return lines or [select_metrics(metrics, metrics)]


def _evaluation_part(name: str, value: float, metrics: Mapping[str, float], stem: str) -> str:
    if not name.endswith("accuracy"):
        return f"{name.removesuffix('/total')} {format_number(value)}"
    low, high = metrics.get(f"{stem}{name}_low"), metrics.get(f"{stem}{name}_high")
    interval = "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{name} {100 * value:.1f} %{interval}"
