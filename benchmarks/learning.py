"""Does every objective learn? The quickstart's model and task, a run for each method and seed.

    python benchmarks/learning.py [--methods dapo,dpo] [--seeds 0,1,2] [--device cuda] [--jobs 8]
                                  [--out runs/learning] [--record]

SmolLM2-135M-Instruct, sums of four digits, 500 held-out problems answered greedily before and
after. The methods of a seed share its start, which is trained once: `start`, where about a third of
the problems come out right, and for demonstrations `short_sums`, which gets none right, so that
`luffy` and `on_policy_noclip` begin without reward. Any run can be repeated by itself on two CPU
cores in ten minutes. Finished runs in --out are kept, a stopped run goes on where it was. The
numbers go to OUT/learning.json, and with --record to benchmarks/results/learning.json, from which
`python benchmarks/report.py` writes the tables.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from learning_runs import METHODS, Task, measured_folder, run_task

from workings.evaluation.compare import compare_folders

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "learning.json"
STARTS = ("start", "short_sums")
WITH_DEMONSTRATIONS, WITHOUT = "luffy", "on_policy_noclip"
SEEDS = (0, 1, 2)

Outcome = dict[str, Any]


# ------------------------------------------------------------------------------------- running


def run_all(tasks: Sequence[Task], *, jobs: int) -> list[str]:
    """Run the starts that the tasks need, then the tasks; one line for every run that failed."""
    starts = dict.fromkeys(
        task.of(start) for task in tasks if (start := METHODS[task.method].start) is not None
    )
    started = time.perf_counter()
    failed: list[str] = []
    for stage in (list(starts), [task for task in tasks if task not in starts]):
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
            running = {pool.submit(run_task, task): task for task in stage}
            for future in as_completed(running):
                line, is_failure = told(running[future], future)
                failed += [line] if is_failure else []
                print(f"[{time.perf_counter() - started:5.0f} s] {line}", flush=True)
    return failed


def told(task: Task, future: Future[Outcome]) -> tuple[str, bool]:
    """How a run ended, in one line, and whether it failed."""
    name = f"{task.method}, seed {task.seed}"
    error = future.exception()
    if error is not None:
        return f"{name}: failed: {type(error).__name__}: {error}", True
    outcome = future.result()
    start = METHODS[task.method].start
    before = task.of(start).outcome() if start is not None else None
    begun = "" if before is None else f"{100 * before['accuracy']:.1f} % to "
    return f"{name}: {begun}{100 * outcome['accuracy']:.1f} %, {outcome['seconds']:.0f} s", False


# ------------------------------------------------------------------------------------- results


def collect(tasks: Sequence[Task], *, command: str, commit: str | None) -> dict[str, Any]:
    """The content of the results file, from the runs that have finished."""
    done = finished([*(task.of(start) for task in tasks for start in STARTS), *tasks])
    outcomes = [outcome for tasks_ in done.values() for outcome in tasks_.values()]
    if not outcomes:
        raise SystemExit("no run has finished, so there is nothing to collect")
    environment = outcomes[0]["environment"]
    return {
        "benchmark": "learning",
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit or (environment["git"] or {}).get("commit"),
        "command": command,
        "machine": {
            "device": outcomes[0]["device"],
            **{key: environment[key] for key in ("processor", "num_usable_cpus", "memory_gb")},
        },
        "versions": {"python": environment["python"], **environment["packages"]},
        "results": [
            *gains(done),
            *over_each_other(done, WITH_DEMONSTRATIONS, WITHOUT),
            *accuracies(done),
            *first_rewards(done, WITHOUT),
            *durations(done),
        ],
    }


def finished(tasks: Sequence[Task]) -> dict[str, dict[Task, Outcome]]:
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


def gains(done: dict[str, dict[Task, Outcome]]) -> list[dict[str, Any]]:
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


def over_each_other(
    done: dict[str, dict[Task, Outcome]], method: str, other: str
) -> list[dict[str, Any]]:
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


def accuracies(done: dict[str, dict[Task, Outcome]]) -> list[dict[str, Any]]:
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


def first_rewards(done: dict[str, dict[Task, Outcome]], method: str) -> list[dict[str, Any]]:
    """The share of a method's very first samples that were right."""
    shares = {task.seed: first_metric(task, "train/rewards/answer/mean") for task in done[method]}
    if not shares:
        return []
    return [
        {
            "name": f"right samples in the first step of {method}",
            "value": 100 * statistics.mean(shares.values()),
            "unit": "%",
            "seeds": list(shares),
            "note": "by seed: " + ", ".join(f"{100 * share:.3g} %" for share in shares.values()),
        }
    ]


def first_metric(task: Task, name: str) -> float:
    """The first value that a run recorded under this name."""
    with (task.folder / "metrics.jsonl").open(encoding="utf-8") as lines:
        return float(next(row[name] for row in map(json.loads, lines) if name in row))


def durations(done: dict[str, dict[Task, Outcome]]) -> list[dict[str, Any]]:
    """How long a run took, loading the model included and measuring not."""
    rows = []
    for method, runs in done.items():
        seconds = [outcome["seconds"] for outcome in runs.values()]
        if seconds:
            rows.append(
                {
                    "name": f"time of a run, {method}",
                    "value": round(statistics.median(seconds)),
                    "unit": "s",
                    "n": len(seconds),
                    "seeds": [task.seed for task in runs],
                    "note": f"median; from {min(seconds):.0f} to {max(seconds):.0f} s",
                }
            )
    return rows


# --------------------------------------------------------------------------------- command line


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0, or 1 where a run failed."""
    given = parser().parse_args(arguments)
    unknown = [name for name in given.methods if name not in METHODS]
    if unknown:
        parser().error(f"unknown method {', '.join(unknown)}; there are {', '.join(METHODS)}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    tasks = [
        Task(
            method=method,
            seed=seed,
            out=given.out.resolve(),
            device=given.device,
            num_threads=max(1, (cores or 1) // given.jobs),
            smoke=given.smoke,
        )
        for seed in given.seeds
        for method in given.methods
    ]
    failed = run_all(tasks, jobs=given.jobs)
    content = json.dumps(collect(tasks, command=command(given), commit=given.commit), indent=2)
    for path in [given.out / "learning.json", *([RECORD] if given.record else [])]:
        path.write_text(content + "\n", encoding="utf-8")
        print(f"{path} is written")
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


def command(given: argparse.Namespace) -> str:
    """The options that change the numbers, as they would be typed."""
    words = ["python benchmarks/learning.py"]
    words += [f"--methods {','.join(given.methods)}"] if given.methods != list(METHODS) else []
    words += [f"--seeds {','.join(map(str, given.seeds))}"] if given.seeds != list(SEEDS) else []
    return " ".join([*words, f"--device {given.device}"])


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--methods", type=_names, default=list(METHODS), metavar="NAME,...")
    options.add_argument("--seeds", type=_numbers, default=list(SEEDS), metavar="N,...")
    options.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 ...")
    options.add_argument("--jobs", type=int, default=1, help="runs at a time")
    options.add_argument("--out", type=Path, default=Path("runs/learning"))
    options.add_argument("--record", action="store_true", help=f"write {RECORD.name} of results/")
    options.add_argument("--commit", help="what to record where the runs lay in no repository")
    options.add_argument("--smoke", action="store_true", help="two problems, one step, no result")
    return options


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in _names(text)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
