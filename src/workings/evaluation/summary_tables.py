"""`metrics_summary.csv`: every evaluation of a folder tree in one table, and pivots of it.

Strict accuracy (format and answer) and lenient accuracy (the answer alone) have columns of their
own, and so have the shares of samples that are no accuracy.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workings.errors import DataError
from workings.evaluation.headlines import headline_averages
from workings.evaluation.metrics import Estimate
from workings.evaluation.reports import REWARD_NAMES, SUMMARY_FILE, read_summary

SUMMARY_CSV = "metrics_summary.csv"
PIVOT_CSV = "metrics_summary_by_model.csv"
SETTING_PIVOT_CSV = "metrics_summary_by_setting.csv"
SHARES = ("format_accuracy", "truncation_rate", "no_answer_rate", "timeout_rate")
COLUMNS = (
    "folder",
    "dataset",
    "model",
    "setting",
    "total_examples",
    "num_problems",
    "num_samples",
    "estimate",
    "accuracy",
    "low",
    "high",
    "lenient_accuracy",
    "lenient_low",
    "lenient_high",
    *REWARD_NAMES,
    *SHARES,
    "avg_response_length",
)


def write_metrics_summary(tree: Path) -> tuple[Path, Path]:
    """The table written into `tree`, one row per summary, and its pivot by model.

    The pivots give the strict accuracy with its interval: by model, a line is a model with a
    setting and has a column for each data set and for the headline averages; by setting, in
    `metrics_summary_by_setting.csv` beside it, a line is a data set with a setting and has a column
    for each model. Files without the added fields (earlier programs wrote them) leave those cells
    empty.
    """
    rows = summary_rows(tree)
    _write(tree / SUMMARY_CSV, COLUMNS, rows)
    headers, pivoted = pivot(rows)
    _write(tree / PIVOT_CSV, headers, pivoted)
    headers, pivoted = pivot_by_setting(rows)
    _write(tree / SETTING_PIVOT_CSV, headers, pivoted)
    return tree / SUMMARY_CSV, tree / PIVOT_CSV


def summary_rows(tree: Path) -> list[dict[str, Any]]:
    """One row per summary.json below `tree`, sorted by folder."""
    files = sorted(tree.rglob(SUMMARY_FILE))
    if not files:
        raise DataError(f"no {SUMMARY_FILE} anywhere below {tree}", hint="workings eval writes it")
    return [_row(file, tree) for file in files]


def pivot(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """The column names and rows of accuracy by (model, setting) and data set, with intervals.

    Behind the data sets stand the averages of `headline_averages`, in the lines that have all that
    goes into them. Raises DataError where two evaluations would share a cell, because one would
    hide the other.
    """
    headers, lines = _spread(rows, lines=("model", "setting"), columns="dataset")
    titles: dict[str, None] = {}
    for line in lines:
        estimates = {
            row["dataset"]: _estimate(row)
            for row in rows
            if (row["model"], row["setting"]) == (line["model"], line["setting"])
            and row["low"] != ""
        }
        for title, average in headline_averages(estimates).items():
            # A mean over other data sets in every line would put unlike numbers below each other.
            if title == "avg" and len(average.data_sets) < len({row["dataset"] for row in rows}):
                continue
            titles[title] = None
            line |= _cells(title, average.value, average.low, average.high)
    return [*headers, *(name for title in titles for name in _cells(title, 0, 0, 0))], lines


def pivot_by_setting(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[list[str], list[dict[str, Any]]]:
    """The column names and rows of accuracy by (data set, setting) and model, with intervals."""
    return _spread(rows, lines=("dataset", "setting"), columns="model")


def _spread(
    rows: Sequence[Mapping[str, Any]], *, lines: tuple[str, str], columns: str
) -> tuple[list[str], list[dict[str, Any]]]:
    """One line for each pair of values of `lines`, one column for each value of `columns`."""
    names = sorted({row[columns] for row in rows})
    table: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in lines)
        line = table.setdefault(key, dict(zip(lines, key, strict=True)))
        if row[columns] in line:
            raise DataError(
                f"two evaluations of {row['model']!r} on {row['dataset']!r} with the setting "
                f"{row['setting']!r}; {row['folder']!r} is the second",
                hint="summarise the folders one by one",
            )
        line |= _cells(row[columns], row["accuracy"], row["low"], row["high"])
    headers = [name for column in names for name in _cells(column, 0, 0, 0)]
    return [*lines, *headers], [table[key] for key in sorted(table)]


def _cells(name: str, value: Any, low: Any, high: Any) -> dict[str, Any]:
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _estimate(row: Mapping[str, Any]) -> Estimate:
    return Estimate(
        value=row["accuracy"],
        low=row["low"],
        high=row["high"],
        num_problems=row["num_problems"],
        num_samples=row["num_samples"],
        interval="effective",
    )


def _row(file: Path, tree: Path) -> dict[str, Any]:
    summary = read_summary(file)
    settings, metrics = summary.get("settings", {}), summary.get("metrics", {})
    estimates: dict[str, dict[str, Any]] = summary.get("estimates", {})
    name = next(iter(estimates), "")
    headline = estimates.get(name, {})
    lenient = (summary.get("lenient_estimates") or {}).get(name, {})
    folder = file.parent.relative_to(tree)
    aggregate = summary["aggregate_metrics"]
    return {
        "folder": folder.as_posix(),
        "dataset": summary.get("dataset", file.parent.name),
        "model": settings.get("model", folder.parts[0] if len(folder.parts) > 1 else ""),
        "setting": _setting(settings) or "/".join(folder.parts[1:-1]),
        "total_examples": summary["total_examples"],
        "num_problems": headline.get("num_problems", ""),
        "num_samples": headline.get("num_samples", ""),
        "estimate": name,
        "accuracy": headline.get("value", aggregate.get("reward", "")),
        "low": headline.get("low", ""),
        "high": headline.get("high", ""),
        "lenient_accuracy": lenient.get("value", ""),
        "lenient_low": lenient.get("low", ""),
        "lenient_high": lenient.get("high", ""),
        **{reward: aggregate.get(reward, "") for reward in REWARD_NAMES},
        **{share: metrics.get(share, "") for share in SHARES},
        "avg_response_length": metrics.get("avg_response_length/total", ""),
    }


def _setting(settings: Mapping[str, Any]) -> str:
    """Template, sampling and seed in one cell, as far as they are known.

    Cuts of the distribution that are off are left out, as in files that do not mention them.
    """
    sampling = settings.get("sampling", {})
    parts = [("template", settings.get("template"))]
    parts += [(name, sampling.get(name)) for name in ("temperature", "top_p")]
    parts += [(name, sampling.get(name)) for name in ("top_k", "min_p") if _cuts(sampling, name)]
    parts += [("max_tokens", sampling.get("max_tokens")), ("num_samples", _num_samples(settings))]
    parts += [("step", settings.get("step")), ("seed", settings.get("seed"))]
    return " ".join(f"{name}={value}" for name, value in parts if value is not None)


def _cuts(sampling: Mapping[str, Any], name: str) -> bool:
    """True where `top_k` or `min_p` leaves tokens out."""
    value = sampling.get(name)
    return value is not None and value > 0


def _num_samples(settings: Mapping[str, Any]) -> int | None:
    """Samples of each problem as the evaluation asked for them.

    None where it left them to its data sets' own rules: those of one evaluation may take different
    numbers, and still belong into one line.
    """
    if "num_samples_asked" in settings:
        asked: int | None = settings["num_samples_asked"]
        return asked
    taken: int | None = settings.get("num_samples")
    # Earlier files do not say who asked. Those without "data" are of a training run, which did.
    counted = (settings.get("data") or {}).get("counted")
    by_rule = "data" in settings and (taken == 1 or counted == f"avg@{taken}")
    return None if by_rule else taken


def _write(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
