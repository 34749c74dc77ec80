"""`metrics_summary.csv`: every evaluation of a folder tree in one table, and a pivot of it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workings.errors import DataError
from workings.evaluation.reports import REWARD_NAMES, SUMMARY_FILE, read_summary

SUMMARY_CSV, PIVOT_CSV = "metrics_summary.csv", "metrics_summary_by_model.csv"
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
    *REWARD_NAMES,
    "truncation_rate",
    "avg_response_length",
)


def write_metrics_summary(tree: Path) -> tuple[Path, Path]:
    """The two tables written into `tree`: one row per summary, and accuracy by model and data set.

    Files without the added fields (earlier programs wrote them) leave those cells empty.
    """
    rows = summary_rows(tree)
    _write(tree / SUMMARY_CSV, COLUMNS, rows)
    headers, pivoted = pivot(rows)
    _write(tree / PIVOT_CSV, headers, pivoted)
    return tree / SUMMARY_CSV, tree / PIVOT_CSV


def summary_rows(tree: Path) -> list[dict[str, Any]]:
    """One row per summary.json below `tree`, sorted by folder."""
    files = sorted(tree.rglob(SUMMARY_FILE))
    if not files:
        raise DataError(f"no {SUMMARY_FILE} anywhere below {tree}", hint="workings eval writes it")
    return [_row(file, tree) for file in files]


def pivot(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """The column names and rows of accuracy by (model, setting) and data set, with intervals.

    Raises DataError where two evaluations would share a cell, because one would hide the other.
    """
    data_sets = sorted({row["dataset"] for row in rows})
    columns = [f"{name}{part}" for name in data_sets for part in ("", "_low", "_high")]
    table: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        line = table.setdefault(
            (row["model"], row["setting"]), {"model": row["model"], "setting": row["setting"]}
        )
        if row["dataset"] in line:
            raise DataError(
                f"two evaluations of {row['model']!r} on {row['dataset']!r} with the setting "
                f"{row['setting']!r}; {row['folder']!r} is the second",
                hint="summarise the folders one by one",
            )
        line |= {
            row["dataset"]: row["accuracy"],
            f"{row['dataset']}_low": row["low"],
            f"{row['dataset']}_high": row["high"],
        }
    return ["model", "setting", *columns], [table[key] for key in sorted(table)]


def _row(file: Path, tree: Path) -> dict[str, Any]:
    summary = read_summary(file)
    settings, metrics = summary.get("settings", {}), summary.get("metrics", {})
    estimates: dict[str, dict[str, Any]] = summary.get("estimates", {})
    name = next(iter(estimates), "")
    headline = estimates.get(name, {})
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
        **{reward: aggregate.get(reward, "") for reward in REWARD_NAMES},
        "truncation_rate": metrics.get("truncation_rate", ""),
        "avg_response_length": metrics.get("avg_response_length/total", ""),
    }


def _setting(settings: Mapping[str, Any]) -> str:
    """Template, sampling and seed in one cell, as far as they are known."""
    sampling = settings.get("sampling", {})
    parts = [("template", settings.get("template"))]
    parts += [(name, sampling.get(name)) for name in ("temperature", "top_p", "max_tokens")]
    parts += [("step", settings.get("step")), ("seed", settings.get("seed"))]
    return " ".join(f"{name}={value}" for name, value in parts if value is not None)


def _write(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
