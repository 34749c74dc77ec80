"""GRPO of a 1.5B model under a cap on the card's memory, engine and trainer together.

    python benchmarks/memory.py [--case full --case lora] [--shape 1.5B] [--steps 3] [--output FILE]

Every case runs in a process of its own: `train_grpo` on random weights of the shape, prompts of
random ids, a rule as reward, groups of 8, rows of 2,048 tokens. The cap holds twice over. torch's
allocator may take no more (`set_per_process_memory_fraction`), and all that the card has beyond the
cap is taken away before anything is loaded, so that what torch does not see (the CUDA context, the
engine's cache, graphs, libraries) has to fit as well. What is reported is the most that the process
held, measured on the card while it ran.

A case that does not fit is reported with its error and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from grpo_cases import Case
from measured import RESULTS, Row, command_line
from measurement import Measurement, default_models, override
from memory_cases import CASES, MemoryCase, Outcome
from shapes import SHAPES
from workers import WorkerFailed

TIMEOUT_SECONDS = 200.0
"""For one case; it is ended then."""


class MemoryMeasurement(Measurement):
    """The state of one call; a side is a case."""

    benchmark = "memory"
    packages = ("bitsandbytes",)
    factories: ClassVar = dict.fromkeys(CASES, "memory_side:Trainer")
    preloaded: ClassVar = dict.fromkeys(CASES, ("torch", "transformers", "workings.training.grpo"))
    failed = False

    def run(self) -> None:
        """Measures case after case; one that fails is said, and the next one begun."""
        asked = [CASES[name] for name in self.given.cases or CASES]
        cases = [case for case in asked if self._is_possible(case)]
        sizes = sizes_of(self.given)
        overrides = run_overrides(self.given)
        self.note(sizes.title, overrides)
        try:
            for case in cases:  # They import meanwhile, and hold none of the card.
                self.start(case.name)
            self.write_model(sizes.shape)
            model = str(self.given.models / sizes.shape)
            for case in cases:
                arguments = (case, sizes, model, self.given.device, overrides)
                outcome = self._outcome(case, arguments)
                self.stop(case.name)
                print(f"[{self.budget.spent:4.0f} s] {line_of(case, outcome)}", flush=True)
                self.rows += rows(case, sizes, outcome)
                self.write()
        finally:
            self.stop()

    def _outcome(self, case: MemoryCase, arguments: tuple[Any, ...]) -> Outcome:
        try:
            outcome: Outcome = self.workers[case.name].call(
                "run", *arguments, timeout=TIMEOUT_SECONDS
            )
        except WorkerFailed as error:
            outcome = Outcome(error=str(error).splitlines()[0], account=str(error))
        self.failed |= outcome.error is not None
        return outcome

    def _is_possible(self, case: MemoryCase) -> bool:
        if case.needs is None or importlib.util.find_spec(case.needs) is not None:
            return True
        print(f"{case.name}: left out, {case.needs} is not installed")
        return False


def sizes_of(given: argparse.Namespace) -> Case:
    """What every case samples and trains on in a step."""
    return Case(
        name="memory",
        shape=given.shape,
        prompts=4,
        input_tokens=given.prompt_tokens,
        output_tokens=given.output_tokens,
        rows=8,
        together=False,
    )


def run_overrides(given: argparse.Namespace) -> dict[str, Any]:
    """Of every case's configuration."""
    sizes = {"max_steps": given.steps, "batch.microbatch_tokens": given.microbatch_tokens}
    return {**sizes, **dict(given.set)}


def line_of(case: MemoryCase, outcome: Outcome) -> str:
    """What the case did, in a line, and the account of an error below it."""
    verdict = "fits" if outcome.error is None else f"FAILS, {outcome.error}"
    seconds = ", ".join(f"{value:.2f}" for value in outcome.step_seconds)
    phases = json.dumps({name: round(value, 3) for name, value in outcome.phases.items()})
    line = (
        f"{case.name} ({case.title}) under {case.cap_gib:g} GiB: {verdict}; held "
        f"{outcome.held_gib:.2f} GiB (torch allocated {outcome.allocated_gib:.2f}, reserved "
        f"{outcome.reserved_gib:.2f}); steps of {seconds or '-'} s; {phases}"
    )
    return f"{line}\n{outcome.account}" if outcome.account else line


def rows(case: MemoryCase, sizes: Case, outcome: Outcome) -> list[Row]:
    """The case's lines in the results; none where it failed."""
    if outcome.error is not None:
        return []
    name = f"{sizes.shape}, {case.title}"
    held: Row = {
        "name": f"{name}, memory held",
        "value": round(outcome.held_gib, 2),
        "unit": "GiB",
        "note": f"under a cap of {case.cap_gib:g} GiB on the process",
    }
    seconds = sorted(outcome.step_seconds)
    step: Row = {
        "name": f"{name}, a step",
        "value": round(seconds[len(seconds) // 2], 3),
        "unit": "s",
        "low": round(seconds[0], 3),
        "high": round(seconds[-1], 3),
        "n": len(seconds),
    }
    return [held, step]


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0, or 1 where a case failed."""
    given = parser().parse_args(arguments)
    command = command_line("benchmarks/memory.py", arguments)
    measurement = MemoryMeasurement(given, command=command)
    measurement.run()
    return int(measurement.failed)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--case", action="append", dest="cases", choices=list(CASES))
    options.add_argument("--shape", default="1.5B", choices=list(SHAPES))
    options.add_argument("--device", default="cuda")
    options.add_argument("--steps", type=int, default=3, help="the first does not count")
    options.add_argument("--prompt-tokens", type=int, default=256)
    options.add_argument("--output-tokens", type=int, default=1792)
    options.add_argument("--microbatch-tokens", type=int, default=8192)
    options.add_argument(
        "--set",
        action="append",
        type=override,
        default=[],
        metavar="KEY=VALUE",
        help="of every run, such as engine.name=transformers",
    )
    options.add_argument("--budget", type=float, help=argparse.SUPPRESS)
    options.add_argument("--models", type=Path, default=default_models())
    unless = Path("runs/benchmarks/memory.json")
    options.add_argument("--output", type=Path, dest="out", default=unless)
    options.add_argument("--commit", help="to record where there is no repository")
    options.add_argument(
        "--record", action="store_const", dest="out", const=RESULTS / "memory.json"
    )
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
