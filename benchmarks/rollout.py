"""How many tokens a second do rollouts take? The paged engine against vLLM, in turns on one card.

    python benchmarks/rollout.py [--cases main,seqs_256] [--repeats 3] [--only ours|vllm]
                                 [--budget SECONDS] [--out FILE] [--record]

Models of published shapes with random weights; random prompts, new ones for every repeat; exactly
as many tokens as a case says, whatever is sampled; log-probabilities on. A rate is output tokens
over wall time, from the call to the samples, prefill included. The two alternate: ours, vLLM, ours,
vLLM, each in its own process; on a card that does not hold both, the other one sleeps meanwhile.
vLLM is tuned (settings in the notes of the file) and, in the case `defaults`, as it comes. The file
is written after every case, and rows of an earlier call on the same machine stay in it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from measured import RESULTS, Row, command_line
from measurement import Measurement, default_models, names_in, refuse_unknown
from rollout_cases import CASES, PUBLISHED, Case, chosen
from rollout_engines import CAPTURED, Run, vllm_sampling, vllm_settings
from workers import Budget, Caller, WorkerFailed

OURS, PEER = "ours", "vllm"
ROOMY_GIB = 120
"""Memory of a card that holds both engines side by side."""
SIDE_BY_SIDE, IN_TURNS = 0.43, 0.8
"""vLLM's share of the card with both awake, and with one asleep."""
CACHE_SIDE_BY_SIDE, CACHE_IN_TURNS = 0.38, 0.65
"""The share that our cache may have, likewise."""
ASSUMED_RATE = 15_000
"""Tokens a second that a first repeat is assumed to take at worst, where there is a limit."""
START_SECONDS = 90.0
"""Less than this left, and no engine is started."""


@dataclass(slots=True)
class Turns:
    """Which side may use the card. With `sleeping`, one is awake at a time."""

    callers: dict[str, Caller] = field(default_factory=dict)
    sleeping: bool = False
    asleep: set[str] = field(default_factory=set)

    def take(self, side: str, *, timeout: float | None = None) -> Caller:
        """The side, awake, and the others asleep if there is no room for them."""
        self.rest(side, timeout=timeout)
        if side in self.asleep:
            self.callers[side].call("wake", timeout=timeout)
            self.asleep.remove(side)
        return self.callers[side]

    def rest(self, but: str | None = None, *, timeout: float | None = None) -> None:
        """Puts all but one to sleep, if there is no room for several."""
        if self.sleeping:
            for side in self.callers.keys() - {but} - self.asleep:
                self.callers[side].call("sleep", timeout=timeout)
                self.asleep.add(side)

    def close(self, side: str) -> None:
        """Ends a side, if it is there."""
        self.asleep.discard(side)
        if side in self.callers:
            self.callers.pop(side).close()


def measure(
    case: Case, turns: Turns, *, repeats: int, budget: Budget, sides: Sequence[str]
) -> dict[str, list[Run]]:
    """Repeats of every side, alternating; fewer than asked where the budget ends before."""
    runs: dict[str, list[Run]] = {side: [] for side in sides}
    for repeat in range(repeats):
        expected = sum(
            runs[side][-1].seconds if runs[side] else case.tokens / ASSUMED_RATE for side in sides
        )
        if not budget.allows(1.2 * expected):
            print(f"no time left for {case.name}, repeat {repeat}", flush=True)
            break
        for side in sides:
            caller = turns.take(side, timeout=budget.left)
            run = caller.call("run", case, repeat, timeout=budget.left)
            runs[side].append(run)
            said = f"{case.name}, {side}, repeat {repeat}: {run.tokens / run.seconds:,.0f} tokens/s"
            print(f"[{budget.spent:4.0f} s] {said} ({run.seconds:.2f} s)", flush=True)
    return runs


def row(case: Case, runs: Mapping[str, Sequence[Run]], *, peer: str) -> Row | None:
    """The case's line in the results; None where no side finished a repeat."""
    rates = {side: [run.tokens / run.seconds for run in done] for side, done in runs.items()}
    mine, others = rates.get(OURS, []), rates.get(PEER, [])
    if not mine and not others:
        return None
    medians = [statistics.median(found) for found in (mine, others) if found]
    said = [f"{spread(mine)} of {len(mine)}"] if mine else []
    said += [f"{peer} {spread(others)} of {len(others)}"] if others else []
    line: Row = {"name": case.title if mine else f"{peer}: {case.title}", "value": medians[0]}
    line |= {"unit": "tokens/s", "n": len(mine or others), "note": "; ".join(said)}
    if mine and others:
        line |= {"peer": peer, "peer_value": medians[1], "ratio": medians[0] / medians[1]}
    return line


def spread(rates: Sequence[float]) -> str:
    """The range of the repeats, which is what a median of three hides."""
    return f"{min(rates):,.0f} to {max(rates):,.0f}"


# ------------------------------------------------------------------------------------------- a call


class EngineMeasurement(Measurement):
    """The state of one call; besides, the engines' turns and what they did."""

    benchmark = "rollout"
    packages = ("vllm",)
    factories: ClassVar = {OURS: "rollout_engines:Ours", PEER: "rollout_engines:VLLM"}
    preloaded: ClassVar = {OURS: ("torch", "transformers"), PEER: ("vllm.entrypoints.llm",)}

    def __init__(self, given: argparse.Namespace, *, command: str) -> None:
        super().__init__(given, command=command)
        self.sides = [side for side in (PEER, OURS) if given.only in (None, side)]
        self.turns = Turns()
        self.failed = False
        self.vllm_version = ""
        self.done: dict[str, dict[str, list[Run]]] = {}

    def run(self) -> None:
        """Measures group after group.

        A side that cannot start is left out; one that fails later ends the call. Rows that were
        measured stay.
        """
        shape = None
        try:
            for group in chosen(self.given.cases):
                if self.given.budget is not None and not self.budget.allows(START_SECONDS):
                    print(f"no time left for {', '.join(case.name for case in group)}", flush=True)
                    continue
                self.turns.close(PEER)
                if group[0].shape != shape:
                    self.turns.close(OURS)
                shape = group[0].shape
                self._open(group)
                for case in group:
                    self._measure(case)
        finally:
            self.stop()

    def _measure(self, case: Case) -> None:
        sides = [side for side in (OURS, PEER) if side in self.sides]
        known = self.done.get(case.also or "", {}).get(OURS)
        if known is not None:
            sides.remove(OURS)
        repeats = self.given.repeats if case.peer == "tuned" else self.given.default_repeats
        runs = measure(case, self.turns, repeats=repeats, budget=self.budget, sides=sides)
        if known is not None:
            runs[OURS] = known
        self.done[case.name] = runs
        line = row(case, runs, peer=self._peer_name(case.peer))
        if line is not None:
            self.rows.append(line)
            self.write()

    def _open(self, group: Sequence[Case]) -> None:
        """The engines of a group, warmed up; vLLM first, which wants an empty card."""
        folder, peer = str(self.given.models / group[0].shape), group[0].peer
        starting = [side for side in self.sides if side not in self.turns.callers]
        workers = {side: self.start(side) for side in starting}
        self.turns.sleeping = self.write_model(group[0].shape) < ROOMY_GIB and len(self.sides) > 1
        together = len(self.sides) > 1 and not self.turns.sleeping
        asked = {
            "share": SIDE_BY_SIDE if together else IN_TURNS,
            "longest": max(case.longest for case in group),
            "sleeps": self.turns.sleeping,
        }
        settings: dict[str, dict[str, Any]] = {
            PEER: {"folder": folder, "peer": peer, **asked},
            OURS: {
                "folder": folder,
                "name": self.given.engine,
                "device": self.given.device,
                "share": CACHE_SIDE_BY_SIDE if together else CACHE_IN_TURNS,
            },
        }
        shape = group[0].shape
        to_come = [CASES[name] for name in self.given.cases if CASES[name].shape == shape]
        for side in starting:
            cases = group if side == PEER else to_come
            self.turns.rest(timeout=self.budget.left)
            try:
                found = workers[side].call("open", cases, settings[side], timeout=self.budget.left)
            except WorkerFailed as error:
                print(f"measuring without {side}: {error}", file=sys.stderr, flush=True)
                self.failed = True
                self.sides.remove(side)
                self.stop(side)
                continue
            self.turns.callers[side] = workers[side]
            if side == PEER:
                self.vllm_version = found["vllm"]
                self._note_settings(peer, asked)
            print(f"[{self.budget.spent:4.0f} s] {side} is ready", flush=True)

    def _note_settings(self, peer: str, asked: Mapping[str, Any]) -> None:
        settings = vllm_settings(peer, **asked)
        if "compilation_config" in settings:
            settings["compilation_config"] = f"{len(CAPTURED)} CUDA graphs for 1 to {CAPTURED[-1]}"
        sampled = {f"{key} of a request": value for key, value in vllm_sampling(peer).items()}
        self.note(self._peer_name(peer), settings | sampled)

    def _peer_name(self, peer: str) -> str:
        return f"vLLM {self.vllm_version}, {'tuned' if peer == 'tuned' else 'its defaults'}"


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0, or 1 where a worker failed."""
    given = parser().parse_args(arguments)
    refuse_unknown(parser(), "case", given.cases, CASES)
    command = command_line("benchmarks/rollout.py", arguments)
    measurement = EngineMeasurement(given, command=command)
    try:
        measurement.run()
    except WorkerFailed as error:
        print(error, file=sys.stderr)
        return 1
    for line in measurement.rows:
        print(f"{line['name']}: {line['value']:,.0f} {line['unit']} ({line['note']})", flush=True)
    return 1 if measurement.failed else 0


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--cases", type=names_in, default=list(PUBLISHED), metavar="NAME,...")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--default-repeats", type=int, default=1, help="of vLLM at its defaults")
    options.add_argument("--only", choices=(OURS, PEER))
    options.add_argument("--engine", default="paged", help="ours: paged or transformers")
    options.add_argument("--device", default="cuda")
    options.add_argument("--budget", type=float, help="seconds after which nothing is begun")
    options.add_argument(
        "--models", type=Path, default=default_models(), help="for the random weights"
    )
    options.add_argument("--out", type=Path, default=Path("runs/benchmarks/rollout.json"))
    options.add_argument("--commit", help="to record where there is no repository")
    options.add_argument(
        "--record", action="store_const", dest="out", const=RESULTS / "rollout.json"
    )
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
