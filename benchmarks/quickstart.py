"""Collect finished quickstarts, one per seed, into benchmarks/results/quickstart.json.

    python benchmarks/quickstart.py [--wall-clock SECONDS,SECONDS,...] FOLDER [FOLDER ...]

A folder is what `make quickstart ARGS=seed=N` leaves in runs/quickstart; all folders must have
answered the same held-out problems. `--wall-clock` gives, once per folder, the seconds that the
whole command took on a clean clone, installation included.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workings.cli.stages import BASE, CONTROL, GRPO, SFT
from workings.evaluation.compare import compare_folders
from workings.evaluation.metrics import PairedDifference

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "quickstart.json"
PICTURE = ROOT / "docs" / "images" / "quickstart.png"
STAGES = (BASE, SFT, GRPO, CONTROL)


def collect(folders: list[Path], wall_clock: list[float]) -> dict[str, Any]:
    """The content of the results file."""
    runs = [json.loads((folder / "quickstart.json").read_text()) for folder in folders]
    environment = runs[0]["environment"]
    return {
        "benchmark": "quickstart",
        "date": datetime.now(UTC).date().isoformat(),
        "commit": (environment["git"] or {}).get("commit"),
        "command": "make quickstart ARGS=seed=N",
        "machine": {
            key: environment[key]
            for key in ("processor", "num_usable_cpus", "memory_gb", "platform")
        },
        "versions": {"python": environment["python"], **environment["packages"]},
        "results": [
            *(row for run in runs for row in accuracies(run)),
            *differences(folders, runs),
            *durations(runs, wall_clock),
        ],
    }


def accuracies(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Accuracy of every stage of one seed, with its Wilson interval."""
    return [
        {
            "name": f"accuracy, {stage['name']}, seed {run['seed']}",
            "value": 100 * stage["accuracy"]["value"],
            "unit": "%",
            "low": 100 * stage["accuracy"]["low"],
            "high": 100 * stage["accuracy"]["high"],
            "n": stage["accuracy"]["num_problems"],
            "seeds": [run["seed"]],
        }
        for stage in run["stages"]
    ]


def differences(folders: list[Path], runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """GRPO against the checkpoint it started from, and against more SFT: per seed and pooled."""
    rows = []
    for other in (SFT, CONTROL):
        sides = [
            [next((folder / "test" / name.replace(" ", "_")).iterdir()) for folder in folders]
            for name in (other, GRPO)
        ]
        for run, first, second in zip(runs, *sides, strict=True):
            one = compare_folders([first], [second])
            rows.append(_gain(f"GRPO over {other}, seed {run['seed']}", one, [run["seed"]]))
        pooled = compare_folders(*sides)
        seeds = [run["seed"] for run in runs]
        rows.append(_gain(f"GRPO over {other}, pooled by problem", pooled, seeds))
    return rows


def _gain(name: str, difference: PairedDifference, seeds: list[int]) -> dict[str, Any]:
    return {
        "name": name,
        "value": 100 * difference.difference,
        "unit": "points",
        "low": 100 * difference.low,
        "high": 100 * difference.high,
        "n": difference.num_problems,
        "seeds": seeds,
    }


def durations(runs: list[dict[str, Any]], wall_clock: list[float]) -> list[dict[str, Any]]:
    """Training time of each phase, and the whole command from a clean clone."""
    seeds = [run["seed"] for run in runs]
    rows = []
    for name in STAGES[1:]:
        seconds = [s["seconds"] for run in runs for s in run["stages"] if s["name"] == name]
        rows.append(_duration(f"training time, {name}", seconds, seeds))
    if wall_clock:
        rows.append(_duration("clean clone to table, installation included", wall_clock, seeds))
    return rows


def _duration(name: str, seconds: list[float], seeds: list[int]) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(statistics.median(seconds)),
        "unit": "s",
        "n": len(seconds),
        "seeds": seeds,
        "note": f"median; from {min(seconds):.0f} to {max(seconds):.0f} s",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--wall-clock", default="", metavar="SECONDS,SECONDS,...")
    arguments = parser.parse_args()
    wall_clock = [float(seconds) for seconds in arguments.wall_clock.split(",") if seconds]
    if wall_clock and len(wall_clock) != len(arguments.folders):
        parser.error(f"{len(wall_clock)} times for {len(arguments.folders)} folders")
    content = collect(arguments.folders, wall_clock)
    RESULTS.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(arguments.folders[0] / "plots" / "quickstart.png", PICTURE)
    print(f"{RESULTS} and {PICTURE} are written; now run python benchmarks/report.py")


if __name__ == "__main__":
    main()
