"""Workings' grader beside math-verify and others: how often right, how fast, how long at worst.

    python benchmarks/grading_peers.py                      once, for the optional graders
    python benchmarks/grading.py [--graders NAME,...] [--out runs/grading] [--record]
    python benchmarks/grading.py --workers [--out runs/grading] [--record]     two against one

Every grader runs in a process of its own and is killed after 6 s on one pair. Speed is measured one
grader after the other, in rounds over the same pairs; the rest with a process for every core.
Nothing is remembered between grades of ours: no verdict, and no text that was read. The numbers go
to OUT/grading.json, every wrong verdict to OUT/wrong.jsonl, and with --record the numbers go to
benchmarks/results/grading.json, from which `python benchmarks/report.py` writes the tables. It
takes about eight minutes on two idle cores; --quick looks at a few pairs of every set. --workers
measures one thing alone, how much faster two workers are than one, for grading_workers.json: on two
cores the caller takes a part of what the second worker would have.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from grading_pairs import (
    ADVERSARIAL,
    OWN_CASES,
    VISIBLE_CASES,
    Pair,
    data_folder,
    golds_of,
    pairs_of,
    read_cases,
)
from grading_peers import MATH_VERIFY, OURS, PEERS
from grading_results import Measured, Rates, collect, workers_rows
from grading_runner import Outcome, Runner
from measured import RESULTS, document, write

from workings.grading.grader import Grader

ROOT = Path(__file__).parents[1]
RECORD = RESULTS / "grading.json"
WORKERS_RECORD = RESULTS / "grading_workers.json"
MIX, BOMBS = "MATH-500 and GSM8K", "adversarial cases"
NUM_GSM8K, NUM_COLLEGE_MATH = 400, 600  # of 1,319 and 2,818: enough, and slow graders end
DATASETS = {
    "Minerva": ("minerva_math", None),
    "OlympiadBench": ("olympiadbench", None),
    "college_math": ("college_math", NUM_COLLEGE_MATH),
    "Gaokao 2023": ("gaokao2023en", None),
}
CASES = {"visible cases": VISIBLE_CASES, "own cases": OWN_CASES}
GRADED_BY_ALL = (MIX, "visible cases", BOMBS)
EVERY = 4  # pair of the other sets is graded by all; kinds of pairs alternate by three
MAIN = (OURS, MATH_VERIFY)
QUICK_PAIRS = 24
REPEATS = 3
SLOW_ROUND_SECONDS = 12.0
SCALING_REPEATS = 11


# ----------------------------------------------------------------------------------------- the sets


def read_sets(*, quick: bool = False) -> dict[str, list[Pair]]:
    """Every set of pairs by its name, the mix first; a case file that is missing is left out."""
    sets = {MIX: made("math500", None) + made("gsm8k_test", NUM_GSM8K)}
    sets |= {name: made(*which) for name, which in DATASETS.items()}
    bombs: list[Pair] = []
    for name, path in CASES.items():
        cases = read_cases(path) if path.is_file() else []
        bombs += [pair for pair in cases if pair.kind == ADVERSARIAL]
        sets[name] = [pair for pair in cases if pair.kind != ADVERSARIAL]
    sets[BOMBS] = bombs
    if quick:
        sets = {name: _evenly(pairs, QUICK_PAIRS) for name, pairs in sets.items()}
    return {name: pairs for name, pairs in sets.items() if pairs}


def pairs_for_workers(*, quick: bool = False) -> list[Pair]:
    """The pairs of all data sets in full that the expression tier decides, each answer once."""
    datasets = ("math500", *(dataset for dataset, _ in DATASETS.values()))
    pairs = [pair for dataset in datasets for pair in made(dataset, None)]
    pairs = _evenly(pairs, 10 * QUICK_PAIRS) if quick else pairs
    with Grader(num_workers=os.cpu_count() or 1) as grader:
        grades = grader.grade_batch(
            [pair.response for pair in pairs], [pair.gold for pair in pairs]
        )
    needy = {
        (grade.extracted, pair.gold): pair
        for pair, grade in zip(pairs, grades, strict=True)
        if grade.tier == "expression"
    }
    return list(needy.values())


def made(dataset: str, most: int | None) -> list[Pair]:
    """The pairs of a data set, or of `most` of its golds."""
    folder = data_folder()
    if not folder.is_dir():
        raise SystemExit(f"no data sets in {folder}: set WORKINGS_DATA_DIR to their folder")
    return pairs_of(dataset, golds_of(folder, dataset, most=most))


def _evenly(pairs: Sequence[Pair], most: int) -> list[Pair]:
    count = min(most, len(pairs))
    return [pairs[index * len(pairs) // count] for index in range(count)]


# ----------------------------------------------------------------------------------------- the runs


def in_rounds(
    names: Sequence[str], pairs: Sequence[Pair], *, repeats: int
) -> dict[str, list[list[Outcome]]]:
    """Outcomes of every grader on `pairs`, one list for each round; one grader works at a time.

    A grader whose first round was slow is not asked again.
    """
    rounds: dict[str, list[list[Outcome]]] = {name: [] for name in names}
    with ExitStack() as stack:
        runners = {name: stack.enter_context(Runner(name)) for name in names}
        for turn in range(repeats):
            for name, runner in runners.items():
                must = not turn or name in MAIN
                if not must and _seconds(rounds[name][0]) > SLOW_ROUND_SECONDS:
                    continue
                outcomes = runner.run(pairs)
                rounds[name].append(outcomes)
                rate = len(pairs) / _seconds(outcomes)
                say(f"round {turn + 1} of {repeats}, {name}: {rate:,.0f} grades per second")
    return rounds


def _seconds(outcomes: Sequence[Outcome]) -> float:
    return sum(outcome.seconds for outcome in outcomes)


def side_by_side(
    tasks: Mapping[str, Mapping[str, Sequence[Pair]]], *, jobs: int
) -> dict[str, dict[str, list[Outcome]]]:
    """Outcomes by grader and set, of each grader's own sets; `jobs` of them work at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(_over_sets, name, sets): name for name, sets in tasks.items()}
        for future in as_completed(running):
            outcomes = future.result()
            seconds = sum(map(_seconds, outcomes.values()))
            say(f"accuracy of {running[future]}: done after {seconds:.0f} s of grading")
        return {name: future.result() for future, name in running.items()}


def _over_sets(name: str, sets: Mapping[str, Sequence[Pair]]) -> dict[str, list[Outcome]]:
    with Runner(name) as runner:
        return {
            title: runner.run(pairs)
            for title, pairs in sets.items()
            if title != BOMBS or PEERS[name].meets_bombs
        }


def workers_compared(pairs: Sequence[Pair], *, repeats: int) -> Rates | None:
    """Grades per second of one worker and of two, in batches of all pairs; None without pairs."""
    if not pairs:
        return None
    responses, golds = [pair.response for pair in pairs], [pair.gold for pair in pairs]
    rates: dict[int, list[float]] = {1: [], 2: []}
    with Grader(num_workers=1, cache_size=0) as one, Grader(num_workers=2, cache_size=0) as two:
        graders = {1: one, 2: two}
        for grader in graders.values():
            grader.grade_batch(responses, golds)  # every worker has started and is warm
        for _ in range(repeats):
            for num_workers, grader in graders.items():
                begun = time.perf_counter()
                grader.grade_batch(responses, golds)
                rates[num_workers].append(len(pairs) / (time.perf_counter() - begun))
    one_rate, two_rate = median(rates[1]), median(rates[2])
    say(f"{len(pairs):,} pairs: {one_rate:,.0f} a second with one worker, {two_rate:,.0f} with two")
    return Rates(num_pairs=len(pairs), one=rates[1], two=rates[2])


def import_seconds(*, repeats: int) -> list[float]:
    """How long `from workings import grade` takes in a new interpreter."""
    code = (
        "import time; begun = time.perf_counter(); from workings import grade; "
        "print(time.perf_counter() - begun)"
    )
    command = [sys.executable, "-c", code]
    return [
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(repeats)
    ]


# ------------------------------------------------------------------------------------ command line


def measure(names: Sequence[str], *, repeats: int, jobs: int, quick: bool) -> Measured:
    """Everything that the results are made of."""
    load = os.getloadavg()[0]
    sets = read_sets(quick=quick)
    for title, pairs in sets.items():
        say(f"{title}: {len(pairs):,} pairs")
    rounds = in_rounds(names, sets[MIX], repeats=repeats)
    steps = {title: 1 if title in GRADED_BY_ALL else EVERY for title in sets}
    others = {title: pairs for title, pairs in sets.items() if title != MIX}
    some = {title: pairs[:: steps[title]] for title, pairs in others.items()}
    tasks = {name: others if name in MAIN else some for name in names}
    slowest_first = sorted(names, key=lambda name: (name not in MAIN, -_seconds(rounds[name][0])))
    found = side_by_side({name: tasks[name] for name in slowest_first}, jobs=jobs)
    found = {name: {MIX: rounds[name][0], **found[name]} for name in names}
    return Measured(
        sets=sets,
        outcomes={name: found[name] for name in MAIN},
        shared_sets={title: pairs[:: steps[title]] for title, pairs in sets.items()},
        shared_outcomes={
            name: {
                title: outcomes[:: steps[title]] if name in MAIN else outcomes
                for title, outcomes in by_set.items()
            }
            for name, by_set in found.items()
        },
        rounds=rounds,
        mix=MIX,
        bombs=BOMBS,
        workers=workers_compared(
            pairs_for_workers(quick=quick), repeats=1 if quick else SCALING_REPEATS
        ),
        import_seconds=import_seconds(repeats=repeats),
        load=load,
    )


def write_wrong(measured: Measured, path: Path) -> None:
    """One line for every wrong verdict; not to be published, since it holds golds."""
    with path.open("w", encoding="utf-8") as file:
        for name, by_set in {**measured.shared_outcomes, **measured.outcomes}.items():
            sets = measured.sets if name in MAIN else measured.shared_sets
            for title, outcomes in by_set.items():
                for pair, outcome in zip(sets[title], outcomes, strict=True):
                    if outcome.accepted != pair.expected and not pair.debatable:
                        row = {
                            "grader": name,
                            "set": title,
                            "id": pair.id,
                            "kind": pair.kind,
                            "style": pair.style,
                            "gold": pair.gold,
                            "end": pair.response[-200:],
                            "expected": pair.expected,
                            "killed": outcome.killed,
                        }
                        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def say(line: str) -> None:
    """Progress, with the seconds since the start."""
    print(f"[{time.perf_counter() - _BEGUN:5.0f} s] {line}", flush=True)


_BEGUN = time.perf_counter()


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0."""
    given = parser().parse_args(arguments)
    if given.workers:
        return record_workers(given)
    unknown = [name for name in given.graders if name not in PEERS]
    if unknown:
        parser().error(f"unknown grader {', '.join(unknown)}; there are {', '.join(PEERS)}")
    wanted = list(dict.fromkeys([*MAIN, *given.graders]))
    absent = [name for name in wanted if not PEERS[name].is_installed]
    names = [name for name in PEERS if name in wanted and name not in absent]
    say(f"graders: {', '.join(names)}; not installed: {', '.join(absent) or 'none'}")
    measured = measure(names, repeats=given.repeats, jobs=given.jobs, quick=given.quick)
    content = collect(measured, command=command(given), absent=absent)
    given.out.mkdir(parents=True, exist_ok=True)
    paths = [given.out / RECORD.name, *([RECORD] if given.record else [])]
    for path in paths:
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    write_wrong(measured, given.out / "wrong.jsonl")
    say(f"written: {', '.join(map(str, paths))}")
    return 0


def record_workers(given: argparse.Namespace) -> int:
    """How much faster two workers are than one, into a file of its own; the exit code: 0, or 1."""
    rates = workers_compared(
        pairs_for_workers(quick=given.quick), repeats=1 if given.quick else SCALING_REPEATS
    )
    content = document(
        "grading_workers",
        list(workers_rows(rates)),
        command=command(given),
        commit=given.commit,
        notes=[f"Load of the machine when this ended: {os.getloadavg()[0]:.2f}."],
    )
    if rates is None:
        say("there are no pairs; set WORKINGS_DATA_DIR")
        return 1
    for path in [given.out / WORKERS_RECORD.name, *([WORKERS_RECORD] if given.record else [])]:
        write(path, content)
        say(f"written: {path}")
    return 0


def command(given: argparse.Namespace) -> str:
    """The options that change the numbers, as they would be typed."""
    words = ["python benchmarks/grading.py"]
    words += (
        [f"--graders {shlex.quote(','.join(given.graders))}"]
        if given.graders != list(PEERS)
        else []
    )
    words += [f"--repeats {given.repeats}"] if given.repeats != REPEATS else []
    words += ["--quick"] if given.quick else []
    words += ["--workers"] if given.workers else []
    return " ".join(words)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument(
        "--graders",
        type=lambda text: [name for name in text.split(",") if name],
        default=list(PEERS),
        metavar="NAME,...",
        help="beside ours and math-verify, which are always there",
    )
    options.add_argument("--repeats", type=int, default=REPEATS, help="rounds of the speed test")
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="graders at a time")
    options.add_argument("--out", type=Path, default=Path("runs/grading"))
    options.add_argument("--record", action="store_true", help=f"write {RECORD.name} of results/")
    options.add_argument("--quick", action="store_true", help="a few pairs of every set")
    options.add_argument("--workers", action="store_true", help="two workers against one alone")
    options.add_argument("--commit", help="to record where there is no repository")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
