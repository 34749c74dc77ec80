"""What a memory profile leaves: a table of all trials, a row per largest batch, the figures."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workings.cli.profile.memory_search import Found
from workings.evaluation.tables import text_table

TRIALS = "trials.csv"
TRIAL_COLUMNS = (
    "settings",
    "sequence_length",
    "batch_size",
    "tokens",
    "fits",
    "peak_memory_gib",
    "step_seconds",
)


def write_trials(path: Path, founds: Sequence[Found]) -> None:
    """Every trial as a line of CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(TRIAL_COLUMNS)
        for found in founds:
            for trial in found.trials:
                writer.writerow(
                    [
                        found.variant.label,
                        trial.length,
                        trial.num_rows,
                        trial.num_tokens,
                        str(trial.fits).lower(),
                        f"{trial.peak_bytes / 2**30:.3f}" if trial.peak_bytes else "",
                        f"{trial.step_seconds:.4f}" if trial.step_seconds else "",
                    ]
                )


def append_largest(path: Path, founds: Sequence[Found], lengths: Sequence[int]) -> None:
    """One JSON line for every variant and length, added to those of earlier profiles."""
    rows = [largest_row(found, length) for found in founds for length in lengths]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)


def largest_row(found: Found, length: int) -> dict[str, Any]:
    """The row of a variant and a length; `max_batch_size` is 0 where not one row fits."""
    run, best = found.variant.run, found.largest(length)
    peak = 0 if best is None else best.peak_bytes
    return {
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        "model_name": run.model.name_or_path,
        "model_short_name": Path(run.model.name_or_path).name,
        "sequence_length": length,
        "dtype": run.model.dtype,
        "num_parameters": found.report.get("num_parameters"),
        "device": found.report.get("device"),
        "optimizer": run.optimizer.name + (" offloaded" if run.optimizer.offload else ""),
        "activation_checkpointing": run.batch.activation_checkpointing,
        "attention": run.model.attention,
        "settings": dict(found.variant.settings),
        "max_batch_size": 0 if best is None else best.num_rows,
        "max_tokens": 0 if best is None else best.num_tokens,
        "peak_memory_mb": round(peak / 2**20, 1),
        "peak_memory_gb": round(peak / 2**30, 3),
        "step_seconds": None if best is None else round(best.step_seconds, 4),
    }


def largest_table(founds: Sequence[Found], lengths: Sequence[int]) -> str:
    """The largest microbatch of every variant and length, as text."""
    rows = []
    for found in founds:
        for length in lengths:
            best = found.largest(length)
            row = [found.variant.label, str(length)]
            if best is None:
                row += ["0", "0", "-", "-"]
            else:
                row += [
                    str(best.num_rows),
                    f"{best.num_tokens:,}",
                    f"{best.peak_bytes / 2**30:.2f} GiB",
                    f"{best.step_seconds:.2f} s" if best.step_seconds else "-",
                ]
            rows.append(row)
    headers = ["settings", "length", "rows", "tokens", "peak", "a step"]
    return text_table(headers, rows)


def short_label(found: Found) -> str:
    """What tells a variant from the others, in few words for a figure."""
    words = {
        ("optimizer.offload", True): "offload",
        ("batch.activation_checkpointing", "full"): "recompute",
        ("model.attention", "eager"): "eager",
    }
    settings = found.variant.settings
    named = [words[pair] for pair in settings.items() if pair in words]
    if not settings:
        return found.variant.label
    return " + ".join(named) if named else "plain"
