"""What a bomb costs: kills, waits, concurrent grades, Ctrl-C, and the adversarial cases.

    python benchmarks/grading_pool.py [--out runs/grading_pool] [--record]

A bomb is an answer that math-verify never finishes, asked without the tiers that would refuse it.
The numbers go to OUT/grading_pool.json and, with --record, to benchmarks/results/grading_pool.json,
from which `python benchmarks/report.py` writes the tables. It takes about five minutes; --quick
repeats everything a few times only. Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
from grading_pairs import ADVERSARIAL, VISIBLE_CASES, Pair, read_cases

from workings.grading.grader import Grader
from workings.grading.policy import GradingPolicy
from workings.grading.workers.launcher import Worker
from workings.grading.workers.pool import WorkerPool
from workings.tracking.environment import environment_report, package_versions

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "grading_pool.json"
PACKAGES = ("workings", "math-verify", "latex2sympy2_extended", "sympy", "mpmath")
BOMB, GOLD = "9^{9^{9^{9}}}", "5"
UNGUARDED = GradingPolicy(tiers=("string", "peer"))
NUM_WORKERS = 2
KILL_DEADLINE = 0.4
NUM_THREADS, NUM_GRADES = 32, 1000

INTERRUPTED = f"""
from workings import Grader, GradingPolicy
grader = Grader(GradingPolicy(tiers=("string", "peer")), num_workers={NUM_WORKERS})
grader.compare("x+1", "1+x")
print("running", flush=True)
grader.compare_batch([r"{BOMB}+" + str(n) for n in range(50)], ["{GOLD}"] * 50)
"""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Seconds from the kill of a worker until all workers answer, and one more is in reserve."""

    answering: float
    in_reserve: float


# ------------------------------------------------------------------------------------ measurements


def recoveries(num_kills: int) -> list[Recovery]:
    """After each of so many kills of a worker in the middle of a bomb."""
    pool = WorkerPool(num_workers=NUM_WORKERS, deadline_seconds=KILL_DEADLINE)
    killed_at: list[float] = []
    discard = pool.discard

    def timed(worker: Worker) -> None:
        killed_at.append(time.perf_counter())
        discard(worker)

    pool.discard = timed  # type: ignore[method-assign]
    quick = [_task("x", "x")] * NUM_WORKERS
    found = []
    try:
        pool.run(quick)
        for _ in range(num_kills):
            _wait_for_reserve(pool)
            (reply,) = pool.run([_task(BOMB, GOLD)])
            assert reply.answer is None
            replies = pool.run(quick)
            answering = time.perf_counter() - killed_at[-1]
            assert all(reply.answer is not None for reply in replies)
            _wait_for_reserve(pool)
            in_reserve = time.perf_counter() - killed_at[-1]
            found.append(Recovery(answering=answering, in_reserve=in_reserve))
    finally:
        pool.close()
    return found


def waits(num_bombs: int) -> list[float]:
    """Seconds that a caller waits for the verdict on a bomb, with the default deadline."""
    found = []
    with Grader(UNGUARDED, num_workers=NUM_WORKERS) as grader:
        grader.compare("x+1", "1+x")
        for _ in range(num_bombs):
            start = time.perf_counter()
            grade = grader.compare(BOMB, GOLD)
            found.append(time.perf_counter() - start)
            assert grade.verdict == "timeout"
    return found


def from_threads() -> tuple[int, float, float]:
    """(verdicts that differ, seconds one after the other, seconds from many threads)."""
    pairs = [
        pair
        for n in range(NUM_GRADES // 4)
        for pair in (
            (rf"\boxed{{x+{n}}}", f"{n + (n % 3 == 0)}+x"),
            (rf"\boxed{{\sqrt{{{4 * n}}}}}", rf"2\sqrt{{{n}}}"),
            (rf"\boxed{{{n}/2}}", f"{n / 2}"),
            (rf"\boxed{{(x-{n})^2}}", f"x^2-{2 * n}x+{n * n}"),
        )
    ]
    with Grader(num_workers=NUM_WORKERS, cache_size=0) as grader:
        grader.compare("x+1", "1+x")
        start = time.perf_counter()
        serial = [grader.grade(*pair).verdict for pair in pairs]
        middle = time.perf_counter()
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            concurrent = list(threads.map(lambda pair: grader.grade(*pair).verdict, pairs))
        end = time.perf_counter()
    num_different = sum(one is not other for one, other in zip(serial, concurrent, strict=True))
    return num_different, middle - start, end - middle


def interruptions(num_times: int) -> tuple[list[float], int]:
    """(seconds from Ctrl-C during a batch of bombs to the end of the process, processes left)."""
    seconds, num_left = [], 0
    for _ in range(num_times):
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        time.sleep(0.3)
        children = psutil.Process(process.pid).children(recursive=True)
        start = time.perf_counter()
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
        seconds.append(time.perf_counter() - start)
        process.stdout.close()
        num_left += sum(map(_is_running, children))
    return seconds, num_left


def adversarial(cases: Sequence[Pair]) -> tuple[list[float], int, int]:
    """(seconds of each case, most bytes of a worker, processes left) with the default policy."""
    before = set(psutil.Process().children(recursive=True))
    with Grader(num_workers=NUM_WORKERS) as grader:
        grader.compare("x+1", "1+x")
        seconds, most_bytes = [], 0
        for case in cases:
            start = time.perf_counter()
            grader.grade(case.response, case.gold)
            seconds.append(time.perf_counter() - start)
            children = set(psutil.Process().children(recursive=True)) - before
            most_bytes = max(most_bytes, *(_most_bytes(child.pid) for child in children))
    return seconds, most_bytes, sum(map(_is_running, children))


def task_seconds(num_tasks: int) -> float:
    """Seconds for one of many tasks that a worker decides by their text alone."""
    pool = WorkerPool(num_workers=1, deadline_seconds=5.0)
    try:
        tasks = [_task("x", "x")] * num_tasks
        pool.run(tasks[:10])
        start = time.perf_counter()
        pool.run(tasks)
        return (time.perf_counter() - start) / num_tasks
    finally:
        pool.close()


def worker_bytes() -> tuple[int, int]:
    """Bytes of memory that one more worker costs, and that the fork server has."""
    pool = WorkerPool(num_workers=NUM_WORKERS, deadline_seconds=5.0)
    try:
        pool.run([_task("x+1", "1+x")] * 100)
        workers = [psutil.Process(pid) for pid in pool.idle_pids()]
        server = workers[0].parent()
        assert server is not None
        private = [worker.memory_full_info().uss for worker in workers]
        return max(private), server.memory_info().rss
    finally:
        pool.close()


@contextmanager
def all_cores_busy() -> Iterator[None]:
    """A process that never rests for each core but one, so that with this one all are busy."""
    count = max(len(os.sched_getaffinity(0)) - 1, 1)
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def _task(answer: str, gold: str) -> dict[str, object]:
    return {"answer": answer, "gold": gold, "policy": asdict(UNGUARDED)}


def _wait_for_reserve(pool: WorkerPool) -> None:
    while not pool.reserve_pids():
        time.sleep(0.0002)


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _most_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().split("\n")
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


# ----------------------------------------------------------------------------------------- results


def measure(*, quick: bool) -> list[Row]:
    """Every row of the results file."""
    num_kills, num_bombs, num_times = (5, 2, 2) if quick else (100, 20, 10)
    rows: list[Row] = []
    for where, surroundings in (("", None), (", all cores busy", all_cores_busy)):
        found, waited = _within(surroundings, lambda: (recoveries(num_kills), waits(num_bombs)))
        rows += [
            _times(
                f"time from a kill until every worker answers{where}",
                [1e3 * one.answering for one in found],
                unit="ms",
            ),
            _times(
                f"time from a kill until one more is in reserve{where}",
                [1e3 * one.in_reserve for one in found],
                unit="ms",
            ),
            _times(f"wait of a caller for a bomb, deadline 2 s{where}", waited, unit="s"),
        ]
        say(f"kills and waits{where}")
    cases = [case for case in _visible_cases() if case.kind == ADVERSARIAL]
    if cases:
        seconds, most_bytes, num_left = adversarial(cases)
        rows += [
            _times("time of an adversarial case", seconds, unit="s"),
            {
                "name": "most memory of a worker on the adversarial cases",
                "value": most_bytes / 2**20,
                "unit": "MiB",
                "note": f"limit 2,048 MiB of address space; processes left at the end: {num_left}",
            },
        ]
        say("adversarial cases")
    num_different, serial, concurrent = from_threads()
    rows.append(
        {
            "name": f"verdicts from {NUM_THREADS} threads that differ from serial ones",
            "value": num_different,
            "n": NUM_GRADES,
            "note": f"{NUM_WORKERS} workers, no cache; {NUM_GRADES / serial:,.0f} grades a second "
            f"one after the other, {NUM_GRADES / concurrent:,.0f} from the threads",
        }
    )
    say("threads")
    seconds, num_left = interruptions(num_times)
    rows.append(
        _times("time from Ctrl-C in a batch of bombs to the end of the process", seconds, unit="s")
    )
    rows[-1]["note"] += f"; processes left: {num_left}"
    private, server = worker_bytes()
    rows += [
        {
            "name": "memory of one more worker",
            "value": private / 2**20,
            "unit": "MiB",
            "note": f"not shared with others; the fork server has {server / 2**20:.0f} MiB",
        },
        {
            "name": "time of a task that is decided at once, one worker",
            "value": 1e6 * median(task_seconds(500 if quick else 5000) for _ in range(5)),
            "unit": "µs",
            "n": 5,
        },
    ]
    say("all")
    return rows


def _within(surroundings: Callable[[], Any] | None, work: Callable[[], Any]) -> Any:
    if surroundings is None:
        return work()
    with surroundings():
        return work()


def _times(name: str, values: Sequence[float], *, unit: str) -> Row:
    ordered = sorted(values)
    percentile = quantiles(ordered, n=100, method="inclusive")[98]
    return {
        "name": name,
        "value": median(ordered),
        "unit": unit,
        "n": len(ordered),
        "note": f"median; 99th percentile {percentile:.4g}, longest {ordered[-1]:.4g}",
    }


def _visible_cases() -> list[Pair]:
    return read_cases(VISIBLE_CASES) if VISIBLE_CASES.is_file() else []


def collect(rows: Sequence[Row]) -> Row:
    """The content of the results file."""
    environment = environment_report()
    return {
        "benchmark": "grading_pool",
        "date": datetime.now(UTC).date().isoformat(),
        "commit": (environment["git"] or {}).get("commit"),
        "command": "python benchmarks/grading_pool.py",
        "machine": {
            key: environment[key]
            for key in ("processor", "num_usable_cpus", "memory_gb", "platform")
        },
        "versions": {"python": environment["python"], **package_versions(PACKAGES)},
        "notes": [
            f"{NUM_WORKERS} workers. A bomb is `{BOMB}` before math-verify, asked without the "
            "tiers that would refuse it. A kill is counted from the decision to kill."
        ],
        "results": list(rows),
    }


def say(line: str) -> None:
    """Progress, with the seconds since the start."""
    print(f"[{time.perf_counter() - _BEGUN:5.0f} s] {line}", flush=True)


_BEGUN = time.perf_counter()


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--out", type=Path, default=Path("runs/grading_pool"))
    options.add_argument("--record", action="store_true", help=f"write {RECORD.name} of results/")
    options.add_argument("--quick", action="store_true", help="repeat everything a few times only")
    given = options.parse_args(arguments)
    content = collect(measure(quick=given.quick))
    given.out.mkdir(parents=True, exist_ok=True)
    paths = [given.out / RECORD.name, *([RECORD] if given.record else [])]
    for path in paths:
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    say(f"written: {', '.join(map(str, paths))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
