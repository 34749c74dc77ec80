"""The results file of benchmarks/learning.py, from the runs that have finished."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from learning_tasks import METHODS, Task, measured_folder

from workings.evaluation.compare import compare_folders
from workings.evaluation.intervals import wilson_interval

STARTS = ("start", "short_sums")
WITH_DEMONSTRATIONS, WITHOUT = "luffy", "on_policy_noclip"
OWN_RIGHT = {
    WITH_DEMONSTRATIONS: "train/off_policy/own_right",
    WITHOUT: "train/rewards/answer/mean",
}
"""The metric of a run that holds the share of its own samples that are right."""

Outcome = dict[str, Any]
Done = dict[str, dict[Task, Outcome]]


def collect(
    tasks: Sequence[Task],
    *,
    command: str,
    commit: str | None,
    benchmark: str = "learning",
    num_jobs: int = 1,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The content of the results file."""
    done = finished([*(task.of(start) for task in tasks for start in STARTS), *tasks])
    outcomes = [outcome for tasks_ in done.values() for outcome in tasks_.values()]
    if not outcomes:
        raise SystemExit("no run has finished, so there is nothing to collect")
    environment = outcomes[0]["environment"]
    return {
        "benchmark": benchmark,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit or (environment["git"] or {}).get("commit"),
        "command": command,
        "machine": {
            "device": outcomes[0]["device"],
            **{key: environment[key] for key in ("processor", "num_usable_cpus", "memory_gb")},
            "runs_at_a_time": num_jobs,
            "cpu_threads_of_each": outcomes[0]["num_threads"],
        },
        "versions": {"python": environment["python"], **environment["packages"]},
        "notes": list(notes),
        "results": [
            *gains(done),
            *over_each_other(done, WITH_DEMONSTRATIONS, WITHOUT),
            *accuracies(done),
            *right_samples_of_starts(done),
            *(row for method in (WITHOUT, WITH_DEMONSTRATIONS) for row in own_right(done, method)),
            *durations(done),
        ],
    }


def finished(tasks: Iterable[Task]) -> Done:
    """Outcomes by method, in the order of the table of methods, and by task in order of seed."""
    found = {task: task.outcome() for task in dict.fromkeys(tasks)}
    return {
        method: {
            task: outcome
            for task, outcome in sorted(found.items(), key=lambda item: item[0].seed)
            if task.method == method and outcome is not None
        }
        for method in METHODS
    }


# ------------------------------------------------------------------------------- comparisons


def gains(done: Done) -> list[dict[str, Any]]:
    """Every method against its start, paired by problem: pooled over seeds, and by seed."""
    pooled, by_seed = [], []
    for method, runs in done.items():
        start = METHODS[method].start
        if start is None or not runs:
            continue
        name = f"{method} over its start"
        pairs = [(task.of(start), task) for task in runs]
        pooled.append(difference(f"{name}, pooled by problem", pairs))
        by_seed += [difference(f"{name}, seed {pair[1].seed}", [pair]) for pair in pairs]
    return pooled + by_seed


def over_each_other(done: Done, method: str, other: str) -> list[dict[str, Any]]:
    """A method against another one from the same start, where both have run."""
    pairs = [(task.of(other), task) for task in done[method] if task.of(other) in done[other]]
    if not pairs:
        return []
    name = f"{method} over {other}"
    return [
        difference(f"{name}, pooled by problem", pairs),
        *(difference(f"{name}, seed {pair[1].seed}", [pair]) for pair in pairs),
    ]


def difference(name: str, pairs: Sequence[tuple[Task, Task]]) -> dict[str, Any]:
    """Second minus first of every pair, pooled by problem, with its 95 % interval."""
    sides = [[measured_folder(task) for task in side] for side in zip(*pairs, strict=True)]
    paired = compare_folders(sides[0], sides[1])
    return {
        "name": name,
        "value": 100 * paired.difference,
        "unit": "points",
        "low": 100 * paired.low,
        "high": 100 * paired.high,
        "n": paired.num_problems,
        "seeds": [task.seed for _, task in pairs],
    }


def accuracies(done: Done) -> list[dict[str, Any]]:
    """Accuracy of every model, with its Wilson interval."""
    return [
        {
            "name": f"accuracy, {method}, seed {task.seed}",
            "value": 100 * outcome["accuracy"],
            "unit": "%",
            "low": 100 * outcome["low"],
            "high": 100 * outcome["high"],
            "n": outcome["num_problems"],
            "seeds": [task.seed],
        }
        for method, runs in done.items()
        for task, outcome in runs.items()
    ]


# ----------------------------------------------------------------------------------- samples


def right_samples_of_starts(done: Done) -> list[dict[str, Any]]:
    """How many samples of a start are right, drawn as the runs on rollouts draw them."""
    rows = []
    for method, runs in done.items():
        counts = {task.seed: outcome.get("sampled") for task, outcome in runs.items()}
        known = {seed: count for seed, count in counts.items() if count is not None}
        if not known:
            continue
        right = sum(count["num_right"] for count in known.values())
        total = sum(count["num_samples"] for count in known.values())
        low, high = wilson_interval(right, total)
        each = ", ".join(
            f"{count['num_right']} of {count['num_samples']:,}" for count in known.values()
        )
        rows.append(
            {
                "name": f"right samples of {method}, as the runs draw them",
                "value": 100 * right / total,
                "unit": "%",
                "low": 100 * low,
                "high": 100 * high,
                "n": total,
                "seeds": list(known),
                "note": f"by seed: {each}",
            }
        )
    return rows


def own_right(done: Done, method: str) -> list[dict[str, Any]]:
    """The share of a run's own samples that are right, in its first step and in its last."""
    shares = {task.seed: recorded(task, OWN_RIGHT[method]) for task in done[method]}
    if not shares:
        return []
    steps = "; ".join(
        f"seed {seed}: " + ", ".join(f"{100 * share:.0f}" for share in values)
        for seed, values in shares.items()
    )
    name = f"right own samples of {method}"
    return [
        {
            "name": f"{name}, {which} step",
            "value": 100 * statistics.mean(values[place] for values in shares.values()),
            "unit": "%",
            "seeds": list(shares),
            **({"note": f"% in each step; {steps}"} if place == 0 else {}),
        }
        for which, place in (("first", 0), ("last", -1))
    ]


def recorded(task: Task, name: str) -> list[float]:
    """The values that a run recorded under this name, in order."""
    with (task.folder / "metrics.jsonl").open(encoding="utf-8") as lines:
        return [float(row[name]) for row in map(json.loads, lines) if name in row]


# --------------------------------------------------------------------------------- durations


def durations(done: Done) -> list[dict[str, Any]]:
    """How long a run took, loading the model included and measuring not; starts have own rows.

    On a CPU also how long it kept the processor busy, which hardly depends on what else runs there.
    """
    rows = []
    for method, runs in done.items():
        whole = {task: outcome for task, outcome in runs.items() if outcome["seconds"]}
        seeds = [task.seed for task in whole]
        kinds = {"time of a run": [outcome["seconds"] for outcome in whole.values()]}
        if any(outcome["device"] == "cpu" for outcome in whole.values()):
            kinds["processor time of a run"] = [
                outcome["processor_seconds"] for outcome in whole.values()
            ]
        rows += [
            duration(f"{kind}, {method}", seconds, seeds)
            for kind, seconds in kinds.items()
            if seeds
        ]
    return rows


def duration(name: str, seconds: Sequence[float], seeds: Sequence[int]) -> dict[str, Any]:
    """One row: the median, and the range where there are several."""
    row = {
        "name": name,
        "value": round(statistics.median(seconds)),
        "unit": "s",
        "n": len(seconds),
        "seeds": list(seeds),
    }
    if len(seconds) > 1:
        row["note"] = f"median; from {min(seconds):.0f} to {max(seconds):.0f} s"
    return row
